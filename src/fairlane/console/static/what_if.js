// The simulator's answer to "what if": the last hours as they were and under other rules or with other workers.

import { errorText, get, post } from "./api.js";
import { columnHeading, emptyState, field, heading, make, scrollingTable, select, setChildren } from "./dom.js";
import { duration, number, percent, t } from "./i18n.js";

const RESETS = ["idle", "sliding"];
const TURNS = ["time", "documents"];
const HOURS = [1, 6, 24];
const DEFAULT_MINUTES = 25;

export class WhatIfView {
  constructor(container) {
    this.minutes = make("input", { type: "number", min: "0.1", max: "43200", step: "0.1", required: true });
    this.workers = make("input", { type: "number", min: "1", max: "1000", step: "1" });
    this.reset = select(
      RESETS.map((reset) => [reset, t(`reset.${reset}`)]),
      "idle",
    );
    this.turns = select(
      TURNS.map((turns) => [turns, t(`turns.${turns}`)]),
      "time",
    );
    this.hours = select(
      HOURS.map((hours) => [String(hours), duration(hours * 3600, "long")]),
      "24",
    );
    this.button = make("button", { class: "main" }, t("what_if.go"));
    this.result = make("div", { "aria-live": "polite" }, emptyState(t("what_if.empty"), t("what_if.empty_more")));
    setChildren(container, heading(t("nav.what_if"), t("what_if.lead")), this.form(), this.result);
    get("/page/rules").then(
      (rules) => {
        this.minutes.value = rules.reset_interval / 60;
        this.reset.value = rules.reset;
        this.turns.value = rules.turns;
      },
      () => (this.minutes.value = DEFAULT_MINUTES),
    );
  }

  form() {
    return make(
      "form",
      { class: "card what-if", onsubmit: (event) => (event.preventDefault(), this.run()) },
      field(t("what_if.interval"), this.minutes, t("what_if.interval_hint")),
      field(t("what_if.reset"), this.reset, t("what_if.reset_hint")),
      field(t("what_if.turns"), this.turns, t("what_if.turns_hint")),
      field(t("what_if.workers"), this.workers, t("what_if.workers_hint")),
      field(t("what_if.hours"), this.hours, t("what_if.hours_hint")),
      this.button,
    );
  }

  async run() {
    this.button.disabled = true;
    setChildren(this.result, make("p", { class: "busy", role: "status" }, t("what_if.busy")));
    const rules = { reset_interval: +this.minutes.value * 60, reset: this.reset.value, turns: this.turns.value };
    const question = { ...rules, hours: +this.hours.value };
    if (this.workers.value) question.workers = +this.workers.value;
    try {
      setChildren(this.result, comparison(await post("/page/what-if", question)));
    } catch (error) {
      setChildren(this.result, emptyState(errorText(error)));
    } finally {
      this.button.disabled = false;
    }
  }
}

const KINDS = ["measured", "now", "then"];
const ROWS = [
  ["what_if.light_p50", (replay) => replay.waits.light?.p50, duration],
  ["what_if.light_p95", (replay) => replay.waits.light?.p95, duration],
  ["what_if.heavy_p50", (replay) => replay.waits.heavy?.p50, duration],
  ["what_if.heavy_p95", (replay) => replay.waits.heavy?.p95, duration],
  ["what_if.starved", (replay) => replay.starved, number],
];

function comparison(replays) {
  const row = ([key, pick, format]) => comparisonRow(t(key), KINDS.map((kind) => pick(replays[kind])), format);
  const keys = ["what_if.measure", "what_if.measured", "what_if.now", "what_if.then", "what_if.change"];
  const headings = keys.map((key) => columnHeading(t(key)));
  return make(
    "section",
    { class: "card" },
    make("h2", {}, t("what_if.answer")),
    make("p", { class: "muted" }, t("what_if.from", { count: replays.documents })),
    doubts(replays.doubts),
    scrollingTable(t("what_if.answer"), headings, ROWS.map(row), "compared"),
  );
}

/** Why the simulated past is not the measured one, if they differ by much. */
function doubts(reasons) {
  if (!reasons.length) return null;
  const sentence = ({ reason, values }) => {
    const figures = Object.entries(values).map(([name, value]) => [name, number(Math.round(value * 10) / 10)]);
    return t(`what_if.doubt_${reason}`, { ...Object.fromEntries(figures), time: duration(values.seconds ?? 0, "long") });
  };
  const lines = reasons.map((doubt) => make("li", {}, sentence(doubt)));
  return make("div", { class: "warning" }, t("what_if.doubts"), make("ul", {}, lines));
}

function comparisonRow(name, values, format) {
  const most = Math.max(...values.map((value) => value || 0));
  const [, now, then] = values;
  const cell = (label, value, kind) => {
    const bar = make("span", { class: `bar ${kind}` });
    bar.style.width = `${most ? (100 * (value || 0)) / most : 0}%`;
    return make("td", { "data-label": label }, make("b", {}, format(value)), make("span", { class: "track" }, bar));
  };
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, name),
    KINDS.map((kind, index) => cell(t(`what_if.${kind}`), values[index], kind)),
    make("td", { "data-label": t("what_if.change") }, verdict(now, then)),
  );
}

function verdict(now, then) {
  if (now == null || then == null) return "–";
  const change = now ? (then - now) / now : then ? 1 : 0;
  if (Math.abs(then - now) < 0.5 || Math.abs(change) < 0.05) return make("span", { class: "muted" }, t("what_if.same"));
  const isBetter = then < now;
  const text =
    now && Math.abs(change) < 10
      ? t(isBetter ? "what_if.less" : "what_if.more", { share: percent(Math.abs(change)) })
      : t(isBetter ? "what_if.better" : "what_if.worse");
  return make("span", { class: isBetter ? "good" : "bad" }, text);
}
