// One customer: its counter over time, its documents, and what an operator can change.
//
// Laws:
// - Every control says what will happen and waits for confirmation before it acts.

import { customerUrl, errorText, get, may, patch, post, withQuery } from "./api.js";
import { counterChart } from "./charts.js";
import { customerColour } from "./colours.js";
import { documentsTable } from "./documents.js";
import {
  badge, confirmAction, emptyState, field, figure, make, notify, priorityBadge, section, setChildren, swatch, updateChildren,
  userName,
} from "./dom.js";
import { bytes, duration, number, t, tParts } from "./i18n.js";
import { keptFigures } from "./kept.js";
import { WebhookPanel, webhookSection } from "./webhook.js";

const REFRESH_MS = 3000,
  DOCUMENTS_SHOWN = 10,
  MEGABYTE = 1e6;

export class CustomerView {
  constructor(container, customer, session) {
    this.customer = customer;
    this.mayOperate = may(session, "operate");
    this.top = make("div", { class: "head" });
    this.figures = make("dl", { class: "figures" });
    this.chart = make("div");
    this.controls = make("div", { class: "controls" });
    this.documents = make("div");
    this.webhook = new WebhookPanel(session, { customer });
    this.isClosed = false;
    this.drawnChart = "";
    setChildren(
      container,
      make("p", {}, make("a", { href: "#/customers" }, `← ${t("nav.customers")}`)),
      this.top,
      this.figures,
      section(t("customer.counter_title"), make("p", { class: "muted" }, t("customer.counter_lead")), this.chart),
      section(t("nav.documents"), this.documents),
      section(t("customer.controls"), this.controls),
      webhookSection(this.webhook),
    );
    this.load();
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.webhook.close();
  }

  async load(redrawControls = false) {
    clearTimeout(this.timer);
    try {
      const [row, page] = await Promise.all([
        get(`/page/customers/${encodeURIComponent(this.customer)}`),
        get(withQuery("/page/documents", { customer: this.customer, limit: DOCUMENTS_SHOWN })),
      ]);
      if (this.isClosed) return;
      this.drawTop(row);
      this.drawChart(row);
      this.drawControls(row, redrawControls);
      this.drawDocuments(page.documents);
    } catch (error) {
      if (!this.isClosed && !this.drawnChart) setChildren(this.figures, emptyState(errorText(error)));
    }
    if (!this.isClosed) this.timer = setTimeout(() => this.load(), REFRESH_MS);
  }

  drawTop(row) {
    const recovery = () =>
      row.resets_in ? t("customer.resets_in", { time: duration(row.resets_in, "long") }) : t("customer.fresh");
    setChildren(
      this.top,
      make("h1", {}, swatch(customerColour(this.customer)), userName(this.customer)),
      row.paused && badge("paused", t("word.paused")),
      make(
        "p",
        { class: "muted" },
        tParts("customer.standing", { counter: number(row.counter), priority: priorityBadge(row.next_priority) }),
        " ",
        row.counter < 0 && recovery(),
      ),
    );
    setChildren(
      this.figures,
      figure(t("column.waiting"), number(row.waiting)),
      figure(t("column.running"), number(row.running)),
      figure(t("column.done_today"), number(row.done_today)),
      figure(t("column.failed_today"), number(row.failed_today)),
      figure(t("column.wait_p50"), duration(row.wait_p50), t("column.wait_p50_hint")),
      figure(t("column.wait_p95"), duration(row.wait_p95), t("column.wait_p95_hint")),
      ...keptFigures(row),
    );
  }

  drawChart({ steps, terms }) {
    const version = `${steps.length} ${steps.at(-1)?.at}`;
    if (version === this.drawnChart) return;
    this.drawnChart = version;
    if (!steps.length) return setChildren(this.chart, emptyState(t("customer.no_steps")));
    const resets = steps.filter((step) => step.is_reset).length;
    const summary = t("customer.chart", { count: steps.length, resets });
    setChildren(this.chart, counterChart(summary, steps, terms.thresholds));
  }

  drawDocuments(documents) {
    const href = `#/documents?customer=${encodeURIComponent(this.customer)}`;
    updateChildren(
      this.documents,
      documentsTable(documents, false),
      make("p", {}, make("a", { href }, t("customer.all_documents"))),
    );
  }

  // -- controls --------------------------------------------------------------------------------------------------------

  drawControls(row, isForced) {
    if (!this.mayOperate) return setChildren(this.controls, settings(row));
    const isEditing = document.activeElement?.tagName === "INPUT" && this.controls.contains(document.activeElement);
    if (isEditing && !isForced) return;
    updateChildren(
      this.controls,
      row.paused ? this.resumeControl() : this.pauseControl(row),
      this.weightControl(row),
      this.capControl(row),
      this.limitControl(row, "waiting_max"),
      this.limitControl(row, "documents_max"),
      this.limitControl(row, "bytes_max", MEGABYTE),
      this.limitControl(row, "retries_max"),
      this.costControl(row),
      this.resetControl(),
    );
  }

