// An entry of the audit log in words: who did what, from where, to what, and what was there before and after.
//
// Laws:
// - What is not known here is shown as it is stored: a newer server records more than this page has words for.
// - Ids, names and values are text that others chose.

import { badge, customerLink, make, timestamp, userName } from "./dom.js";
import { bytes, duration, hasText, number, t } from "./i18n.js";
import { ROLES } from "./key_texts.js";

/** Every action, by the word before its dot. */
export const ACTIONS = {
  customer: ["pause", "resume", "tune", "reset", "forget", "export"],
  document: ["cancel", "retry", "prioritize"],
  documents: ["cancel", "retry", "prioritize"],
  key: ["create", "rotate", "revoke"],
  "upload-token": ["create"],
  session: ["begin", "end", "refused", "revoke"],
  policy: ["set", "apply"],
  kind: ["limit"],
  webhook: ["set", "remove", "rotate", "expire-old-secret", "send"],
  worker: ["drain", "undrain"],
  queue: ["purge", "move", "stop-move", "backup", "restore", "migrate", "encrypt"],
  files: ["sweep"],
  audit: ["purge"],
};
const DURATIONS = new Set(["older_than", "grace", "overlap", "reset_interval"]), // in seconds
  SIZES = new Set(["bytes", "bytes_max"]),
  EXPIRIES = new Set(["expires_ms", "new_expires_ms", "old_expires_ms"]);
const TARGETS = { document: "#/documents/", key: "#/keys?state=any&search=" };

/** A text of the catalog, or what is stored where the catalog has none. */
const textOr = (key, stored) => (hasText(key) ? t(key) : make("code", {}, stored));

const word = (text) => text.replace(/\W/g, "_");

export const actionText = (action) => textOr(`audit.did_${word(action)}`, action);

export const groupText = (group) => t(`audit.group_${word(group)}`);

// -- who ---------------------------------------------------------------------------------------------------------------

const roleText = (role) => (Object.hasOwn(ROLES, role) ? t(ROLES[role]) : role);

/** Who it was: the name of a key or a person, its role and id, and where the request came from. */
export function whoCell({ kind, id, name, role, address }) {
  if (kind === "server") return t("audit.server");
  if (kind === "cli") return lines(userName(id), t("audit.cli"), userName(name));
  const own = make("a", { href: TARGETS.key + encodeURIComponent(id) }, make("code", { class: "id" }, id));
  const source = address && make("span", {}, t("audit.from"), " ", make("bdi", {}, address));
  return lines(
    name ? userName(name) : role ? roleText(role) : t(kind === "key" ? "audit.unknown_key" : "audit.unknown_person"),
    name && role && roleText(role),
    id && (kind === "key" && role ? own : make("code", {}, id)),
    source,
  );
}

/** Lines below each other, the first one larger. */
const lines = (first, ...others) => [first, others.filter(Boolean).map((line) => make("small", { class: "line" }, line))];

// -- what --------------------------------------------------------------------------------------------------------------

/** What was done to what, and whether it was not completed or failed. */
export function whatCell({ action, target, customer, outcome, error }) {
  const code = make("code", {}, target),
    group = action.split(".")[0],
    base = Object.hasOwn(TARGETS, group) && TARGETS[group];
  const shown = base ? make("a", { href: base + encodeURIComponent(target) }, code) : code;
  const isRefusal = action.endsWith(".refused"); // it says so itself
  const failure = outcome === "failed" && !isRefusal && badge("failed", t("audit.failed"));
  const unfinished = outcome === "begun" && badge("paused", t("audit.begun"));
  return lines(
    [actionText(action), (failure || unfinished) && [" ", failure || unfinished]],
    target != null && target !== customer && shown,
    error && errorLine(error),
    unfinished && t("audit.begun_hint"),
  );
}

/** Why it failed: a sign-in, or what the API would have answered. */
function errorLine(error) {
  const keys = [`audit.error_${word(error)}`, `sign_in.failed_${word(error)}`, `problem.${error}`];
  return textOr(keys.find(hasText), error);
}

export const customerCell = ({ customer }) => (customer == null ? "–" : customerLink(customer));

// -- before and after ----------------------------------------------------------------------------------------------------

/** The members of an object and of the objects in it, by name; what is no object has the name "". */
function members(value) {
  if (value == null) return new Map();
  if (typeof value !== "object" || Array.isArray(value)) return new Map([["", value]]);
  const isGroup = (member) => member != null && typeof member === "object" && !Array.isArray(member);
  const flat = ([name, member]) => (isGroup(member) ? [...members(member)] : [[name, member]]);
  return new Map(Object.entries(value).flatMap(flat));
}

/** A value as people read it. */
function valueText(name, value) {
  if (value == null) return EXPIRIES.has(name) ? t("keys.never") : "–";
  if (Array.isArray(value)) return value.map((item) => valueText(name, item)).join(", ") || "–";
  if (typeof value === "boolean") return t(value ? "audit.yes" : "audit.no");
  if (typeof value === "number") return numberText(name, value);
  const [key] = [`state.${value}`, `reset.${value}`, `turns.${value}`, `keys.scope_${value}`].filter(hasText);
  if (name === "role") return roleText(value);
  return ["state", "reset", "turns", "scopes"].includes(name) && key ? t(key) : String(value) || "–";
}

function numberText(name, value) {
  if (name.endsWith("_ms")) return timestamp(value / 1000).textContent;
  if (DURATIONS.has(name)) return duration(value, "long");
  return SIZES.has(name) ? bytes(value) : number(value);
}

const sameValue = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** What changed, a line each: "weight: 1 → 2"; members that only one side has are shown as they are. */
export function changesCell({ before, after }) {
  const [old, fresh] = [members(before), members(after)];
  const names = [...new Set([...old.keys(), ...fresh.keys()])];
  const changed = names.filter((name) => !(old.has(name) && fresh.has(name) && sameValue(old.get(name), fresh.get(name))));
  if (!changed.length) return names.length ? t("audit.same") : "–";
  const text = (side, name) => make("bdi", {}, valueText(name, side.get(name)));
  const value = (name) =>
    old.has(name) && fresh.has(name)
      ? [text(old, name), make("span", { "aria-label": t("audit.became"), role: "img" }, " → "), text(fresh, name)]
      : text(old.has(name) ? old : fresh, name);
  const label = (name) => name && make("dt", {}, textOr(`audit.field_${name}`, name));
  return make("dl", { class: "changes" }, changed.map((name) => make("div", {}, label(name), make("dd", {}, value(name)))));
}
