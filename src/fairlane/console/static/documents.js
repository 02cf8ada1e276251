// The search over all documents, and the table of documents that other views use too.

import { errorText, get, may, withQuery } from "./api.js";
import { BulkActions } from "./bulk.js";
import { customerColour } from "./colours.js";
import {
  STATES, badge, batchLink, columnHeading, customerLink, documentName, emptyState, heading, make, priorityBadge,
  scrollingTable, select, setChildren, swatch, tableRow, updateChildren,
} from "./dom.js";
import { RememberedFilters } from "./filters.js";
import { dateTime, t } from "./i18n.js";

const REFRESH_MS = 3000,
  PAGE = 50;
const ROOMY = matchMedia("(min-width: 641px)"); // with room for all filters, unlike a phone

export const stateBadge = (state) => badge(state, t(`state.${state}`));

/** A select box of document states. */
export const stateFilter = (onchange, chosen = "") =>
  select([["", t("filter.any_state")], ...STATES.map((state) => [state, t(`state.${state}`)])], chosen, {
    "aria-label": t("column.state"),
    onchange,
  });

/** Documents as a table, with a column of their customers or without; they are opened in a view. */
export function documentsTable(documents, hasCustomers = true, view = "documents") {
  if (!documents.length) return emptyState(t("documents.none"));
  const keys = ["column.document", "column.state", "column.priority", "column.submitted"];
  if (hasCustomers) keys.splice(1, 0, "column.customer");
  const columns = keys.map((key) => t(key));
  const rows = documents.map((item) => {
    const cells = [
      make("a", { href: `#/${view}/${encodeURIComponent(item.id)}`, class: "document" }, documentName(item)),
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

/** What stands in a list of documents when the search was for a batch. */
const foundBatch = (batch) =>
  make("p", { class: "card" }, batchLink(batch), " · ", customerLink(batch.customer), " · ", dateTime(batch.made_at * 1000));

/** What documents are searched by. */
class DocumentFilters extends RememberedFilters {
  constructor(onchange) {
    super("documents", onchange);
    for (const name of ["search", "customer", "kind", "reason"]) this.addText(name, t(`documents.${name}`));
    for (const name of ["since", "until"]) this.addDay(name);
    this.fields.search.title = t("search.keys");
    this.fields.state = stateFilter(this.changed, this.remembered.get("state") || "");
  }

  draw(status) {
    const { search, state, customer, kind, reason } = this.fields;
    const [since, until] = ["since", "until"].map((name) => this.dated(name, t(`documents.${name}`)));
    const isOpen = ROOMY.matches || ["kind", "reason", "since", "until"].some((name) => this.fields[name].value);
    return [
      make("div", { class: "tools" }, search, state, customer, status),
      make(
        "details",
        { class: "more", open: isOpen },
        make("summary", {}, t("filter.more")),
        make("div", { class: "tools" }, kind, reason, since, until),
      ),
    ];
  }
}

export class DocumentsView {
  constructor(container, session) {
    this.filters = new DocumentFilters(() => this.load());
    this.bulk = new BulkActions(this.filters, may(session, "operate"), () => this.load());
    this.mayManage = may(session, "manage");
    this.list = make("div");
    this.status = make("p", { class: "muted", role: "status" });
    this.more = make("button", { class: "quiet", hidden: true, onclick: () => this.load(this.next) }, t("act.more"));
    this.documents = [];
    this.next = null;
    this.loads = 0;
    setChildren(
      container,
      heading(t("nav.documents"), t("documents.lead")),
      this.filters.draw(this.status),
      this.mayManage && this.bulk.row,
      this.list,
      make("p", { class: "center" }, this.more),
    );
    this.load();
  }

  close() {
    this.bulk.isClosed = true;
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
      if (!after) this.batch = page.batch;
      this.draw();
    } catch (error) {
      if (load === this.loads && !isRefresh) setChildren(this.status, errorText(error));
    }
    if (load === this.loads && this.documents.length <= PAGE && !this.filters.entered.search)
      this.timer = setTimeout(() => this.load(undefined, true), REFRESH_MS);
  }

  /** The next page that is not empty: one search reads a few thousand documents only, then says where to go on. */
  async findPage(after, load) {
    const filters = this.filters.query;
    let page = await get(withQuery("/page/documents", { ...filters, limit: PAGE, after }));
    while (load === this.loads && page.next && !page.documents.length && !page.batch) {
      setChildren(this.list);
      if (page.reached) setChildren(this.status, t("documents.searching", { date: dateTime(page.reached) }));
      page = await get(withQuery("/page/documents", { ...filters, limit: PAGE, after: page.next }));
    }
    return page;
  }

  draw() {
    const isFiltered = Object.keys(this.filters.entered).length > 0;
    setChildren(this.status, "");
    const nothing = emptyState(t("documents.none"), t(isFiltered ? "documents.none_found_more" : "documents.none_more"));
    updateChildren(
      this.list,
      this.batch && foundBatch(this.batch),
      this.documents.length ? documentsTable(this.documents) : !this.batch && nothing,
    );
    this.more.hidden = !this.next;
    if (this.mayManage) this.bulk.draw();
  }
}
