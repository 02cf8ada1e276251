// What would the last day have looked like with other rules, or with more workers? Now against then, from the simulator.

import { choice, field, make, nothing, show } from "./elements.js";
import { get, post, why } from "./server.js";
import { duration, number, say, share } from "./texts.js";

const RESETS = ["idle", "window", "gradual"];
const HOURS = [1, 6, 24];

export function whatIfView(place) {
  const minutes = make("input", { type: "number", min: "0.1", max: "43200", step: "0.1", required: true });
  const reset = choice(
    RESETS.map((one) => [one, say(`reset.${one}`)]),
    "idle",
  );
  const workers = make("input", { type: "number", min: "1", max: "1000", step: "1" });
  const hours = choice(
    HOURS.map((one) => [String(one), duration(one * 3600, "long")]),
    "24",
  );
  const answer = make("div", { "aria-live": "polite" }),
    button = make("button", { class: "main" }, say("what_if.go"));
  const form = make(
    "form",
    { class: "card what-if", onsubmit: (event) => (event.preventDefault(), run()) },
    field(say("what_if.interval"), minutes, say("what_if.interval_hint")),
    field(say("what_if.reset"), reset, say("what_if.reset_hint")),
    field(say("what_if.workers"), workers, say("what_if.workers_hint")),
    field(say("what_if.hours"), hours, say("what_if.hours_hint")),
    button,
  );
  show(
    place,
    make("div", { class: "head" }, make("h1", {}, say("nav.what_if")), make("p", { class: "soft" }, say("what_if.lead"))),
    form,
    answer,
  );
  show(answer, nothing(say("what_if.empty"), say("what_if.empty_more")));
  get("/page/rules").then(
    (rules) => {
      minutes.value = rules.reset_interval / 60;
      reset.value = rules.reset;
    },
    () => (minutes.value = 25),
  );

  async function run() {
    button.disabled = true;
    show(answer, make("p", { class: "busy", role: "status" }, say("what_if.busy")));
    const asked = { reset_interval: +minutes.value * 60, reset: reset.value, hours: +hours.value };
    if (workers.value) asked.workers = +workers.value;
    try {
      show(answer, compared(await post("/page/what-if", asked)));
    } catch (error) {
      show(answer, nothing(why(error)));
    } finally {
      button.disabled = false;
    }
  }
  return {};
}

const ROWS = [
  ["what_if.light_p50", (told) => told.waits.light?.p50, duration],
  ["what_if.light_p95", (told) => told.waits.light?.p95, duration],
  ["what_if.heavy_p50", (told) => told.waits.heavy?.p50, duration],
  ["what_if.heavy_p95", (told) => told.waits.heavy?.p95, duration],
  ["what_if.starved", (told) => told.starved, number],
];

function compared(told) {
  const rows = ROWS.map(([key, pick, format]) => {
    const [now, then] = [pick(told.now), pick(told.then)],
      most = Math.max(now || 0, then || 0);
    const bar = (value, kind) => {
      const made = make("span", { class: `bar ${kind}` });
      made.style.width = `${most ? (100 * (value || 0)) / most : 0}%`;
      return make("span", { class: "track" }, made);
    };
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, say(key)),
      make("td", { "data-label": say("what_if.now") }, make("b", {}, format(now)), bar(now, "now")),
      make("td", { "data-label": say("what_if.then") }, make("b", {}, format(then)), bar(then, "then")),
      make("td", { "data-label": say("what_if.change") }, verdict(now, then)),
    );
  });
  return make(
    "section",
    { class: "card" },
    make("h2", {}, say("what_if.answer")),
    make("p", { class: "soft" }, say("what_if.from", { count: told.documents })),
    make(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": say("what_if.answer") },
      make(
        "table",
        { class: "grid compared" },
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            ["what_if.measure", "what_if.now", "what_if.then", "what_if.change"].map((key) =>
              make("th", { scope: "col" }, say(key)),
            ),
          ),
        ),
        make("tbody", {}, rows),
      ),
    ),
  );
}

function verdict(now, then) {
  if (now == null || then == null) return "–";
  const gap = now ? (then - now) / now : then ? 1 : 0;
  if (Math.abs(then - now) < 0.5 || Math.abs(gap) < 0.05) return make("span", { class: "soft" }, say("what_if.same"));
  const better = then < now;
  const text =
    now && Math.abs(gap) < 10
      ? say(better ? "what_if.less" : "what_if.more", { share: share(Math.abs(gap)) })
      : say(better ? "what_if.better" : "what_if.worse");
  return make("span", { class: better ? "good" : "bad" }, text);
}
