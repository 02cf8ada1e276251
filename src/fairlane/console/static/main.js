// Who is looking, and at what? Sign-in, the frame around the views, and which view an address means.
//
// Laws:
// - A customer's page knows only the customer's views; what the server would not give is not asked for.
// - The stream of an operator is opened once and told to the view that is open; when it is lost, the page says so.

import { customerView } from "./customer.js";
import { customersView } from "./customers.js";
import { documentView } from "./document.js";
import { documentsView } from "./documents.js";
import { choice, field, make, named, show, tell } from "./elements.js";
import { howView } from "./how.js";
import { lanesView } from "./lanes.js";
import { mineView } from "./mine.js";
import { listen, session, signIn, signOut, why } from "./server.js";
import { LANGUAGES, language, say, speak, wanted } from "./texts.js";
import { waitsView } from "./waits.js";
import { whatIfView } from "./whatif.js";

const VIEWS = {
  operator: {
    lanes: lanesView,
    customers: customersView,
    documents: documentsView,
    waits: waitsView,
    "what-if": whatIfView,
    how: howView,
  },
  customer: { mine: mineView, how: howView },
};
const OPENED = { customers: customerView, documents: documentView, mine: documentView };
const NAMES = {
  lanes: "nav.lanes",
  customers: "nav.customers",
  documents: "nav.documents",
  waits: "nav.waits",
  "what-if": "nav.what_if",
  mine: "nav.mine",
  how: "nav.how",
};
const THEME = "fairlane.theme";
const FRAMES_SILENT_MS = 12_000,
  EVENTS_SILENT_MS = 40_000; // the server is heard of every 5 and every 15 seconds
const SHADES = ["system", "light", "dark"];
const page = document.getElementById("page");

let who = null; // the session
let view = null; // what is shown: {frame?, close?}
let last = null; // the last frame
let hush = null; // ends the stream
let isLive = true;

// -- light and dark ----------------------------------------------------------------------------------------------------

function theme(chosen) {
  try {
    if (chosen !== undefined) localStorage.setItem(THEME, chosen);
    chosen = localStorage.getItem(THEME);
  } catch {
    // not remembered
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
  return chosen || "system";
}

// -- the frame ---------------------------------------------------------------------------------------------------------

function switches() {
  const spoken = choice(Object.entries(LANGUAGES), language, {
    "aria-label": say("shell.language"),
    onchange: async (event) => {
      await speak(event.target.value, true);
      render();
    },
  });
  const shade = make("button", {
    class: "quiet shade",
    onclick: () => {
      theme(SHADES[(SHADES.indexOf(theme()) + 1) % SHADES.length]);
      name();
      dispatchEvent(new Event("theme"));
    },
  });
  const name = () => {
    const text = `${say("shell.theme")}: ${say(`shell.${theme()}`)}`;
    show(shade, { system: "◐", light: "☀", dark: "☾" }[theme()]);
    shade.setAttribute("aria-label", text);
    shade.title = text;
  };
  name();
  return make("div", { class: "switches" }, spoken, shade);
}

function shell() {
  const main = make("main", { id: "main", tabindex: "-1" });
  const names = Object.keys(VIEWS[who.role]);
  const links = names.map((name) => make("a", { href: `#/${name}`, "data-view": name }, say(NAMES[name])));
  const out = make("button", { class: "quiet", onclick: leave }, say("shell.sign_out"));
  const whose = who.customer ? named(who.customer) : say("shell.operator");
  show(
    page,
    make("a", { class: "skip", href: "#main", onclick: (event) => (event.preventDefault(), main.focus()) }, say("shell.skip")),
    make(
      "header",
      { class: "bar" },
      make(
        "a",
        { class: "brand", href: `#/${names[0]}` },
        make("img", { src: "/static/icon.svg", alt: "", width: 28, height: 28 }),
        make("span", {}, "Fairlane"),
      ),
      make("nav", { "aria-label": say("shell.views") }, links),
      make("div", { class: "who" }, make("span", { class: "whose" }, whose), switches(), out),
    ),
    make("div", { id: "lost", role: "alert" }),
    main,
  );
  tellLive();
  return main;
}

function tellLive() {
  const place = document.getElementById("lost");
  if (!place) return;
  show(place, isLive ? [] : [make("b", {}, say("shell.not_live")), " ", say("shell.not_live_more")]);
  document.documentElement.classList.toggle("stale", !isLive);
}

function signInForm(place, reason) {
  const key = make("input", {
    type: "password",
    autocomplete: "current-password",
    required: true,
    spellcheck: "false",
    placeholder: "fl_…",
    name: "key",
  });
  const wrong = make("p", { class: "wrong", role: "alert" }, reason || "");
  const button = make("button", { class: "main" }, say("sign_in.go"));
  const form = make(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        button.disabled = true;
        try {
          who = await signIn(key.value.trim());
          start();
          document.getElementById("main").focus();
        } catch (error) {
          show(wrong, error.status === 401 ? say("sign_in.wrong") : why(error));
          key.select();
        } finally {
          button.disabled = false;
        }
      },
    },
    field(say("sign_in.key"), key, say("sign_in.hint")),
    wrong,
    button,
  );
  show(
    place,
    make(
      "main",
      { class: "door" },
      make(
        "div",
        { class: "card" },
        make("p", { class: "brand" }, make("img", { src: "/static/icon.svg", alt: "", width: 40, height: 40 }), "Fairlane"),
        make("h1", {}, say("sign_in.title")),
        make("p", { class: "soft" }, say("sign_in.lead")),
        form,
      ),
      switches(),
    ),
  );
  key.focus();
}

