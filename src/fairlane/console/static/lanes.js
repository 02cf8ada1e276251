// The live view: nine lanes, a sentence that sums them up, figures, and the customers that are waiting.

import { customerColour } from "./colours.js";
import { customerLink, figure, heading, make, priorityBadge, section, setChildren, updateChildren, userName } from "./dom.js";
import { duration, number, t, tParts } from "./i18n.js";
import { LanesCanvas } from "./lanes_canvas.js";
import { UnservedWarnings } from "./workers.js";

const FLOOD_SHARE = 0.5,
  FLOOD_LEAST = 25,
  CUSTOMERS_SHOWN = 10,
  SHORT_WAIT_SECONDS = 60;

/** The class of a figure with the waits of small senders: good news while they are short. */
export const lightWaitClass = (seconds) => (seconds != null && seconds <= SHORT_WAIT_SECONDS ? "good" : "");

/** The customers of a frame, how many of their documents wait, and in which lanes; most documents first. */
function waitingCustomers(frame) {
  const customers = new Map();
  for (const lane of frame.lanes) {
    for (const { customer, ready } of lane.top) {
      if (!ready) continue;
      const entry = customers.get(customer) || { customer, ready: 0, lanes: Array(9).fill(0) };
      entry.ready += ready;
      entry.lanes[lane.priority - 1] += ready;
      customers.set(customer, entry);
    }
  }
  return [...customers.values()].sort((a, b) => b.ready - a.ready || (a.customer < b.customer ? -1 : 1));
}

/** The state of the queue in one or two sentences. */
function summary(frame) {
  const { ready, running, delayed } = frame.totals,
    biggest = waitingCustomers(frame)[0];
  if (frame.counted != null) return [tParts("lanes.counting", { count: frame.counted })];
  const delayedText = delayed ? [tParts("lanes.held", { count: delayed })] : [];
  const runningText = tParts("lanes.calm_running", { count: running });
  if (!ready && delayed) return running ? [...delayedText, runningText] : delayedText;
  if (!ready) return [running ? tParts("lanes.no_wait", { count: running }) : tParts("lanes.quiet")];
  if (biggest && biggest.ready >= FLOOD_LEAST && biggest.ready >= FLOOD_SHARE * ready) return floodSummary(biggest, frame);
  return [tParts("lanes.calm", { count: ready }), ...delayedText, runningText];
}

function floodSummary(biggest, frame) {
  const lane = biggest.lanes.indexOf(Math.max(...biggest.lanes)) + 1,
    lightWait = frame.waits.light_p50;
  const flood = tParts("lanes.flood", { customer: userName(biggest.customer), count: biggest.ready, lane });
  if (lane === 1) return [flood];
  if (lightWait == null) return [flood, tParts("lanes.pass")];
  return [flood, tParts("lanes.pass_within", { time: duration(lightWait, "long") })];
}

export class LanesView {
  constructor(container) {
    this.summary = make("p", { class: "story" }, t("lanes.loading"));
    this.warnings = new UnservedWarnings();
    this.figures = make("dl", { class: "figures" });
    this.tip = make("div", { class: "tip", hidden: true });
    this.rows = Array.from({ length: 9 }, (_, index) => new LaneRow(index + 1));
    this.scale = make("p", { class: "scale" });
    this.workers = make("p", { class: "workers" });
    this.legend = make("div", { class: "legend" });
    const canvas = make("canvas", { "aria-hidden": "true" });
    setChildren(
      container,
      heading(t("nav.lanes")),
      this.summary,
      this.warnings.container,
      this.lanesSection(canvas),
      this.figures,
      section(t("lanes.who"), this.legend),
    );
    this.drawing = new LanesCanvas(canvas, (count, hasOthers) => this.showScale(count, hasOthers));
    canvas.addEventListener("pointermove", (event) => this.showTip(event));
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
  }

  lanesSection(canvas) {
    const items = this.rows.map((row) => row.item);
    return make(
      "section",
      { class: "road", "aria-label": t("lanes.picture") },
      make(
        "div",
        { class: "captions" },
        make("span", {}, t("lanes.caption_waiting")),
        make("span", { class: "way" }, t("lanes.caption_way")),
        make("span", {}, t("lanes.caption_workers")),
      ),
      make("div", { class: "lanes" }, make("ol", {}, items), make("div", { class: "canvas" }, canvas, this.tip)),
      make("div", { class: "captions under" }, this.scale, this.workers),
    );
  }

