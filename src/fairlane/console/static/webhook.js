// A customer's webhook: its address and secret, how the calls go, and deliveries, which can be sent again.
//
// Laws:
// - A secret is shown once, right after it was made, and never again.
// - What stops calls or makes receivers reject them waits for confirmation.

import { errorText, get, may, post, put, remove, withQuery } from "./api.js";
import { secretBox } from "./copy_box.js";
import {
  columnHeading, confirmAction, emptyState, field, figure, heading, make, notify, scrollingTable, section, select, setChildren,
  tableRow, updateChildren,
} from "./dom.js";
import { dateTime, number, t } from "./i18n.js";

const REFRESH_MS = 5000;
const URL_BASE = "/v1/webhook";
const OVERLAPS = { 86400: "webhook.overlap_day", 604800: "webhook.overlap_week", 0: "webhook.overlap_none" };
const STATES = { pending: "webhook.pending", failed: "webhook.failed", delivered: "webhook.delivered" };

const when = (seconds) => (seconds == null ? "–" : make("time", {}, dateTime(seconds * 1000)));

/** The webhook of one customer; `query` names the customer for staff and is empty for customers. */
export class WebhookPanel {
  constructor(session, query = {}) {
    this.query = query;
    this.mayManage = may(session, "manage");
    this.form = make("div", { class: "controls" });
    this.secret = make("div");
    this.figures = make("dl", { class: "figures" });
    this.list = make("div");
    this.state = select(
      Object.entries(STATES).map(([state, key]) => [state, t(key)]),
      "pending",
      { "aria-label": t("webhook.deliveries"), onchange: () => this.load() },
    );
    this.deliveries = make(
      "div",
      { class: "stack", hidden: true },
      this.figures,
      make("div", { class: "tools" }, make("h2", {}, t("webhook.deliveries")), this.state),
      this.list,
    );
    this.drawn = null;
    this.loads = 0;
    this.element = make("div", { class: "stack" }, this.secret, this.form, this.deliveries);
    this.load();
  }

  close() {
    this.loads++;
    clearTimeout(this.timer);
  }

  url(path = "", parameters = {}) {
    return withQuery(URL_BASE + path, { ...this.query, ...parameters });
  }

  async load() {
    const load = ++this.loads;
    clearTimeout(this.timer);
    try {
      const webhook = await this.read();
      const page = webhook && (await get(this.url("/deliveries", { state: this.state.value })));
      if (load !== this.loads) return;
      this.drawForm(webhook);
      this.deliveries.hidden = !webhook;
      if (webhook) this.drawDeliveries(webhook, page.deliveries);
    } catch (error) {
      if (load === this.loads && !this.drawn) setChildren(this.form, emptyState(errorText(error)));
    }
    if (load === this.loads) this.timer = setTimeout(() => this.load(), REFRESH_MS);
  }

  /** The webhook as it is, or null. */
  async read() {
    try {
      return await get(this.url());
    } catch (error) {
      if (error.status === 404) return null;
      throw error;
    }
  }

  // -- settings --------------------------------------------------------------------------------------------------------