// -- which view --------------------------------------------------------------------------------------------------------

function route() {
  const [, name, ...rest] = location.hash.split("?")[0].split("/");
  let id = rest.join("/");
  try {
    id = decodeURIComponent(id);
  } catch {
    id = ""; // an address that somebody typed
  }
  const views = VIEWS[who.role];
  return name in views ? { name, id } : { name: Object.keys(views)[0], id: "" };
}

function open() {
  const main = document.getElementById("main");
  const { name, id } = route();
  view?.close?.();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) {
      link.setAttribute("aria-current", "page");
    } else link.removeAttribute("aria-current");
  }
  document.title = `${say(NAMES[name])} · Fairlane`;
  main.className = `view-${name}`;
  const place = make("div", {});
  show(main, place);
  view = id && OPENED[name] ? OPENED[name](place, id, who) : VIEWS[who.role][name](place, who);
  if (last && view?.frame) view.frame(last);
}

function render() {
  if (!who) {
    document.title = `${say("sign_in.title")} · Fairlane`;
    return signInForm(page);
  }
  shell();
  open();
}

// -- beginning and end -------------------------------------------------------------------------------------------------

function start() {
  isLive = true;
  const state = (now) => {
    isLive = now;
    tellLive();
  };
  if (who.role === "operator") {
    hush = listen(
      "/page/frames",
      (told) => {
        last = told;
        view?.frame?.(told);
      },
      state,
      FRAMES_SILENT_MS,
    );
  } else {
    hush = listen("/v1/events", (told) => view?.event?.(told), state, EVENTS_SILENT_MS);
  }
  render();
}

function end() {
  hush?.();
  view?.close?.();
  who = view = last = hush = null;
}

async function leave() {
  try {
    await signOut();
  } catch (error) {
    return tell(why(error), "bad");
  }
  end();
  location.hash = "";
  render();
}

addEventListener("hashchange", () => {
  if (!who || location.hash === "#main") return;
  open();
  document.getElementById("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("signed-out", () => {
  if (!who) return;
  end();
  signInForm(page, say("sign_in.ended"));
});
addEventListener("theme", () => last && view?.frame?.(last));

theme();
const [, found] = await Promise.all([speak(wanted()), session().catch(() => null)]);
who = found;
if (who) start();
else render();
