// The search over all documents, and the table of documents that other views use too.

import { errorText, get, withQuery } from "./api.js";
import { customerColour } from "./colours.js";
import {
  badge, columnHeading, customerLink, debounce, documentName, emptyState, heading, make, priorityBadge, scrollingTable, select,
  setChildren, swatch, tableRow, updateChildren,
} from "./dom.js";
import { dateTime, t } from "./i18n.js";

const STATES = ["ready", "delayed", "running", "done", "failed", "cancelled"];
const REFRESH_MS = 3000,
  PAGE = 50;

export const stateBadge = (state) => badge(state, t(`state.${state}`));

/** A select box of document states. */
export const stateFilter = (onchange) =>
  select([["", t("filter.any_state")], ...STATES.map((state) => [state, t(`state.${state}`)])], "", {
    "aria-label": t("column.state"),
    onchange,
  });

/** Documents as a table, with a column of their customers or without. */
export function documentsTable(documents, hasCustomers = true) {
  if (!documents.length) return emptyState(t("documents.none"));
  const keys = ["column.document", "column.state", "column.priority", "column.submitted"];
  if (hasCustomers) keys.splice(1, 0, "column.customer");
  const columns = keys.map((key) => t(key));
  const rows = documents.map((item) => {
    const cells = [
      make("a", { href: `#/documents/${encodeURIComponent(item.id)}`, class: "document" }, documentName(item)),
      stateBadge(item.state),
      priorityBadge(item.priority),
      make("time", { datetime: new Date(item.submitted_at * 1000).toISOString() }, dateTime(item.submitted_at * 1000)),
    ];
    if (hasCustomers) {
      const { customer } = item;
      cells.splice(1, 0, make("span", { class: "customer" }, swatch(customerColour(customer)), customerLink(customer)));
    }
    return tableRow(cells, columns);
  });
  return scrollingTable(t("nav.documents"), columns.map(columnHeading), rows);
}

export class DocumentsView {
  constructor(container) {
    const parameters = new URLSearchParams(location.hash.split("?")[1] || "");
    const reload = debounce(() => this.load());
    const input = (label, value = "") =>
      make("input", { type: "search", placeholder: label, "aria-label": label, value, oninput: reload });
    this.search = input(t("documents.search"));
    this.customer = input(t("documents.customer"), parameters.get("customer") || "");
    this.state = stateFilter(() => this.load());
    this.list = make("div");
    this.status = make("p", { class: "muted", role: "status" });
    this.more = make("button", { class: "quiet", hidden: true, onclick: () => this.load(this.next) }, t("act.more"));
    this.documents = [];
    this.next = null;
    this.loads = 0;
    setChildren(
      container,
      heading(t("nav.documents"), t("documents.lead")),
      make("div", { class: "tools" }, this.search, this.state, this.customer, this.status),
      this.list,
      make("p", { class: "center" }, this.more),
    );
    this.load();
  }

  close() {
    this.loads++;
    clearTimeout(this.timer);
  }

  async load(after, isRefresh) {
    const load = ++this.loads;
    clearTimeout(this.timer);
    try {
      const page = await this.findPage(after, load);
      if (load !== this.loads) return;
      this.documents = after ? [...this.documents, ...page.documents] : page.documents;
      this.next = page.next;
      this.draw();
    } catch (error) {
      if (load === this.loads && !isRefresh) setChildren(this.status, errorText(error));
    }
    if (load === this.loads && this.documents.length <= PAGE && !this.search.value)
      this.timer = setTimeout(() => this.load(undefined, true), REFRESH_MS);
  }

  /** The next page that is not empty: one search reads a few thousand documents only, then says where to go on. */
  async findPage(after, load) {
    const filters = { search: this.search.value.trim(), state: this.state.value, customer: this.customer.value.trim() };
    let page = await get(withQuery("/page/documents", { ...filters, limit: PAGE, after })),
      searched = page.searched;
    while (load === this.loads && page.next && !page.documents.length) {
      setChildren(this.list);
      setChildren(this.status, t("documents.searching", { count: searched }));
      page = await get(withQuery("/page/documents", { ...filters, limit: PAGE, after: page.next }));
      searched += page.searched;
    }
    return page;
  }

  draw() {
    const isFiltered = this.search.value || this.state.value || this.customer.value;
    setChildren(this.status, "");
    updateChildren(
      this.list,
      this.documents.length
        ? documentsTable(this.documents)
        : emptyState(t("documents.none"), t(isFiltered ? "documents.none_found_more" : "documents.none_more")),
    );
    this.more.hidden = !this.next;
  }
}