  /** Draw the settings, unless they are as they were drawn: somebody may be typing. */
  drawForm(webhook) {
    const drawn = JSON.stringify(webhook && [webhook.url, webhook.secrets]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    if (!this.mayManage) return setChildren(this.form, figure(t("webhook.url"), make("bdi", {}, webhook?.url ?? "–")));
    const others = webhook ? [this.rotationControl(webhook), this.removeControl()] : [];
    updateChildren(this.form, this.addressControl(webhook), others);
  }

  addressControl(webhook) {
    const input = make("input", {
      type: "url",
      required: true,
      maxlength: "2000",
      placeholder: "https://",
      value: webhook ? webhook.url : "",
    });
    const save = (event) => {
      event.preventDefault();
      this.change(() => put(this.url(), { url: input.value.trim() }), "webhook.saved");
    };
    return make(
      "form",
      { class: "control", onsubmit: save },
      field(t("webhook.url"), input, t("webhook.url_hint")),
      make("button", { class: webhook ? "quiet" : "main" }, t("act.save")),
    );
  }

  rotationControl(webhook) {
    const old = webhook.secrets[1];
    if (old) {
      const end = () => this.ask("webhook.end_overlap_ask", "webhook.end_overlap", () => remove(this.url("/old-secret")));
      const text = t("webhook.overlapping", { time: dateTime(old.expires_at * 1000) });
      return make(
        "div",
        { class: "control" },
        make("p", {}, text),
        make("button", { class: "quiet", onclick: end }, t("webhook.end_overlap")),
      );
    }
    const overlap = select(
      Object.entries(OVERLAPS).map(([seconds, key]) => [seconds, t(key)]),
      "86400",
    );
    const rotate = () =>
      this.ask("webhook.rotate_ask", "webhook.rotate", () => post(this.url("/rotate"), { overlap: +overlap.value }));
    return make(
      "div",
      { class: "control" },
      field(t("webhook.overlap"), overlap, t("webhook.overlap_hint")),
      make("button", { class: "quiet", onclick: rotate }, t("webhook.rotate")),
    );
  }

  removeControl() {
    const end = () => this.ask("webhook.remove_ask", "webhook.remove", () => remove(this.url()));
    return make(
      "div",
      { class: "control" },
      make("p", {}, t("webhook.remove_hint")),
      make("button", { class: "quiet", onclick: end }, t("webhook.remove")),
    );
  }

  async ask(question, action, work) {
    if (await confirmAction([t(question)], t(action))) await this.change(work, "webhook.saved");
  }

  /** Change something, show the secret if the change made one, and draw what is there now. */
  async change(work, confirmation) {
    try {
      const changed = await work();
      notify(t(confirmation));
      setChildren(this.secret, changed?.secret && secretBox([t("webhook.secret_once")], changed.secret));
      this.load();
    } catch (error) {
      notify(errorText(error), "bad");
    }
  }

  // -- deliveries ------------------------------------------------------------------------------------------------------

  drawDeliveries(webhook, deliveries) {
    const failure = webhook.failures ? webhook.failure : "–";
    setChildren(
      this.figures,
      figure(t("webhook.pending"), number(webhook.pending)),
      figure(t("webhook.failed"), number(webhook.failed)),
      figure(t("webhook.delivered_at"), when(webhook.delivered_at)),
      figure(t("webhook.failure"), make("bdi", {}, failure), t("webhook.failure_hint")),
    );
    updateChildren(this.list, deliveries.length ? this.table(deliveries) : emptyState(t("webhook.none")));
  }

  table(deliveries) {
    const keys = ["event", "subject", "attempts", "outcome", "tried", ...(this.mayManage ? ["again"] : [])];
    const names = keys.map((key) => t(`webhook.${key}`));
    const rows = deliveries.map((delivery) =>
      tableRow(
        [
          make("code", {}, delivery.type),
          make("code", { title: delivery.document || delivery.batch }, (delivery.document || delivery.batch).slice(-12)),
          number(delivery.attempts),
          make("bdi", {}, delivery.outcome || "–"),
          when(delivery.tried_at),
          ...(this.mayManage ? [this.sendAgainButton(delivery.id)] : []),
        ],
        names,
      ),
    );
    return scrollingTable(t("webhook.deliveries"), names.map(columnHeading), rows);
  }

  sendAgainButton(id) {
    return make("button", { class: "quiet", onclick: () => this.sendAgain(id) }, t("webhook.again"));
  }

  sendAgain(id) {
    return this.change(() => post(this.url(`/deliveries/${encodeURIComponent(id)}/send`)), "webhook.sent_again");
  }
}

/** The view of a customer's own webhook. */
export class WebhookView {
  constructor(container, session) {
    this.panel = new WebhookPanel(session);
    setChildren(container, heading(t("nav.webhook"), t("webhook.lead")), this.panel.element);
  }

  close() {
    this.panel.close();
  }
}

/** The section of the page of one customer. */
export const webhookSection = (panel) =>
  section(t("nav.webhook"), make("p", { class: "muted" }, t("webhook.lead")), panel.element);
