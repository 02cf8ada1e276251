// Changes of every document that a search matches: counted, confirmed, then made step by step.

import { errorText, post } from "./api.js";
import { confirmAction, make, notify, setChildren, updateChildren } from "./dom.js";
import { number, t } from "./i18n.js";
import { choosePriority } from "./priority.js";

const WAITING = ["ready", "delayed"],
  UNENDED = [...WAITING, "running"];

/** Buttons that cancel, retry or prioritize every document that the filters match: counted, confirmed, changed in steps. */
export class BulkActions {
  constructor(filters, mayOperate, onchange) {
    this.filters = filters;
    this.mayOperate = mayOperate;
    this.onchange = onchange;
    this.isClosed = this.isRunning = false;
    this.buttons = make("span", { class: "row" });
    this.status = make("p", { class: "muted", role: "status" });
    this.row = make("div", { class: "tools" }, this.buttons, this.status);
  }

  draw() {
    if (this.isRunning) return;
    const { search, state, reason, ...others } = this.filters.entered;
    const isFiltered = !search && Boolean(state || reason || Object.keys(others).length);
    const button = (action) => make("button", { class: "quiet", onclick: () => this.run(action) }, t(`bulk.${action}_all`));
    updateChildren(
      this.buttons,
      isFiltered && !reason && (!state || UNENDED.includes(state)) && button("cancel"),
      isFiltered && (!state || state === "failed") && button("retry"),
      isFiltered && this.mayOperate && !reason && (!state || WAITING.includes(state)) && button("prioritize"),
    );
  }

  async run(action) {
    const filter = Object.fromEntries(Object.entries(this.filters.query).filter(([, value]) => value !== ""));
    const isPriority = action === "prioritize";
    const priority = isPriority ? await choosePriority(t("document.prioritize_ask"), t("document.prioritize")) : null;
    if (this.isClosed || (isPriority && priority === null)) return;
    const change = isPriority ? { priority, filter } : { action, filter };
    this.isRunning = true;
    setChildren(this.buttons);
    try {
      const counting = (count) => t("bulk.counting", { count });
      const counted = await this.walk({ ...change, dry_run: true }, null, "matched", counting);
      if (this.isClosed) return;
      const count = counted.sum;
      const question = t(`bulk.${action}_ask`, { count, priority });
      if (!count) notify(t("bulk.none"));
      else if (await confirmAction([question, t("bulk.ask_more")], t(`bulk.${action}_all`))) {
        const progress = (done) => t("bulk.progress", { done: number(done), count: number(count) });
        const changed = await this.walk(change, counted.start, "changed", progress);
        notify(t(`bulk.${action}_done`, { count: changed.sum }));
        if (changed.refused) notify(t("bulk.refused", { count: changed.refused }), "bad");
      }
    } catch (error) {
      notify(errorText(error), "bad");
    }
    this.isRunning = false;
    if (this.isClosed) return;
    setChildren(this.status);
    this.onchange();
  }

  /** Call step after step, until the last one or until the view is left; returns a figure's sum, refusals and the start. */
  async walk(body, cursor, figure, text) {
    let sum = 0,
      refused = 0,
      start = null;
    do {
      const step = await post(`/v1/documents/${body.action ? "bulk" : "prioritize"}`, { ...body, cursor });
      sum += step[figure];
      refused += step.refused;
      start ??= step.start;
      cursor = step.next;
      setChildren(this.status, text(sum));
    } while (cursor && !this.isClosed);
    return { sum, refused, start };
  }
}