  frame(frame) {
    // the biggest customers choose their colours first
    for (const entry of waitingCustomers(frame).slice(0, CUSTOMERS_SHOWN)) customerColour(entry.customer);
    this.drawing.show(frame);
    setChildren(
      this.summary,
      summary(frame).flatMap((sentence) => [sentence, " "]),
    );
    this.warnings.draw(frame.unserved);
    frame.lanes.forEach((lane, index) => this.rows[index].update(lane));
    setChildren(this.workers, workersCaption(frame));
    setChildren(this.figures, figures(frame));
    updateChildren(this.legend, legend(frame));
  }

  close() {
    this.drawing.close();
  }

  showScale(documentsPerBlock, hasOthers) {
    setChildren(
      this.scale,
      documentsPerBlock > 1 ? t("lanes.scale_many", { count: documentsPerBlock }) : t("lanes.scale_one"),
      hasOthers ? ` · ${t("lanes.grey")}` : "",
    );
  }

  showTip(event) {
    const tip = this.tip,
      box = event.target.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const item = this.drawing.itemAt(x, y);
    tip.hidden = !item;
    if (!item) return;
    const name = item.customer === null ? t("lanes.others", { count: item.customers }) : userName(item.customer);
    const text = item.isRunning
      ? t("lanes.tip_running", { priority: item.priority })
      : t("lanes.tip", { count: item.ready, priority: item.priority });
    setChildren(tip, make("b", {}, name), make("span", {}, text));
    tip.style.left = `${Math.min(Math.max(0, x - 20), box.width - tip.offsetWidth)}px`;
    tip.style.top = `${y + 16 + tip.offsetHeight > box.height ? y - tip.offsetHeight - 8 : y + 16}px`;
  }
}

/** The count beside a lane, with more of it for screen readers. */
class LaneRow {
  constructor(priority) {
    this.count = make("b", {}, "–");
    this.details = make("span", { class: "visually-hidden" });
    const hint = priority === 1 ? t("lanes.first") : priority === 9 ? t("lanes.last") : null;
    const count = make("span", { class: "count" }, this.count, hint && make("small", {}, hint));
    this.item = make("li", {}, priorityBadge(priority), count, this.details);
  }

  update(lane) {
    setChildren(this.count, number(lane.ready));
    this.item.classList.toggle("empty", !lane.ready);
    const biggest = lane.top.slice(0, 3).filter((entry) => entry.ready);
    setChildren(
      this.details,
      t("state.ready"),
      ". ",
      biggest.map((entry) => [userName(entry.customer), ` ${number(entry.ready)}, `]),
      lane.oldest_wait == null ? "" : t("lanes.longest", { time: duration(lane.oldest_wait, "long") }),
    );
  }
}

function workersCaption(frame) {
  if (frame.counted != null) return "";
  const more = frame.running_total - frame.running.length;
  return more > 0 ? t("lanes.running_more", { count: more }) : t("lanes.running", { count: frame.running_total });
}

function figures(frame) {
  const { totals, waits, rate } = frame,
    known = (value) => number(frame.counted == null ? value : null); // not known while the queue is being counted
  return [
    figure(t("figure.waiting"), number(totals.ready + totals.delayed), t("figure.waiting_hint")),
    figure(t("figure.running"), known(totals.running), t("figure.running_hint")),
    figure(t("figure.light"), duration(waits.light_p95), t("figure.light_hint"), lightWaitClass(waits.light_p95)),
    figure(t("figure.heavy"), duration(waits.heavy_p95), t("figure.heavy_hint")),
    figure(t("figure.done_minute"), known(rate.done_last_minute), t("figure.done_minute_hint")),
    figure(t("figure.done"), known(totals.done_today), t("figure.today_hint")),
    figure(t("figure.failed"), known(totals.failed_today), t("figure.today_hint"), totals.failed_today ? "bad" : ""),
    figure(t("figure.starved"), known(frame.starved), t("figure.starved_hint"), frame.starved ? "bad" : ""),
  ];
}

function legend(frame) {
  const customers = waitingCustomers(frame);
  if (!customers.length) return make("p", { class: "muted" }, frame.totals.delayed ? "" : t("lanes.nobody"));
  const items = customers.slice(0, CUSTOMERS_SHOWN).map((entry) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = `${Math.max(1, (100 * entry.ready) / customers[0].ready)}%`;
    bar.style.background = customerColour(entry.customer);
    const lanes = entry.lanes.flatMap((count, index) => (count ? [priorityBadge(index + 1)] : []));
    return make(
      "li",
      {},
      customerLink(entry.customer),
      make("span", { class: "priorities" }, lanes),
      make("span", { class: "track" }, bar),
      make("b", {}, number(entry.ready)),
    );
  });
  const hasMore = customers.length > CUSTOMERS_SHOWN || frame.lanes.some((lane) => lane.others.ready);
  return [
    make("ul", { class: "who" }, items),
    hasMore && make("p", { class: "muted" }, make("a", { href: "#/customers" }, t("lanes.all_customers"))),
  ];
}
