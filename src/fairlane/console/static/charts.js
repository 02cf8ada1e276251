// Charts as SVG, without a library: lines over time, stacked bars, the steps of a counter, and small trends.
//
// Laws:
// - Every chart has a sentence for readers who cannot see it; hovering shows the values.
// - Text is never scaled: a chart is drawn for the width it has.

import { make, makeSvg, setChildren, swatch } from "./dom.js";
import { duration, number, t, timeOfDay } from "./i18n.js";

const LEFT = 52,
  RIGHT = 10,
  TOP = 10,
  BOTTOM = 24;
const DURATION_STEPS = [0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];

const multiples = (step, max) => Array.from({ length: Math.ceil(max / step - 1e-9) + 1 }, (_, index) => index * step);

/** Round numbers from 0 to a little over `max`. */
function ticks(max) {
  if (!(max > 0)) return [0, 1];
  const quarter = max / 4,
    power = 10 ** Math.floor(Math.log10(quarter));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((candidate) => candidate >= quarter);
  return multiples(step, max);
}

function durationTicks(max) {
  return multiples(DURATION_STEPS.find((step) => step >= max / 4) || 86400 * Math.ceil(max / 4 / 86400), max);
}

/** A container that draws its chart again when its width changes. */
function responsive(summary, height, drawChart) {
  const container = make("div", { class: "chart", role: "img", "aria-label": summary });
  let drawnWidth = 0;
  const observer = new ResizeObserver(() => {
    const width = Math.round(container.clientWidth);
    if (!width || width === drawnWidth) return;
    drawnWidth = width;
    setChildren(container, makeSvg("svg", { width, height, "aria-hidden": "true" }, drawChart(width)));
  });
  observer.observe(container);
  return container;
}

function gridLine(width, y, label) {
  return [
    makeSvg("line", { x1: LEFT, x2: width - RIGHT, y1: y, y2: y, class: "grid" }),
    makeSvg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, label),
  ];
}

/** Scales and grid: values from 0 up, times from left to right. */
function axes(width, height, values, format, from, to) {
  const top = values.at(-1) || 1;
  const y = (value) => TOP + (height - TOP - BOTTOM) * (1 - value / top);
  const x = (at) => LEFT + (width - LEFT - RIGHT) * ((at - from) / Math.max(1, to - from));
  const grid = values.map((value) => gridLine(width, y(value), format(value)));
  const count = Math.max(2, Math.min(6, Math.floor((width - LEFT) / 110)));
  for (let index = 0; index < count; index++) {
    const at = from + ((to - from) * index) / (count - 1);
    const anchor = index === 0 ? "start" : index === count - 1 ? "end" : "middle";
    grid.push(makeSvg("text", { x: x(at), y: height - 6, "text-anchor": anchor }, timeOfDay(at)));
  }
  return { x, y, grid };
}

const longest = (series) => Math.max(...series.map((line) => line.values.length), 1);

/** Lines over time: series = [{name, colour, values}], a value every `step` seconds from `from` (ms). */
export function lineChart(summary, series, { from, step, isTime = true, height = 220 }) {
  const count = longest(series);
  const max = Math.max(...series.flatMap((line) => line.values.filter((value) => value != null)), 1);
  const values = isTime ? durationTicks(max) : ticks(max);
  const format = isTime ? (value) => duration(value) : number;
  const timeOf = (index) => from + index * step * 1000;
  const chart = responsive(summary, height, (width) => {
    const { x, y, grid } = axes(width, height, values, format, from, timeOf(count - 1));
    const paths = series.map((line) =>
      makeSvg("path", { d: linePath(line.values, (index) => x(timeOf(index)), y), stroke: line.colour, class: "line" }),
    );
    const tooltip = (index) => {
      const known = series.filter((line) => line.values[index] != null);
      return [timeOfDay(timeOf(index)), ...known.map((line) => `${line.name}: ${format(line.values[index])}`)].join("\n");
    };
    return [grid, paths, tooltips(width, height, count, tooltip)];
  });
  return make("figure", { class: "plot" }, chart, legend(series));
}

function linePath(values, x, y) {
  let path = "",
    isOpen = false;
  values.forEach((value, index) => {
    if (value == null) return void (isOpen = false);
    const isAlone = !isOpen && values[index + 1] == null; // draw a round dot
    path += `${isOpen ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}${isAlone ? "h0.01" : ""}`;
    isOpen = true;
  });
  return path || "M0 0";
}

