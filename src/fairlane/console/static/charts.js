// How is a row of figures drawn? Lines, steps, stacked bars and small trends, as SVG, without a library.
//
// Laws:
// - Every chart has a sentence for those who cannot see it, and pointing at it tells the values.
// - Text is never scaled: a chart is drawn for the width it has.

import { draw, make, show } from "./elements.js";
import { duration, number, say, timeOfDay } from "./texts.js";

const LEFT = 52,
  RIGHT = 10,
  TOP = 10,
  BOTTOM = 24;

/** Round steps from 0 to a little over `most`. */
export function ticks(most, wanted = 4) {
  if (!(most > 0)) return [0, 1];
  const raw = most / wanted,
    ten = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((one) => one * ten).find((one) => one >= raw);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, place) => place * step);
}

function durationTicks(most) {
  const step =
    [0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400].find(
      (one) => one >= most / 4,
    ) || 86400 * Math.ceil(most / 4 / 86400);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, place) => place * step);
}

/** A place for a chart that is drawn again when its width changes. */
function framed(summary, height, drawing) {
  const place = make("div", { class: "chart", role: "img", "aria-label": summary });
  let wide = 0;
  const watcher = new ResizeObserver(() => {
    const now = Math.round(place.clientWidth);
    if (now && now !== wide) show(place, drawing((wide = now), height));
  });
  watcher.observe(place);
  return place;
}

