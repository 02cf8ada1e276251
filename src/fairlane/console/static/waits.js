// How long did it take? Waits by priority, light against heavy senders, throughput, failures, and who waits too long now.

import { bars, lines } from "./charts.js";
import { OTHERS, PRIORITIES } from "./colours.js";
import { choice, figure, make, nothing, show } from "./elements.js";
import { isShort } from "./lanes.js";
import { asking, get, why } from "./server.js";
import { duration, has, number, say } from "./texts.js";

const REFRESH_MS = 15_000,
  POINTS_LEAST = 12;
const FAILURES = ["#c8463c", "#d77a2b", "#7d62c9", "#2f7ed8", "#2aa3b5", "#b8962e", "#5d8f2f", "#c257b5", OTHERS];

const peak = (values) => Math.max(0, ...values.filter((value) => value != null));
const sum = (values) => values.reduce((all, value) => all + (value || 0), 0);

/** A history without the time before anything happened. */
function since(told) {
  const all = Object.values(told.series).flatMap((one) => (Array.isArray(one) ? [one] : Object.values(one)));
  const firsts = all.map((values) => values.findIndex((value) => value)).filter((place) => place >= 0);
  const first = Math.max(0, Math.min(...firsts, all[0]?.length ?? 0) - 1),
    shown = Math.max(0, Math.min(first, (all[0]?.length ?? 0) - POINTS_LEAST));
  const cut = (one) =>
    Array.isArray(one)
      ? one.slice(shown)
      : Object.fromEntries(Object.entries(one).map(([name, values]) => [name, values.slice(shown)]));
  return {
    ...told,
    from: told.from + shown * told.step_seconds * 1000,
    series: Object.fromEntries(Object.entries(told.series).map(([name, one]) => [name, cut(one)])),
  };
}

export function waitsView(place) {
  const now = make("dl", { class: "figures" }),
    charts = make("div", { class: "charts" });
  const span = choice(
    [
      ["60", say("waits.hour")],
      ["360", say("waits.six_hours")],
      ["1440", say("waits.day")],
    ],
    "60",
    { "aria-label": say("waits.span"), onchange: () => load() },
  );
  const which = choice(
    [
      ["wait_p95", say("waits.long")],
      ["wait_p50", say("waits.typical")],
    ],
    "wait_p95",
    { "aria-label": say("waits.which"), onchange: () => drawn && draw(drawn) },
  );
  let timer,
    isClosed = false,
    drawn = null;
  show(
    place,
    make("div", { class: "head" }, make("h1", {}, say("nav.waits")), make("p", { class: "soft" }, say("waits.lead"))),
    make("div", { class: "tools" }, span, which),
    now,
    charts,
  );
  show(charts, make("p", { class: "soft" }, say("lanes.loading")));

  async function load() {
    clearTimeout(timer);
    try {
      drawn = await get(asking("/page/history", { minutes: span.value }));
      if (!isClosed) draw(drawn);
    } catch (error) {
      if (!isClosed && !drawn) show(charts, nothing(why(error)));
    }
    if (!isClosed) timer = setTimeout(load, REFRESH_MS);
  }
  function draw(whole) {
    const { series, step_seconds: step, from } = since(whole),
      at = { from, step };
    const byPriority = PRIORITIES.map((colour, place) => ({
      name: say("waits.priority", { priority: place + 1 }),
      colour,
      values: series[which.value]?.[place + 1] || [],
    })).filter((one) => one.values.some((value) => value != null));
    const failed = Object.entries(series.failed || {})
      .filter(([, values]) => sum(values))
      .map(([code, values], place) => ({
        name: say(has(`reason.${code}`) ? `reason.${code}` : "reason.other"),
        colour: FAILURES[place % FAILURES.length],
        values,
      }));
    const sides = [
      { name: say("waits.light"), colour: PRIORITIES[0], values: series.light_p95 },
      { name: say("waits.heavy"), colour: PRIORITIES[8], values: series.heavy_p95 },
    ];
    const minute = (values) => values.slice(0, -1).map((value) => (value * 60) / step); // the last step is not over
    const pace = [
      { name: say("waits.started"), colour: "#2f7ed8", values: minute(series.started) },
      { name: say("waits.done"), colour: "#2e9e6b", values: minute(series.done) },
    ];
    show(
      charts,
      card(
        "waits.sides_title",
        "waits.sides_lead",
        sides.some((one) => one.values.some((value) => value != null)) &&
          lines(
            say("waits.sides_chart", { light: duration(peak(series.light_p95)), heavy: duration(peak(series.heavy_p95)) }),
            sides,
            at,
          ),
      ),
      card(
        "waits.priorities_title",
        "waits.priorities_lead",
        byPriority.length && lines(say("waits.priorities_title"), byPriority, at),
      ),
      card(
        "waits.pace_title",
        "waits.pace_lead",
        sum(series.started) + sum(series.done) > 0 &&
          lines(say("waits.pace_chart", { count: sum(series.done) }), pace, { ...at, isTime: false }),
      ),
      card(
        "waits.failures_title",
        "waits.failures_lead",
        failed.length &&
          bars(say("waits.failures_chart", { count: failed.reduce((all, one) => all + sum(one.values), 0) }), failed, at),
        "waits.no_failures",
      ),
      card(
        "waits.starved_title",
        "waits.starved_lead",
        peak(series.starved || []) > 0 &&
          lines(say("waits.starved_title"), [{ name: say("figure.starved"), colour: "#c8463c", values: series.starved }], {
            ...at,
            isTime: false,
          }),
        "waits.no_starved",
      ),
    );
  }
  load();
  return {
    frame: (told) =>
      told.counted == null &&
      show(
        now,
        figure(
          say("figure.light"),
          duration(told.waits.light_p95),
          say("figure.light_hint"),
          isShort(told.waits.light_p95) ? "good" : "",
        ),
        figure(say("figure.heavy"), duration(told.waits.heavy_p95), say("figure.heavy_hint")),
        figure(say("figure.done_minute"), number(told.rate.done_last_minute), say("figure.done_minute_hint")),
        figure(
          say("figure.failed"),
          number(told.totals.failed_today),
          say("figure.today_hint"),
          told.totals.failed_today ? "bad" : "",
        ),
        figure(say("figure.starved"), number(told.starved), say("figure.starved_hint"), told.starved ? "bad" : ""),
      ),
    close: () => ((isClosed = true), clearTimeout(timer)),
  };
}

function card(title, lead, chart, none = "waits.none") {
  return make(
    "section",
    { class: "card" },
    make("h2", {}, say(title)),
    make("p", { class: "soft" }, say(lead)),
    chart || nothing(say(none)),
  );
}
