// Keys in words: whose one is, what it may do, how it stands, and why something could not be done with it.

import { errorText } from "./api.js";
import { badge, customerLink, make, userName } from "./dom.js";
import { t } from "./i18n.js";

export const ROLES = { customer: "keys.customer", viewer: "shell.viewer", operator: "shell.operator", admin: "shell.admin" };
const PROBLEMS = { "wrong-state": "keys.ended", "nothing-here": "keys.gone", "bad-value": "keys.bad_value" };

/** Explain an error of a request about a key. */
export const keyErrorText = (error) => (error.type in PROBLEMS ? t(PROBLEMS[error.type]) : errorText(error));

/** What a key may do. */
export const scopesText = ({ role, scopes }) =>
  scopes.length ? scopes.map((scope) => t(`keys.scope_${scope}`)).join(", ") : t(`keys.all_${role}`);

/** Whose a key is: a customer, or a role. */
export const holderText = (key) => (key.customer == null ? t(ROLES[key.role]) : userName(key.customer));

/** How a key is called: by its name, or by its id. */
export const keyName = (key) => (key.name ? userName(key.name) : make("code", {}, key.id));

/** The first cell of a key: its holder, its name and its id. */
export const holderCell = (key, isOwn) => [
  key.customer == null ? make("b", {}, t(ROLES[key.role])) : customerLink(key.customer),
  isOwn && [" ", badge("here", t("keys.own"))],
  key.name && [make("br"), make("small", {}, userName(key.name))],
  make("br"),
  make("small", {}, make("code", {}, key.id)),
];

/** How a key stands, as a badge. */
export function standing(key) {
  if (key.state !== "active") return badge(key.state === "revoked" ? "failed" : "", t(`keys.state_${key.state}`));
  if (key.replaced_by) return badge("paused", t("keys.state_replaced"));
  return key.ends_soon ? badge("paused", t("keys.state_ending")) : badge("done", t("keys.state_active"));
}

/** What stops when a key is revoked, as items of a list. */
export function whatStops(key) {
  const stopping = key.scopes.length ? key.scopes.map((scope) => t(`keys.stops_${scope}`)) : [t(`keys.stops_${key.role}`)];
  const hasPages = !key.scopes.length || key.scopes.includes("read");
  const items = hasPages ? [...stopping, t("keys.stops_pages")] : stopping;
  return make("ul", {}, items.map((item) => make("li", {}, item)));
}