  pauseControl(row) {
    const pause = () => patch(customerUrl(this.customer), { paused: true });
    const question = () => this.question("customer.pause_ask", { count: row.waiting });
    return buttonControl("customer.not_paused", "customer.pause", "quiet", () =>
      this.act(question(), "customer.pause", pause, "customer.paused_done"),
    );
  }

  resumeControl() {
    const resume = () => patch(customerUrl(this.customer), { paused: false });
    return buttonControl("customer.paused_now", "customer.resume", "main", () =>
      this.act(this.question("customer.resume_ask"), "customer.resume", resume, "customer.resumed"),
    );
  }

  resetControl() {
    return buttonControl("customer.reset_hint", "customer.reset", "quiet", () => this.reset());
  }

  async reset() {
    const box = make("input", { type: "checkbox" });
    const choice = make("label", { class: "choice" }, box, t("customer.reset_backlog"));
    if (!(await confirmAction([this.question("customer.reset_ask"), choice], t("customer.reset")))) return;
    try {
      const count = await resetSteps(this.customer, box.checked);
      notify(box.checked ? t("customer.reset_backlog_done", { count }) : t("customer.reset_done"));
      this.load(true);
    } catch (error) {
      notify(errorText(error), "bad");
    }
  }

  weightControl(row) {
    const input = make("input", { type: "number", min: "0.01", max: "100", step: "0.01", value: row.weight, required: true });
    const save = () => patch(customerUrl(this.customer), { weight: +input.value });
    const question = () => this.question("customer.weight_ask", { value: number(+input.value) });
    return formControl(field(t("customer.weight"), input, t("customer.weight_hint")), () =>
      this.act(question(), "act.save", save, "customer.saved"),
    );
  }

  capControl(row) {
    const input = make("input", { type: "number", min: "1", max: "1000000", step: "1", value: row.cap ?? "" });
    const save = () => patch(customerUrl(this.customer), { cap: input.value ? +input.value : null });
    const question = () =>
      input.value ? this.question("customer.cap_ask", { count: +input.value }) : this.question("customer.no_cap_ask");
    return formControl(field(t("customer.cap"), input, t("customer.cap_hint")), () =>
      this.act(question(), "act.save", save, "customer.saved"),
    );
  }

  /** A limit of the customer's own; an empty field is everybody's limit. */
  limitControl(row, name, unit = 1) {
    const own = row.terms[name];
    const input = make("input", { type: "number", min: "0", step: "any", value: own == null ? "" : own / unit });
    const value = () => (input.value ? Math.round(+input.value * unit) : null);
    const save = () => patch(customerUrl(this.customer), { [name]: value() });
    const question = () =>
      value() == null
        ? this.question("customer.no_limit_ask")
        : this.question(`limit_ask.${name}`, { value: unit === MEGABYTE ? bytes(value()) : number(value()) });
    return formControl(field(t(`limit.${name}`), input, t("customer.limit_hint")), () =>
      this.act(question(), "act.save", save, "customer.saved"),
    );
  }

  costControl(row) {
    const value = row.terms.cost_min;
    const input = make("input", { type: "number", min: "0.001", max: "1", step: "0.001", value, required: true });
    const save = () => patch(customerUrl(this.customer), { cost_min: +input.value });
    const question = () => this.question("customer.cost_min_ask", { value: number(+input.value) });
    return formControl(field(t("customer.cost_min"), input, t("customer.cost_min_hint")), () =>
      this.act(question(), "act.save", save, "customer.saved"),
    );
  }

  question(key, values = {}) {
    return tParts(key, { customer: userName(this.customer), ...values });
  }

  async act(question, action, work, confirmation) {
    if (!(await confirmAction([question], t(action)))) return;
    try {
      await work();
      notify(t(confirmation));
      this.load(true);
    } catch (error) {
      notify(errorText(error), "bad");
    }
  }
}

/** Reset a customer and, with its backlog, check its waiting documents again step by step; returns how many changed. */
async function resetSteps(customer, withBacklog) {
  let changed = 0,
    cursor = null;
  do {
    const step = await post(`${customerUrl(customer)}/reset`, { with_backlog: withBacklog, cursor });
    changed += step.changed;
    cursor = step.next;
  } while (cursor);
  return changed;
}

/** The settings of a customer, for those who may see and not change them. */
const settings = (row) =>
  make(
    "dl",
    { class: "figures" },
    figure(t("customer.weight"), number(row.weight), t("customer.weight_hint")),
    figure(t("customer.cap"), row.cap == null ? "–" : number(row.cap)),
    figure(t("limit.waiting_max"), row.waiting_max == null ? "–" : number(row.waiting_max)),
    figure(t("limit.retries_max"), row.retries_max == null ? "–" : number(row.retries_max)),
    figure(t("customer.cost_min"), number(row.terms.cost_min), t("customer.cost_min_hint")),
  );

const buttonControl = (text, action, kind, onclick) =>
  make("div", { class: "control" }, make("p", {}, t(text)), make("button", { class: kind, onclick }, t(action)));

const formControl = (fields, onSave) =>
  make(
    "form",
    { class: "control", onsubmit: (event) => (event.preventDefault(), onSave()) },
    fields,
    make("button", { class: "quiet" }, t("act.save")),
  );
