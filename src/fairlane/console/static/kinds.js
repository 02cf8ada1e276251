// The kinds of documents: how many run, what all workers together may do with each, and the form that changes it.

import { errorText, get, may, patch } from "./api.js";
import {
  badge, columnHeading, confirmAction, emptyState, field, heading, make, notify, scrollingTable, setChildren, tableRow,
  updateChildren, userName,
} from "./dom.js";
import { number, t, tParts } from "./i18n.js";

const COLUMNS = [
  "kinds.kind", "column.running", "kinds.running_max", "kinds.rate", "kinds.burst", "kinds.state", "kinds.action",
];
const HELD = { "kind running": "kinds.limited_running", "kind rate": "kinds.limited_rate" };
const REFRESH_MS = 3000;

const kindUrl = (kind) => `/v1/kinds/${encodeURIComponent(kind)}`;
const limit = (value) => (value == null ? "–" : number(value));

export class KindsView {
  constructor(container, session) {
    this.mayOperate = may(session, "operate");
    this.loads = 0;
    this.list = make("div", {}, make("p", { class: "muted" }, t("lanes.loading")));
    this.status = make("p", { class: "muted", role: "status" });
    setChildren(
      container,
      heading(t("nav.kinds"), t("kinds.lead")),
      make("div", { class: "tools" }, this.mayOperate && this.addForm(), this.status),
      this.list,
    );
    this.load();
  }

  close() {
    this.loads++;
    clearTimeout(this.timer);
  }

  /** The form that limits a kind which is not in the list yet. */
  addForm() {
    const name = make("input", { maxlength: "100", required: true, autocomplete: "off", spellcheck: "false" });
    name.setAttribute("aria-label", t("kinds.kind"));
    name.setAttribute("placeholder", t("kinds.kind"));
    const add = async (event) => {
      event.preventDefault();
      try {
        if (await this.change(await get(kindUrl(name.value)))) name.value = "";
      } catch (error) {
        notify(errorText(error), "bad");
      }
    };
    return make("form", { class: "row", onsubmit: add }, name, make("button", { class: "quiet" }, t("kinds.add")));
  }

  async load(isRefresh) {
    const load = ++this.loads;
    clearTimeout(this.timer);
    try {
      const kinds = await readKinds();
      if (load !== this.loads) return;
      setChildren(this.status);
      this.draw(kinds);
    } catch (error) {
      if (load === this.loads && !isRefresh) setChildren(this.status, errorText(error));
    }
    if (load === this.loads) this.timer = setTimeout(() => this.load(true), REFRESH_MS);
  }

  draw(kinds) {
    if (!kinds.length) return setChildren(this.list, emptyState(t("kinds.none"), t("kinds.none_more")));
    const columns = COLUMNS.filter((key) => this.mayOperate || key !== "kinds.action").map((key) => t(key));
    const rows = kinds.map((kind, index) => tableRow(this.cells(kind, index), columns));
    return updateChildren(this.list, scrollingTable(t("nav.kinds"), columns.map(columnHeading), rows));
  }

  cells(kind, index) {
    const ids = { name: `kind-${index}`, button: `limit-${index}` };
    const attributes = { class: "quiet", id: ids.button, "aria-labelledby": `${ids.button} ${ids.name}` };
    const button = make("button", { ...attributes, onclick: () => this.change(kind) }, t("kinds.change"));
    return [
      make("span", { id: ids.name }, userName(kind.kind)),
      number(kind.running),
      limit(kind.running_max),
      limit(kind.rate),
      kind.rate == null ? "–" : number(kind.burst),
      kind.held_by ? badge("paused", t(HELD[kind.held_by])) : "–",
      ...(this.mayOperate ? [button] : []),
    ];
  }

  /** Let an operator change the limit of a kind, as it was when it was read; resolves to true when it was changed. */
  async change(kind) {
    const input = (value, attributes) => make("input", { type: "number", value: value ?? "", ...attributes });
    const running = input(kind.running_max, { min: "1", max: "1000000", step: "1" }),
      rate = input(kind.rate, { min: "0.001", max: "1000000", step: "0.001" }),
      burst = input(kind.burst, { min: "1", max: "1000000", step: "0.001", required: true });
    const lines = [
      t("kinds.ask"),
      field(t("kinds.running_max"), running, t("kinds.running_max_hint")),
      field(t("kinds.rate"), rate, t("kinds.rate_hint")),
      field(t("kinds.burst"), burst, t("kinds.burst_hint")),
    ];
    if (!(await confirmAction(lines, t("act.save"), tParts("kinds.title", { kind: userName(kind.kind) })))) return false;
    const value = (field) => (field.value ? +field.value : null);
    const body = { running_max: value(running), rate: value(rate), burst: +burst.value, version: kind.version };
    try {
      await patch(kindUrl(kind.kind), body);
      notify(t("kinds.saved"));
    } catch (error) {
      notify(errorText(error), "bad");
    }
    this.load(true);
    return true;
  }
}

/** All kinds, page after page. */
async function readKinds() {
  const kinds = [];
  for (let address = "/v1/kinds?limit=200"; address; ) {
    const page = await get(address);
    kinds.push(...page.kinds);
    address = page.next;
  }
  return kinds;
}