function axes(wide, tall, values, top, format, from, to) {
  const y = (value) => TOP + (tall - TOP - BOTTOM) * (1 - value / top);
  const x = (at) => LEFT + (wide - LEFT - RIGHT) * ((at - from) / Math.max(1, to - from));
  const parts = values.map((value) => [
    draw("line", { x1: LEFT, x2: wide - RIGHT, y1: y(value), y2: y(value), class: "grid" }),
    draw("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)),
  ]);
  const count = Math.max(2, Math.min(6, Math.floor((wide - LEFT) / 110)));
  for (let place = 0; place < count; place++) {
    const at = from + ((to - from) * place) / (count - 1);
    parts.push([
      draw(
        "text",
        { x: x(at), y: tall - 6, "text-anchor": place === 0 ? "start" : place === count - 1 ? "end" : "middle" },
        timeOfDay(at),
      ),
    ]);
  }
  return { x, y, parts };
}

/** Lines over time: series = [{name, colour, values, dash}], values beside each other every `step` seconds from `from` (ms). */
export function lines(summary, series, { from, step, isTime = true, tall = 220 }) {
  const longest = Math.max(...series.map((one) => one.values.length), 1);
  const most = Math.max(...series.flatMap((one) => one.values.filter((value) => value != null)), isTime ? 1 : 1);
  const values = isTime ? durationTicks(most) : ticks(most),
    top = values.at(-1);
  const format = isTime ? (value) => duration(value) : number;
  const to = from + (longest - 1) * step * 1000;
  const chart = framed(summary, tall, (wide, height) => {
    const { x, y, parts } = axes(wide, height, values, top, format, from, to);
    const drawn = series.map((one) =>
      draw("path", {
        d: pathOf(one.values, (place) => x(from + place * step * 1000), y),
        stroke: one.colour,
        class: "line",
        "stroke-dasharray": one.dash,
      }),
    );
    return draw(
      "svg",
      { width: wide, height, "aria-hidden": "true" },
      parts,
      drawn,
      pointer(wide, height, longest, (place) => {
        const known = series.filter((one) => one.values[place] != null);
        return [timeOfDay(from + place * step * 1000), ...known.map((one) => `${one.name}: ${format(one.values[place])}`)].join(
          "\n",
        );
      }),
    );
  });
  return make("figure", { class: "plot" }, chart, key(series));
}

function pathOf(values, x, y) {
  let path = "",
    isOpen = false;
  values.forEach((value, place) => {
    if (value == null) return void (isOpen = false);
    const alone = !isOpen && values[place + 1] == null;
    path += `${isOpen ? "L" : "M"}${x(place).toFixed(1)} ${y(value).toFixed(1)}${alone ? "h0.01" : ""}`; // a round dot
    isOpen = true;
  });
  return path || "M0 0";
}

/** Stacked bars over time. */
export function bars(summary, series, { from, step, tall = 180 }) {
  const longest = Math.max(...series.map((one) => one.values.length), 1);
  const sums = Array.from({ length: longest }, (_, place) => series.reduce((sum, one) => sum + (one.values[place] || 0), 0));
  const values = ticks(Math.max(...sums, 1)).filter(Number.isInteger),
    top = values.at(-1) || 1;
  const chart = framed(summary, tall, (wide, height) => {
    const { x, y, parts } = axes(wide, height, values, top, number, from, from + longest * step * 1000);
    const each = (wide - LEFT - RIGHT) / longest,
      drawn = [];
    for (let place = 0; place < longest; place++) {
      let below = 0;
      for (const one of series) {
        const value = one.values[place] || 0;
        if (value)
          drawn.push(
            draw("rect", {
              x: x(from + place * step * 1000) + 0.5,
              y: y(below + value),
              width: Math.max(1, each - 1),
              height: y(below) - y(below + value),
              fill: one.colour,
            }),
          );
        below += value;
      }
    }
    return draw(
      "svg",
      { width: wide, height, "aria-hidden": "true" },
      parts,
      drawn,
      pointer(wide, height, longest, (place) =>
        [
          timeOfDay(from + place * step * 1000),
          ...series.filter((one) => one.values[place]).map((one) => `${one.name}: ${number(one.values[place])}`),
        ].join("\n"),
      ),
    );
  });
  return make("figure", { class: "plot" }, chart, key(series));
}

function pointer(wide, tall, count, text) {
  const each = (wide - LEFT - RIGHT) / Math.max(1, count);
  return Array.from({ length: count }, (_, place) =>
    draw(
      "rect",
      { x: LEFT + place * each, y: TOP, width: each, height: tall - TOP - BOTTOM, class: "point" },
      draw("title", {}, text(place)),
    ),
  );
}

function key(series) {
  if (series.length < 2) return null;
  return make(
    "figcaption",
    {},
    series.map((one) => make("span", { class: "key" }, swatch(one.colour), one.name)),
  );
}

/** A small square of a colour. */
export function swatch(colour) {
  const made = make("i", { class: "swatch" });
  made.style.background = colour;
  return made;
}

/** A counter over time: steps down, and marks where it was reset. */
export function steps(summary, told, thresholds, tall = 220) {
  const from = told[0].at,
    to = Math.max(told.at(-1).at, from + 60_000),
    least = Math.min(-3, ...told.map((one) => one.counter));
  const levels =
    least > 3 * thresholds.at(-1)
      ? [0, ...thresholds.filter((one) => one >= least)]
      : ticks(-least)
          .map((one) => -one)
          .filter((one) => one >= least);
  const chart = framed(summary, tall, (wide, height) => {
    const x = (at) => LEFT + (wide - LEFT - RIGHT) * ((at - from) / (to - from));
    const y = (counter) => TOP + 8 + (height - TOP - BOTTOM - 8) * (counter / least);
    let last = -99;
    const grid = levels
      .filter((level) => y(level) - last > 13 && ((last = y(level)), true))
      .map((level) => [
        draw("line", { x1: LEFT, x2: wide - RIGHT, y1: y(level), y2: y(level), class: "grid" }),
        draw("text", { x: LEFT - 6, y: y(level) + 4, "text-anchor": "end" }, number(level)),
      ]);
    let path = `M${x(from)} ${y(told[0].counter)}`;
    for (const one of told.slice(1)) path += `H${x(one.at).toFixed(1)}V${y(one.counter).toFixed(1)}`;
    path += `H${wide - RIGHT}`;
    const marks = told
      .filter((one) => one.is_reset)
      .map((one) =>
        draw(
          "g",
          { class: "reset" },
          draw("line", { x1: x(one.at), x2: x(one.at), y1: TOP, y2: height - BOTTOM }),
          draw("circle", { cx: x(one.at), cy: y(one.counter), r: 4 }),
          draw("title", {}, `${say("customer.reset_mark")} ${timeOfDay(one.at)}`),
        ),
      );
    const times = [from, to].map((at, place) =>
      draw("text", { x: place ? wide - RIGHT : LEFT, y: height - 6, "text-anchor": place ? "end" : "start" }, timeOfDay(at)),
    );
    return draw(
      "svg",
      { width: wide, height, "aria-hidden": "true" },
      grid,
      draw("path", { d: path, class: "line steps" }),
      marks,
      times,
    );
  });
  return make(
    "figure",
    { class: "plot" },
    chart,
    make(
      "figcaption",
      {},
      make("span", { class: "key" }, make("i", { class: "swatch resetmark" }), say("customer.reset_mark")),
    ),
  );
}

/** A small trend without axes. */
export function trend(values, summary) {
  const most = Math.max(1, ...values),
    each = 6;
  return draw(
    "svg",
    { class: "trend", width: values.length * each, height: 20, role: "img", "aria-label": summary },
    values.map((value, place) =>
      draw("rect", {
        x: place * each,
        y: 20 - Math.max(1, (20 * value) / most),
        width: each - 1,
        height: Math.max(1, (20 * value) / most),
      }),
    ),
  );
}
