// Where is that document? A search over all of them.

import { swatch } from "./charts.js";
import { colourOf } from "./colours.js";
import { badge, choice, later, make, named, nothing, plate, redraw, show } from "./elements.js";
import { asking, get, why } from "./server.js";
import { dateTime, say } from "./texts.js";

export const STATES = ["ready", "delayed", "running", "done", "failed", "cancelled"];
const REFRESH_MS = 3000;

export const stateBadge = (state) => badge(state, say(`state.${state}`));

/** Documents as a table; with `whose` also their customers. */
export function documentsTable(documents, whose = true, to = "#/documents/") {
  if (!documents.length) return nothing(say("documents.none"));
  const columns = [
    "column.document",
    ...(whose ? ["column.customer"] : []),
    "column.state",
    "column.priority",
    "column.submitted",
  ];
  const row = (one) => [
    make(
      "a",
      { href: to + encodeURIComponent(one.id), class: "document" },
      one.name ? named(one.name) : make("code", {}, one.id.slice(-12)),
    ),
    ...(whose
      ? [
          make(
            "span",
            { class: "customer" },
            swatch(colourOf(one.customer)),
            make("a", { href: `#/customers/${encodeURIComponent(one.customer)}` }, named(one.customer)),
          ),
        ]
      : []),
    stateBadge(one.state),
    plate(one.priority),
    make("time", { datetime: new Date(one.submitted_at * 1000).toISOString() }, dateTime(one.submitted_at * 1000)),
  ];
  return make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": say("nav.documents") },
    make(
      "table",
      { class: "grid" },
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          columns.map((key) => make("th", { scope: "col" }, say(key))),
        ),
      ),
      make(
        "tbody",
        {},
        documents.map((one) =>
          make(
            "tr",
            {},
            row(one).map((cell, place) =>
              make(place ? "td" : "th", { "data-label": say(columns[place]), scope: place ? null : "row" }, cell),
            ),
          ),
        ),
      ),
    ),
  );
}

export function documentsView(place) {
  const given = new URLSearchParams(location.hash.split("?")[1] || "");
  const search = make("input", { type: "search", placeholder: say("documents.search"), "aria-label": say("documents.search") });
  const state = choice([["", say("filter.any_state")], ...STATES.map((one) => [one, say(`state.${one}`)])], "", {
    "aria-label": say("column.state"),
  });
  const customer = make("input", {
    type: "search",
    placeholder: say("documents.customer"),
    "aria-label": say("documents.customer"),
    value: given.get("customer") || "",
  });
  const listed = make("div"),
    told = make("p", { class: "soft", role: "status" });
  const more = make("button", { class: "quiet", hidden: true, onclick: () => load(next) }, say("act.more"));
  let found = [],
    next = null,
    calls = 0,
    timer;
  show(
    place,
    make("div", { class: "head" }, make("h1", {}, say("nav.documents")), make("p", { class: "soft" }, say("documents.lead"))),
    make("div", { class: "tools" }, search, state, customer, told),
    listed,
    make("p", { class: "center" }, more),
  );

  async function load(after, isRefresh) {
    const mine = ++calls;
    clearTimeout(timer);
    try {
      const asked = { search: search.value.trim(), state: state.value, customer: customer.value.trim(), limit: 50 };
      let page = await get(asking("/page/documents", { ...asked, after })),
        looked = page.searched;
      while (mine === calls && page.next && !page.documents.length) {
        show(listed);
        show(told, say("documents.searching", { count: looked })); // it looks at some thousands at a time
        page = await get(asking("/page/documents", { ...asked, after: page.next }));
        looked += page.searched;
      }
      if (mine !== calls) return;
      found = after ? [...found, ...page.documents] : page.documents;
      next = page.next;
      show(told, "");
      redraw(
        listed,
        found.length
          ? documentsTable(found)
          : nothing(
              say("documents.none"),
              say(search.value || state.value || customer.value ? "documents.none_found_more" : "documents.none_more"),
            ),
      );
      more.hidden = !next;
    } catch (error) {
      if (mine === calls && !isRefresh) show(told, why(error));
    }
    if (mine === calls && found.length <= 50 && !search.value) timer = setTimeout(() => load(undefined, true), REFRESH_MS);
  }
  const again = later(() => load());
  search.addEventListener("input", again);
  customer.addEventListener("input", again);
  state.addEventListener("change", () => load());
  load();
  return { close: () => (calls++, clearTimeout(timer)) };
}