/** Stacked bars over time; series as for lines. */
export function barChart(summary, series, { from, step, height = 180 }) {
  const count = longest(series);
  const sums = Array.from({ length: count }, (_, index) => series.reduce((sum, part) => sum + (part.values[index] || 0), 0));
  const values = ticks(Math.max(...sums, 1)).filter(Number.isInteger);
  const timeOf = (index) => from + index * step * 1000;
  const chart = responsive(summary, height, (width) => {
    const { x, y, grid } = axes(width, height, values, number, from, timeOf(count));
    const barWidth = Math.max(1, (width - LEFT - RIGHT) / count - 1);
    const stack = (index) => {
      let below = 0;
      return series.map((part) => {
        const value = part.values[index] || 0,
          bottom = y(below);
        below += value;
        const bar = { x: x(timeOf(index)) + 0.5, y: y(below), width: barWidth, height: bottom - y(below), fill: part.colour };
        return value > 0 && makeSvg("rect", bar);
      });
    };
    const tooltip = (index) => {
      const known = series.filter((part) => part.values[index]);
      return [timeOfDay(timeOf(index)), ...known.map((part) => `${part.name}: ${number(part.values[index])}`)].join("\n");
    };
    return [grid, sums.map((_, index) => stack(index)), tooltips(width, height, count, tooltip)];
  });
  return make("figure", { class: "plot" }, chart, legend(series));
}

/** Invisible columns over a chart, each with a text that appears on hovering. */
function tooltips(width, height, count, text) {
  const columnWidth = (width - LEFT - RIGHT) / Math.max(1, count);
  return Array.from({ length: count }, (_, index) =>
    makeSvg(
      "rect",
      { x: LEFT + index * columnWidth, y: TOP, width: columnWidth, height: height - TOP - BOTTOM, class: "point" },
      makeSvg("title", {}, text(index)),
    ),
  );
}

function legend(series) {
  if (series.length < 2) return null;
  return make(
    "figcaption",
    {},
    series.map((line) => make("span", { class: "key" }, swatch(line.colour), line.name)),
  );
}

/** A customer's counter over time: steps = [{at, counter, is_reset}], oldest first. */
export function counterChart(summary, steps, thresholds, height = 220) {
  const from = steps[0].at,
    to = Math.max(steps.at(-1).at, from + 60_000),
    lowest = Math.min(-3, ...steps.map((step) => step.counter));
  const levels = lowest > 3 * thresholds.at(-1) ? [0, ...thresholds] : ticks(-lowest).map((value) => -value);
  const chart = responsive(summary, height, (width) => {
    const x = (at) => LEFT + (width - LEFT - RIGHT) * ((at - from) / (to - from));
    const y = (counter) => TOP + 8 + (height - TOP - BOTTOM - 8) * (counter / lowest);
    const moves = steps.slice(1).map((step) => `H${x(step.at).toFixed(1)}V${y(step.counter).toFixed(1)}`);
    const path = `M${x(from)} ${y(steps[0].counter)}${moves.join("")}H${width - RIGHT}`;
    return [
      levelLines(levels, lowest, width, y),
      makeSvg("path", { d: path, class: "line steps" }),
      steps.filter((step) => step.is_reset).map((step) => resetMark(step, x, y, height)),
      makeSvg("text", { x: LEFT, y: height - 6, "text-anchor": "start" }, timeOfDay(from)),
      makeSvg("text", { x: width - RIGHT, y: height - 6, "text-anchor": "end" }, timeOfDay(to)),
    ];
  });
  const key = () => make("span", { class: "key" }, make("i", { class: "swatch resetmark" }), t("customer.reset_mark"));
  const hasResets = steps.some((step) => step.is_reset);
  return make("figure", { class: "plot" }, chart, hasResets && make("figcaption", {}, key()));
}

/** Grid lines at counter levels, leaving out those too close to the one above. */
function levelLines(levels, lowest, width, y) {
  let lastY = -99;
  return levels
    .filter((level) => level >= lowest && y(level) - lastY > 13 && ((lastY = y(level)), true))
    .map((level) => gridLine(width, y(level), number(level)));
}

function resetMark(step, x, y, height) {
  return makeSvg(
    "g",
    { class: "reset" },
    makeSvg("line", { x1: x(step.at), x2: x(step.at), y1: TOP, y2: height - BOTTOM }),
    makeSvg("circle", { cx: x(step.at), cy: y(step.counter), r: 4 }),
    makeSvg("title", {}, `${t("customer.reset_mark")} ${timeOfDay(step.at)}`),
  );
}

/** A small bar chart without axes. */
export function sparkline(values, summary) {
  const max = Math.max(1, ...values),
    barWidth = 6;
  return makeSvg(
    "svg",
    { class: "trend", width: values.length * barWidth, height: 20, role: "img", "aria-label": summary },
    values.map((value, index) => {
      const height = Math.max(1, (20 * value) / max);
      return makeSvg("rect", { x: index * barWidth, y: 20 - height, width: barWidth - 1, height });
    }),
  );
}
