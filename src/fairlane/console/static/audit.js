// The audit log, for admins: every change of staff and every sign-in, newest first; searched, and downloaded as JSON lines.

import { errorText, get, withQuery } from "./api.js";
import { ACTIONS, actionText, changesCell, customerCell, groupText, whatCell, whoCell } from "./audit_entry.js";
import {
  columnHeading, emptyState, heading, make, scrollingTable, setChildren, tableRow, timestamp, updateChildren,
} from "./dom.js";
import { RememberedFilters } from "./filters.js";
import { t } from "./i18n.js";

const COLUMNS = ["audit.when", "audit.who", "audit.what", "column.customer", "audit.changes"];
const REFRESH_MS = 5000,
  PAGE = 50;

const option = (value, text, chosen) => make("option", { value, selected: value === chosen }, text);

/** The options of one group of actions: all of them, if there are several, and each. */
function actionGroup(group, names, chosen) {
  const label = groupText(group);
  const actions = names.map((name) => `${group}.${name}`);
  return make(
    "optgroup",
    { label },
    names.length > 1 && option(group, t("audit.any_of", { group: label }), chosen),
    actions.map((action) => option(action, actionText(action), chosen)),
  );
}

class AuditFilters extends RememberedFilters {
  constructor(onchange) {
    super("audit", onchange);
    this.addText("who", t("audit.who_filter"));
    this.addText("customer", t("documents.customer"));
    for (const name of ["since", "until"]) this.addDay(name);
    const chosen = this.remembered.get("what") || "";
    const groups = Object.entries(ACTIONS).map(([group, names]) => actionGroup(group, names, chosen));
    const attributes = { "aria-label": t("audit.what"), onchange: this.changed };
    this.fields.what = make("select", attributes, option("", t("audit.any_action"), chosen), groups);
  }

  draw(status, download) {
    const { who, what, customer } = this.fields;
    const days = [this.dated("since", t("audit.since")), this.dated("until", t("documents.until"))];
    return [
      make("div", { class: "tools" }, who, what, customer),
      make("div", { class: "tools" }, days, download, status),
    ];
  }
}

export class AuditView {
  constructor(container) {
    this.filters = new AuditFilters(() => this.load());
    this.list = make("div");
    this.status = make("p", { class: "muted", role: "status" }, t("lanes.loading"));
    this.download = make("a", { class: "button", download: "" }, t("audit.download"));
    this.more = make("button", { class: "quiet", hidden: true, onclick: () => this.load(this.next) }, t("act.more"));
    this.entries = [];
    this.loads = 0;
    setChildren(
      container,
      heading(t("nav.audit"), t("audit.lead")),
      this.filters.draw(this.status, this.download),
      this.list,
      make("p", { class: "center" }, this.more),
    );
    this.load();
  }

  close() {
    this.loads++;
    clearTimeout(this.timer);
  }

  /** Read the newest entries, or those at the address of the next page. */
  async load(next, isRefresh) {
    const load = ++this.loads;
    clearTimeout(this.timer);
    this.download.href = withQuery("/page/audit/export", this.filters.query);
    try {
      const page = await this.findPage(next, load);
      if (load !== this.loads) return;
      const isChanged = !isRefresh || JSON.stringify(page.entries) !== JSON.stringify(this.entries);
      this.entries = next ? [...this.entries, ...page.entries] : page.entries;
      this.next = page.next;
      if (isChanged) this.draw();
    } catch (error) {
      if (load === this.loads && !isRefresh) setChildren(this.status, errorText(error));
    }
    const isFiltered = Object.keys(this.filters.entered).length > 0;
    if (load === this.loads && this.entries.length <= PAGE && !isFiltered)
      this.timer = setTimeout(() => this.load(undefined, true), REFRESH_MS);
  }

  /** The next page that is not empty: one request examines a few thousand entries only, then says where to go on. */
  async findPage(next, load) {
    let page = await get(next ?? withQuery("/v1/audit", { ...this.filters.query, limit: PAGE }));
    while (load === this.loads && page.next && !page.entries.length) {
      setChildren(this.status, t("audit.searching"));
      page = await get(page.next);
    }
    return page;
  }

  draw() {
    const columns = COLUMNS.map((key) => t(key));
    const rows = this.entries.map((entry) =>
      tableRow([timestamp(entry.at), whoCell(entry.who), whatCell(entry), customerCell(entry), changesCell(entry)], columns),
    );
    setChildren(this.status);
    const table = () => scrollingTable(t("nav.audit"), columns.map(columnHeading), rows, "audit");
    updateChildren(this.list, rows.length ? table() : emptyState(t("audit.none"), t("audit.none_more")));
    this.more.hidden = !this.next;
  }
}
