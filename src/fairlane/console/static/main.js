// The frame around the views: sign-in, navigation, language and theme, and the live stream.
//
// Laws:
// - A customer's page knows only the customer's views. A page requests and offers nothing that the server would refuse.
// - Everybody loads only the views of their role: a customer does not wait for those of staff, nor staff for those of admins.
// - The stream is opened once per session and feeds the view that is open; when it is lost, the page says so.

import { EventStream, currentSession, errorText, isStaff, may, signOut } from "./api.js";
import { BatchView } from "./batch.js";
import { DocumentView } from "./document.js";
import { make, notify, select, setChildren, userName } from "./dom.js";
import { HowItWorksView } from "./how_it_works.js";
import { LANGUAGES, addCatalog, language, loadLanguage, preferredLanguage, t } from "./i18n.js";
import { listenToKeys } from "./keyboard.js";
import { restoreView, signInAsNamed, signInCard, takeFailure } from "./sign_in.js";
import { WebhookView } from "./webhook.js";

// A view is made of a container and the session. It may have frame(frame), event(event) and close().
// The view of one item, made of a container, the item's id and the session.
const ITEM_VIEWS = { batches: BatchView, documents: DocumentView, mine: DocumentView };
const ROLES = { viewer: "shell.viewer", operator: "shell.operator", admin: "shell.admin" };
const titleOf = (view) => t(view === "batches" ? "batch.title" : `nav.${view.replace("-", "_")}`);
const FRAMES_SILENCE_MS = 12_000, // the server sends something every 5 seconds
  EVENTS_SILENCE_MS = 40_000; // and here every 15
const THEME_KEY = "fairlane.theme";
const THEMES = ["system", "light", "dark"];
const THEME_SYMBOLS = { system: "◐", light: "☀", dark: "☾" };
const page = document.getElementById("page");

let session = null;
let signInReason = ""; // the key of the text that the sign-in view shows
let views = null; // of whoever is signed in, by name
let view = null;
let lastFrame = null;
let stream = null;
let isLive = true;

// -- theme -------------------------------------------------------------------------------------------------------------

