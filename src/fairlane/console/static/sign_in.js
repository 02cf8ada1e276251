// The sign-in view: as oneself, at a provider or by the word of a proxy in front, where there is one, or with a key.
//
// Laws:
// - The address says why signing in at the provider failed, by a code; it is taken out of the address when it is shown.
// - Whom a proxy names is signed in when the page is opened; after signing out, only when they say so.
// - Which view to open afterwards is remembered here and not in any address: nobody else can choose it.

import { errorText, get, signIn, signInByProxy } from "./api.js";
import { field, make, setChildren } from "./dom.js";
import { hasText, t } from "./i18n.js";

const VIEW_KEY = "fairlane.view";
let ways = null; // known after the first answer

/** The key of the text that says why signing in failed, or "". */
export function takeFailure() {
  const address = new URL(location.href),
    code = address.searchParams.get("sign_in");
  if (address.search) history.replaceState(null, "", address.pathname + address.hash);
  if (!code) return "";
  const key = `sign_in.failed_${code}`;
  return hasText(key) ? key : "problem.other";
}

function rememberView() {
  try {
    sessionStorage.setItem(VIEW_KEY, location.hash);
  } catch {
    // the browser forbids storage: the first view is opened
  }
}

/** Open the view that was open before the way to the provider. */
export function restoreView() {
  try {
    const view = sessionStorage.getItem(VIEW_KEY) || "";
    sessionStorage.removeItem(VIEW_KEY);
    if (!location.hash && view.startsWith("#/")) history.replaceState(null, "", view);
  } catch {
    // nothing was remembered
  }
}

async function loadWays() {
  try {
    ways ??= await get("/page/sign-in");
  } catch {
    return {}; // a key can be used all the same, and the next view asks again
  }
  return ways;
}

/** Sign in as whom a proxy in front names: the session, or null, and the key of the text that says why. */
export async function signInAsNamed() {
  const { proxy } = await loadWays();
  if (!proxy) return { session: null, reason: "" };
  try {
    return { session: await signInByProxy(), reason: "" };
  } catch (error) {
    return { session: null, reason: error.status === 403 ? "sign_in.failed_no_role" : "problem.other" };
  }
}

/** Put the way to sign in as oneself into its place, as soon as the server has said whether there is one. */
async function drawProvider(place, onNamed) {
  const { oidc, proxy } = await loadWays();
  if (!oidc && !proxy) return;
  const way = oidc
    ? make("a", { class: "button main", href: oidc.url, onclick: rememberView }, t("sign_in.with", { name: oidc.name }))
    : make("button", { class: "main", onclick: onNamed }, t("sign_in.as", { name: proxy.name }));
  setChildren(place, way, make("p", { class: "muted" }, t("sign_in.or_key")));
}

/** The card of the sign-in view; `reason` is the key of a text, `onSignedIn` gets the session. */
export function signInCard(reason, onSignedIn) {
  const key = make("input", {
    type: "password",
    autocomplete: "current-password",
    required: true,
    spellcheck: "false",
    placeholder: "fl_…",
    name: "key",
  });
  const message = make("p", { class: "wrong", role: "alert" }, reason && t(reason));
  const button = make("button", { class: "main" }, t("sign_in.go"));
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await onSignedIn(await signIn(key.value.trim()));
    } catch (error) {
      setChildren(message, error.status === 401 ? t("sign_in.wrong") : errorText(error));
      key.select();
    } finally {
      button.disabled = false;
    }
  };
  const logo = make("img", { src: "/static/icon.svg", alt: "", width: 40, height: 40 });
  const provider = make("div", { class: "provider" });
  const card = make(
    "div",
    { class: "card" },
    make("p", { class: "brand" }, logo, "Fairlane"),
    make("h1", {}, t("sign_in.title")),
    make("p", { class: "muted" }, t("sign_in.lead")),
    message,
    provider,
    make("form", { onsubmit: submit }, field(t("sign_in.key"), key, t("sign_in.hint")), button),
  );
  drawProvider(provider, async () => {
    const { session, reason: refusal } = await signInAsNamed();
    if (session) onSignedIn(session);
    else setChildren(message, t(refusal));
  });
  return card;
}
