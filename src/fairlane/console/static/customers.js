// All customers in a table that can be sorted, searched and filtered.

import { errorText, get, withQuery } from "./api.js";
import { sparkline } from "./charts.js";
import { customerColour } from "./colours.js";
import {
  badge, customerLink, debounce, emptyState, heading, make, priorityBadge, select, setChildren, swatch, tableRow,
  updateChildren,
} from "./dom.js";
import { duration, hasText, number, t } from "./i18n.js";

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
const SORTABLE = COLUMNS.filter(([name]) => name !== "trend");
const REFRESH_MS = 3000,
  PAGE = 50,
  PAGE_MAX = 200; // rows that the server sends at once

/** A short column heading stays on one line. */
const unbroken = (text) => (text.length < 10 ? text.replaceAll(" ", "\u00a0") : text);

function cells(row) {
  const trend = row.trend || [];
  return [
    make(
      "span",
      { class: "customer" },
      swatch(customerColour(row.customer)),
      customerLink(row.customer),
      row.paused && badge("paused", t("word.paused")),
    ),
    number(row.counter),
    priorityBadge(row.next_priority),
    row.counter < 0 ? duration(row.resets_in ?? 0) : "–",
    number(row.waiting),
    number(row.running),
    number(row.done_today),
    number(row.failed_today),
    duration(row.wait_p50),
    duration(row.wait_p95),
    sparkline(trend, t("customers.trend", { count: trend.reduce((sum, count) => sum + count, 0) })),
  ];
}

export class CustomersView {
  constructor(container) {
    this.sort = "waiting";
    this.order = "desc";
    this.rows = [];
    this.next = null;
    this.loads = 0;
    this.isClosed = false;
    this.headings = make("tr");
    this.body = make("tbody");
    this.status = make("p", { class: "muted", role: "status" }, t("lanes.loading"));
    this.more = make("button", { class: "quiet", onclick: () => this.load(this.next) }, t("act.more"));
    this.search = make("input", {
      type: "search",
      placeholder: t("customers.search"),
      "aria-label": t("customers.search"),
      title: t("search.keys"),
      oninput: debounce(() => this.isClosed || this.load()),
    });
    this.filter = select(
      [
        ["", t("filter.all")],
        ["waiting", t("filter.waiting")],
        ["paused", t("filter.paused")],
        ["failing", t("filter.failing")],
      ],
      "",
      { "aria-label": t("filter.label"), onchange: () => this.load() },
    );
    this.sortSelect = select(
      SORTABLE.map(([name, key]) => [name, t("customers.sort", { column: t(key) })]),
      this.sort,
      {
        class: "on-phones",
        "aria-label": t("customers.sort", { column: "" }),
        onchange: () => this.sortBy(this.sortSelect.value),
      },
    );
    this.layOut(container);
    this.drawHeadings();
    this.load();
  }

  layOut(container) {
    const table = make("table", { class: "grid customers" }, make("thead", {}, this.headings), this.body);
    setChildren(
      container,
      heading(t("nav.customers"), t("customers.lead")),
      make("div", { class: "tools" }, this.search, this.filter, this.sortSelect, this.status),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("nav.customers") }, table),
      make("p", { class: "center" }, this.more),
    );
  }

  close() {
    this.isClosed = true;
    this.loads++;
    clearTimeout(this.timer);
  }

  drawHeadings() {
    setChildren(
      this.headings,
      COLUMNS.map(([name, key]) => {
        const isSorted = this.sort === name,
          isFalling = this.order === "desc";
        const hint = hasText(`${key}_hint`) ? t(`${key}_hint`) : null;
        if (name === "trend") return make("th", { scope: "col", title: hint }, make("span", { class: "sort" }, t(key)));
        return make(
          "th",
          { scope: "col", "aria-sort": isSorted ? (isFalling ? "descending" : "ascending") : null },
          make(
            "button",
            { class: "sort", title: hint, onclick: () => this.sortBy(name) },
            unbroken(t(key)),
            make("span", { "aria-hidden": "true" }, isSorted ? (isFalling ? "\u00a0↓" : "\u00a0↑") : ""),
          ),
        );
      }),
    );
  }

  sortBy(name) {
    if (this.sort === name) this.order = this.order === "desc" ? "asc" : "desc";
    else this.order = name === "customer" ? "asc" : "desc";
    this.sort = this.sortSelect.value = name;
    this.drawHeadings();
    [...this.headings.querySelectorAll("button")][SORTABLE.findIndex(([column]) => column === name)]?.focus();
    this.load();
  }

  async load(after, isRefresh) {
    const load = ++this.loads;
    clearTimeout(this.timer);
    try {
      const limit = isRefresh ? Math.min(PAGE_MAX, Math.max(PAGE, this.rows.length)) : PAGE;
      const filters = { sort: this.sort, order: this.order, search: this.search.value.trim(), filter: this.filter.value };
      const page = await get(withQuery("/page/customers", { ...filters, limit, after }));
      if (load !== this.loads) return;
      if (after) this.rows = [...this.rows, ...page.customers];
      else this.rows = [...page.customers, ...(isRefresh && page.next ? this.rowsBeyond(page.customers, limit) : [])];
      if (!isRefresh || this.rows.length <= limit) this.next = page.next;
      this.drawRows();
      setChildren(this.status, t("customers.total", { count: page.total }));
      this.more.hidden = !this.next;
    } catch (error) {
      if (load === this.loads && !isRefresh) setChildren(this.status, errorText(error));
    }
    if (load === this.loads) this.timer = setTimeout(() => this.load(undefined, true), REFRESH_MS);
  }

  /** The rows that a refresh does not reach; they stay as they were. */
  rowsBeyond(fresh, limit) {
    const names = new Set(fresh.map((row) => row.customer));
    return this.rows.filter((row) => !names.has(row.customer)).slice(0, Math.max(0, this.rows.length - limit));
  }

  drawRows() {
    const columns = COLUMNS.map(([, key]) => t(key));
    if (this.rows.length)
      return updateChildren(
        this.body,
        this.rows.map((row) => tableRow(cells(row), columns)),
      );
    const isFiltered = this.search.value || this.filter.value;
    const message = isFiltered
      ? emptyState(t("customers.none_found"), t("customers.none_found_more"))
      : emptyState(t("customers.none"), t("customers.none_more"));
    return setChildren(
      this.body,
      make("tr", {}, make("td", { colspan: COLUMNS.length, class: "whole" }, message)),
    );
  }
}
