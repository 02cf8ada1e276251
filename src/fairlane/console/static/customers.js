// Where do all customers stand? A table that can be sorted, searched and filtered.

import { swatch, trend } from "./charts.js";
import { colourOf } from "./colours.js";
import { badge, choice, later, make, named, nothing, plate, redraw, show } from "./elements.js";
import { asking, get, why } from "./server.js";
import { duration, has, number, say } from "./texts.js";

const COLUMNS = [
  ["customer", "column.customer"],
  ["counter", "column.counter"],
  ["next_priority", "column.next_priority"],
  ["resets_in", "column.resets_in"],
  ["waiting", "column.waiting"],
  ["running", "column.running"],
  ["done_today", "column.done_today"],
  ["failed_today", "column.failed_today"],
  ["wait_p50", "column.wait_p50"],
  ["wait_p95", "column.wait_p95"],
  ["trend", "column.trend"],
];
const REFRESH_MS = 3000,
  LIMIT_MAX = 200; // rows that the server gives at once

/** A short heading stays on one line. */
const whole = (text) => (text.length < 10 ? text.replaceAll(" ", "\u00a0") : text);

/** A customer as a link, with its colour and whether it is paused. */
export function customerLink(row) {
  return make(
    "span",
    { class: "customer" },
    swatch(colourOf(row.customer)),
    make("a", { href: `#/customers/${encodeURIComponent(row.customer)}` }, named(row.customer)),
    row.paused && badge("paused", say("word.paused")),
  );
}

function cells(row) {
  return [
    customerLink(row),
    number(row.counter),
    plate(row.next_priority),
    row.counter < 0 ? duration(row.resets_in) : "–",
    number(row.waiting),
    number(row.running),
    number(row.done_today),
    number(row.failed_today),
    duration(row.wait_p50),
    duration(row.wait_p95),
    trend(row.trend || [], say("customers.trend", { count: (row.trend || []).reduce((sum, one) => sum + one, 0) })),
  ];
}

export function customersView(place) {
  const asked = { sort: "waiting", order: "desc", search: "", filter: "", limit: 50 };
  let rows = [],
    next = null,
    total = 0,
    calls = 0,
    timer;
  const body = make("tbody"),
    heads = make("tr"),
    told = make("p", { class: "soft", role: "status" }, say("lanes.loading"));
  const more = make("button", { class: "quiet", onclick: () => load(next) }, say("act.more"));
  const table = make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": say("nav.customers") },
    make("table", { class: "grid" }, make("thead", {}, heads), body),
  );
  const search = make("input", {
    type: "search",
    placeholder: say("customers.search"),
    "aria-label": say("customers.search"),
    oninput: later(() => {
      asked.search = search.value.trim();
      load();
    }),
  });
  const filter = choice(
    [
      ["", say("filter.all")],
      ["waiting", say("filter.waiting")],
      ["paused", say("filter.paused")],
      ["failing", say("filter.failing")],
    ],
    "",
    {
      "aria-label": say("filter.label"),
      onchange: () => {
        asked.filter = filter.value;
        load();
      },
    },
  );
  const order = choice(
    COLUMNS.filter(([name]) => name !== "trend").map(([name, key]) => [name, say("customers.sort", { column: say(key) })]),
    asked.sort,
    { class: "on-phones", "aria-label": say("customers.sort", { column: "" }), onchange: () => sort(order.value) },
  );
  show(
    place,
    make("div", { class: "head" }, make("h1", {}, say("nav.customers")), make("p", { class: "soft" }, say("customers.lead"))),
    make("div", { class: "tools" }, search, filter, order, told),
    table,
    make("p", { class: "center" }, more),
  );

  function drawHeads() {
    show(
      heads,
      COLUMNS.map(([name, key]) => {
        const sorted = asked.sort === name;
        const hint = has(`${key}_hint`) ? say(`${key}_hint`) : null;
        if (name === "trend") return make("th", { scope: "col", title: hint }, say(key));
        return make(
          "th",
          { scope: "col", "aria-sort": sorted ? (asked.order === "desc" ? "descending" : "ascending") : null },
          make(
            "button",
            { class: "sort", title: hint, onclick: () => sort(name) },
            whole(say(key)),
            make("span", { "aria-hidden": "true" }, sorted ? (asked.order === "desc" ? "\u00a0↓" : "\u00a0↑") : ""),
          ),
        );
      }),
    );
  }
  function sort(name) {
    asked.order = asked.sort === name ? (asked.order === "desc" ? "asc" : "desc") : name === "customer" ? "asc" : "desc";
    asked.sort = order.value = name;
    drawHeads();
    [...heads.querySelectorAll("button")][COLUMNS.findIndex(([one]) => one === name)]?.focus();
    load();
  }
  function drawRows() {
    redraw(
      body,
      rows.map((row) =>
        make(
          "tr",
          {},
          cells(row).map((cell, place) =>
            make(place ? "td" : "th", { "data-label": say(COLUMNS[place][1]), scope: place ? null : "row" }, cell),
          ),
        ),
      ),
    );
    if (!rows.length) {
      const searched = asked.search || asked.filter;
      show(
        body,
        make(
          "tr",
          {},
          make(
            "td",
            { colspan: COLUMNS.length, class: "whole" },
            nothing(
              say(searched ? "customers.none_found" : "customers.none"),
              say(searched ? "customers.none_found_more" : "customers.none_more"),
            ),
          ),
        ),
      );
    }
    show(told, say("customers.total", { count: total }));
    more.hidden = !next;
  }
  async function load(after, isRefresh) {
    const mine = ++calls;
    clearTimeout(timer);
    try {
      const limit = isRefresh ? Math.min(LIMIT_MAX, Math.max(asked.limit, rows.length)) : asked.limit;
      const page = await get(asking("/page/customers", { ...asked, limit, after }));
      if (mine !== calls) return;
      const fresh = new Set(page.customers.map((one) => one.customer));
      const others = rows.filter((one) => !fresh.has(one.customer));
      const behind = isRefresh && page.next ? others.slice(0, Math.max(0, rows.length - limit)) : [];
      const kept = after ? rows : behind; // a refresh reaches so far; who is behind that stays as it was
      rows = after ? [...kept, ...page.customers] : [...page.customers, ...kept];
      if (!isRefresh || rows.length <= limit) next = page.next;
      total = page.total;
      drawRows();
    } catch (error) {
      if (mine === calls && !isRefresh) show(told, why(error));
    }
    if (mine === calls) timer = setTimeout(() => load(undefined, true), REFRESH_MS);
  }
  drawHeads();
  load();
  return { close: () => (calls++, clearTimeout(timer)) };
}