/** Apply the stored theme, after storing another one if there is one; returns its name. */
function applyTheme(chosen) {
  try {
    if (chosen !== undefined) localStorage.setItem(THEME_KEY, chosen);
    chosen = localStorage.getItem(THEME_KEY);
  } catch {
    // the browser forbids storage: the theme lasts until the page is closed
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
  return chosen || "system";
}

function themeButton() {
  const button = make("button", { class: "quiet shade" });
  const label = (theme) => {
    const text = `${t("shell.theme")}: ${t(`shell.${theme}`)}`;
    setChildren(button, THEME_SYMBOLS[theme]);
    button.setAttribute("aria-label", text);
    button.title = text;
  };
  button.addEventListener("click", () => {
    label(applyTheme(THEMES[(THEMES.indexOf(applyTheme()) + 1) % THEMES.length]));
    if (lastFrame) view?.frame?.(lastFrame); // the canvas takes its colours from the theme
  });
  label(applyTheme());
  return button;
}

// -- frame -------------------------------------------------------------------------------------------------------------

function switches() {
  const languages = select(Object.entries(LANGUAGES), language, {
    "aria-label": t("shell.language"),
    onchange: async (event) => {
      await loadLanguage(event.target.value, true);
      render();
    },
  });
  return make("div", { class: "switches" }, languages, themeButton());
}

/** Who is signed in: the name of a person, and the customer or the role. */
function whose() {
  const role = session.customer ? userName(session.customer) : t(ROLES[session.role]);
  return session.person ? [userName(session.person.name), " · ", role] : role;
}

/** Load the views of a role; what cannot be loaded is missing: the connection was lost, and the others work all the same. */
async function loaded(load) {
  try {
    return await load();
  } catch (error) {
    notify(errorText(error), "bad");
    return {};
  }
}

async function loadAdminViews() {
  const modules = [import("./keys.js"), import("./audit.js"), import("./first_steps.js"), addCatalog("locales/admin")];
  const [{ KeysView }, { AuditView }, { GuidedLanesView }] = await Promise.all(modules);
  return { keys: KeysView, audit: AuditView, lanes: GuidedLanesView };
}

async function loadStaffViews() {
  const { STAFF_VIEWS, STAFF_ITEM_VIEWS } = await import("./staff_views.js");
  Object.assign(ITEM_VIEWS, STAFF_ITEM_VIEWS);
  return STAFF_VIEWS;
}

async function loadCustomerViews() {
  const { MyDocumentsView } = await import("./my_documents.js");
  return { mine: MyDocumentsView, webhook: WebhookView };
}

/** The views of whoever has signed in, by name. */
async function loadViews(opened) {
  const own = loaded(isStaff(opened) ? loadStaffViews : loadCustomerViews);
  const more = may(opened, "admin") ? await loaded(loadAdminViews) : {};
  return { ...(await own), ...more, how: HowItWorksView };
}

function drawShell() {
  const main = make("main", { id: "main", tabindex: "-1" });
  const names = Object.keys(views);
  const links = names.map((name) => make("a", { href: `#/${name}`, "data-view": name }, titleOf(name)));
  const skipToContent = (event) => (event.preventDefault(), main.focus());
  const logo = make("img", { src: "/static/icon.svg", alt: "", width: 28, height: 28 });
  setChildren(
    page,
    make("a", { class: "skip", href: "#main", onclick: skipToContent }, t("shell.skip")),
    make(
      "header",
      { class: "bar" },
      make("a", { class: "brand", href: `#/${names[0]}` }, logo, make("span", {}, "Fairlane")),
      make("nav", { "aria-label": t("shell.views") }, links),
      make(
        "div",
        { class: "who" },
        make("span", { class: "whose" }, whose()),
        switches(),
        make("button", { class: "quiet", onclick: leave }, t("shell.sign_out")),
      ),
    ),
    make("div", { id: "lost", role: "alert" }),
    main,
  );
  drawConnection();
}

function drawConnection() {
  const banner = document.getElementById("lost");
  if (!banner) return;
  setChildren(banner, isLive ? [] : [make("b", {}, t("shell.not_live")), " ", t("shell.not_live_more")]);
  document.documentElement.classList.toggle("stale", !isLive);
}

function drawSignIn(reason = "") {
  const onSignedIn = async (opened) => {
    await start(opened);
    document.getElementById("main").focus();
  };
  signInReason = reason;
  document.title = `${t("sign_in.title")} · Fairlane`;
  setChildren(page, make("main", { class: "sign-in" }, signInCard(reason, onSignedIn), switches()));
  page.querySelector("input").focus();
}

// -- navigation --------------------------------------------------------------------------------------------------------

/** The view and the item that the address names. */
function route() {
  const [, name, ...rest] = location.hash.split("?")[0].split("/");
  let id = rest.join("/");
  try {
    id = decodeURIComponent(id);
  } catch {
    id = ""; // somebody typed a malformed address
  }
  if (name === "batches" && id) return { name, id }; // it is reached by links and by its address only
  return Object.hasOwn(views, name) ? { name, id } : { name: Object.keys(views)[0], id: "" };
}

function openView() {
  const main = document.getElementById("main"),
    container = make("div"),
    { name, id } = route();
  view?.close?.();
  for (const dialog of document.querySelectorAll("dialog")) dialog.close(); // a question about a view that is left
  const among = name !== "batches" ? name : isStaff(session) ? "documents" : "mine";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === among) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${titleOf(name)} · Fairlane`;
  main.className = `view-${name}`;
  setChildren(main, container);
  view = id && ITEM_VIEWS[name] ? new ITEM_VIEWS[name](container, id, session) : new views[name](container, session);
  if (lastFrame) view.frame?.(lastFrame);
}

function render() {
  if (!session) return drawSignIn(signInReason);
  drawShell();
  openView();
}

// -- session -----------------------------------------------------------------------------------------------------------

async function start(opened) {
  views = await loadViews(opened);
  session = opened;
  const onState = (state) => {
    isLive = state;
    drawConnection();
  };
  const onFrame = (frame) => {
    lastFrame = frame;
    view?.frame?.(frame);
  };
  isLive = true;
  stream = isStaff(session)
    ? new EventStream("/page/frames", onFrame, onState, FRAMES_SILENCE_MS)
    : new EventStream("/v1/events", (event) => view?.event?.(event), onState, EVENTS_SILENCE_MS);
  render();
}

function end() {
  stream?.close();
  view?.close?.();
  session = view = lastFrame = stream = null;
}

async function leave() {
  let ended;
  try {
    ended = await signOut();
  } catch (error) {
    return notify(errorText(error), "bad");
  }
  end();
  if (ended?.continue_at) return location.assign(ended.continue_at); // the provider ends its own session
  location.hash = "";
  render();
}

addEventListener("hashchange", () => {
  if (!session || location.hash === "#main") return;
  openView();
  document.getElementById("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("signed-out", () => {
  if (!session) return;
  end();
  drawSignIn("sign_in.ended");
});

listenToKeys(
  () => view,
  () => views?.documents && "#/documents",
);
applyTheme();
const [, stored] = await Promise.all([loadLanguage(preferredLanguage()), currentSession().catch(() => null)]);
signInReason = takeFailure();
let opened = stored;
if (!opened && !signInReason) ({ session: opened, reason: signInReason } = await signInAsNamed());
if (opened) {
  restoreView();
  await start(opened);
} else render();
