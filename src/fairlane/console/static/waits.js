// Charts of the last hours: waits of small and big senders, waits by priority, throughput, failures and starved documents.

import { errorText, get, withQuery } from "./api.js";
import { barChart, lineChart } from "./charts.js";
import { OTHERS, PRIORITIES } from "./colours.js";
import { emptyState, figure, heading, make, select, setChildren } from "./dom.js";
import { duration, hasText, number, t } from "./i18n.js";
import { lightWaitClass } from "./lanes.js";

const REFRESH_MS = 15_000,
  POINTS_LEAST = 12;
const FAILURES = ["#c8463c", "#d77a2b", "#7d62c9", "#2f7ed8", "#2aa3b5", "#b8962e", "#5d8f2f", "#c257b5", OTHERS];

const max = (values) => Math.max(0, ...values.filter((value) => value != null));
const sum = (values) => values.reduce((total, value) => total + (value || 0), 0);
const hasValues = (line) => line.values.some((value) => value != null);

/** A history without the time before anything happened. */
function trimmed(history) {
  const all = Object.values(history.series).flatMap((series) => (Array.isArray(series) ? [series] : Object.values(series)));
  const points = all[0]?.length ?? 0;
  const firsts = all.map((values) => values.findIndex((value) => value)).filter((index) => index >= 0);
  const first = Math.max(0, Math.min(...firsts, points) - 1),
    start = Math.max(0, Math.min(first, points - POINTS_LEAST));
  const cut = (series) =>
    Array.isArray(series)
      ? series.slice(start)
      : Object.fromEntries(Object.entries(series).map(([name, values]) => [name, values.slice(start)]));
  return {
    from: history.from + start * history.step_seconds * 1000,
    step: history.step_seconds,
    series: Object.fromEntries(Object.entries(history.series).map(([name, series]) => [name, cut(series)])),
  };
}

export class WaitsView {
  constructor(container) {
    this.figures = make("dl", { class: "figures" });
    this.charts = make("div", { class: "charts" }, make("p", { class: "muted" }, t("lanes.loading")));
    this.minutes = select(
      [
        ["60", t("waits.hour")],
        ["360", t("waits.six_hours")],
        ["1440", t("waits.day")],
      ],
      "60",
      { "aria-label": t("waits.span"), onchange: () => this.load() },
    );
    this.percentile = select(
      [
        ["wait_p95", t("waits.long")],
        ["wait_p50", t("waits.typical")],
      ],
      "wait_p95",
      { "aria-label": t("waits.which"), onchange: () => this.history && this.draw() },
    );
    this.history = null;
    this.isClosed = false;
    setChildren(
      container,
      heading(t("nav.waits"), t("waits.lead")),
      make("div", { class: "tools" }, this.minutes, this.percentile),
      this.figures,
      this.charts,
    );
    this.load();
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
  }

  frame({ counted, waits, rate, totals, starved }) {
    if (counted != null) return;
    setChildren(
      this.figures,
      figure(t("figure.light"), duration(waits.light_p95), t("figure.light_hint"), lightWaitClass(waits.light_p95)),
      figure(t("figure.heavy"), duration(waits.heavy_p95), t("figure.heavy_hint")),
      figure(t("figure.done_minute"), number(rate.done_last_minute), t("figure.done_minute_hint")),
      figure(t("figure.failed"), number(totals.failed_today), t("figure.today_hint"), totals.failed_today ? "bad" : ""),
      figure(t("figure.starved"), number(starved), t("figure.starved_hint"), starved ? "bad" : ""),
    );
  }

  async load() {
    clearTimeout(this.timer);
    try {
      this.history = await get(withQuery("/page/history", { minutes: this.minutes.value }));
      if (!this.isClosed) this.draw();
    } catch (error) {
      if (!this.isClosed && !this.history) setChildren(this.charts, emptyState(errorText(error)));
    }
    if (!this.isClosed) this.timer = setTimeout(() => this.load(), REFRESH_MS);
  }

  draw() {
    const { series, step, from } = trimmed(this.history),
      scale = { from, step };
    setChildren(
      this.charts,
      card("waits.sides_title", "waits.sides_lead", sidesChart(series, scale)),
      card("waits.priorities_title", "waits.priorities_lead", prioritiesChart(series[this.percentile.value], scale)),
      card("waits.pace_title", "waits.pace_lead", throughputChart(series, scale)),
      card("waits.failures_title", "waits.failures_lead", failuresChart(series.failed, scale), "waits.no_failures"),
      card("waits.starved_title", "waits.starved_lead", starvedChart(series.starved, scale), "waits.no_starved"),
    );
  }
}

function sidesChart({ light_p95: light, heavy_p95: heavy }, scale) {
  const lines = [
    { name: t("waits.light"), colour: PRIORITIES[0], values: light },
    { name: t("waits.heavy"), colour: PRIORITIES[8], values: heavy },
  ];
  const summary = t("waits.sides_chart", { light: duration(max(light)), heavy: duration(max(heavy)) });
  return lines.some(hasValues) && lineChart(summary, lines, scale);
}

function prioritiesChart(waits, scale) {
  const lines = PRIORITIES.map((colour, index) => ({
    name: t("waits.priority", { priority: index + 1 }),
    colour,
    values: waits[index + 1] || [],
  })).filter(hasValues);
  return lines.length > 0 && lineChart(t("waits.priorities_title"), lines, scale);
}

function throughputChart({ started, done }, scale) {
  const perMinute = (values) => values.slice(0, -1).map((value) => (value * 60) / scale.step); // the last step is not over
  const lines = [
    { name: t("waits.started"), colour: "#2f7ed8", values: perMinute(started) },
    { name: t("waits.done"), colour: "#2e9e6b", values: perMinute(done) },
  ];
  const summary = t("waits.pace_chart", { count: sum(done) });
  return sum(started) + sum(done) > 0 && lineChart(summary, lines, { ...scale, isTime: false });
}

function failuresChart(failed, scale) {
  const bars = Object.entries(failed)
    .filter(([, values]) => sum(values))
    .map(([code, values], index) => ({
      name: t(hasText(`reason.${code}`) ? `reason.${code}` : "reason.other"),
      colour: FAILURES[index % FAILURES.length],
      values,
    }));
  const count = sum(bars.map((bar) => sum(bar.values)));
  return count > 0 && barChart(t("waits.failures_chart", { count }), bars, scale);
}

function starvedChart(values, scale) {
  const line = { name: t("figure.starved"), colour: "#c8463c", values };
  return max(values) > 0 && lineChart(t("waits.starved_title"), [line], { ...scale, isTime: false });
}

function card(title, lead, chart, empty = "waits.none") {
  return make(
    "section",
    { class: "card" },
    make("h2", {}, t(title)),
    make("p", { class: "muted" }, t(lead)),
    chart || emptyState(t(empty)),
  );
}
