// Draws a dashboard with Grafana's own components: the grid, stat and time series panels, from what Prometheus answered.
import { createElement as h } from "react";
import { flushSync } from "react-dom";
import { createRoot } from "react-dom/client";
import { FieldType, ThemeContext, createTheme, dateTime, getDisplayProcessor, reduceField } from "@grafana/data";
import { BigValue, GlobalStyles, PanelChrome, TimeSeries } from "@grafana/ui";
import "uplot/dist/uPlot.min.css";

const CELL_PX = 30, GAP_PX = 8, COLUMNS = 24;
// What a time series panel of Grafana has where the dashboard says nothing.
const GRAPH = {
  drawStyle: "line", lineInterpolation: "linear", lineWidth: 1, fillOpacity: 0, gradientMode: "none", spanNulls: false,
  showPoints: "auto", pointSize: 5, axisPlacement: "auto", axisGridShow: true, scaleDistribution: { type: "linear" },
  thresholdsStyle: { mode: "off" }, hideFrom: { viz: false, legend: false, tooltip: false },
};
const MATCHERS = {
  byFrameRefID: (frame, refId) => frame.refId === refId,
  byName: (frame, name) => frame.name === name,
  byRegexp: (frame, pattern) => new RegExp(pattern.replace(/^\/|\/$/g, "")).test(frame.name),
};

function legend(format, labels) {
  return format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? "") || "Value";
}

// The settings of a field: the panel's defaults, then those of its overrides that match.
function configure(panel, frame) {
  const defaults = panel.fieldConfig.defaults;
  const color = defaults.color ?? { mode: panel.type === "stat" ? "thresholds" : "palette-classic" };
  const config = { ...defaults, color, displayNameFromDS: frame.name, custom: { ...GRAPH, ...defaults.custom } };
  config.custom.stacking = { group: "A", mode: "none", ...config.custom.stacking };
  for (const override of panel.fieldConfig.overrides) {
    if (!MATCHERS[override.matcher.id](frame, override.matcher.options)) continue;
    for (const { id, value } of override.properties) {
      if (id.startsWith("custom.")) config.custom[id.slice("custom.".length)] = value;
      else config[id] = value;
    }
  }
  return config;
}

// The moments of a panel and the numbers of one series: null where there is none. A stat has the last moment alone.
function align(panel, recording, values) {
  if (panel.type === "stat") return [[recording.end], values.map(([, value]) => Number(value))];
  const known = new Map(values.map(([at, value]) => [Math.round((at - recording.start) / recording.step), Number(value)]));
  const count = Math.floor((recording.end - recording.start) / recording.step) + 1;
  const moments = Array.from({ length: count }, (_, index) => recording.start + index * recording.step);
  return [moments, moments.map((_, index) => (Number.isFinite(known.get(index)) ? known.get(index) : null))];
}

function frames(panel, recording, theme) {
  const made = [];
  for (const target of panel.targets) {
    const { series } = recording.targets.find((read) => read.panel === panel.title && read.ref === target.refId);
    for (const { metric, values } of series) {
      const [moments, numbers] = align(panel, recording, values);
      const frame = { refId: target.refId, name: legend(target.legendFormat, metric), length: moments.length };
      const field = { name: "Value", type: FieldType.number, labels: metric, values: numbers, config: configure(panel, frame) };
      field.display = getDisplayProcessor({ field, theme });
      field.state = { seriesIndex: made.length };
      const time = { name: "Time", type: FieldType.time, config: {}, values: moments.map((at) => Math.round(at * 1000)) };
      time.display = getDisplayProcessor({ field: time, theme });
      made.push({ ...frame, fields: [time, field] });
    }
  }
  return made;
}

function stat(panel, data, theme, width, height) {
  const field = data[0].fields[1], [calc] = panel.options.reduceOptions.calcs;
  const value = field.display(reduceField({ field, reducers: [calc] })[calc]);
  const { colorMode, graphMode } = panel.options;
  const sparkline = graphMode === "none" ? undefined : { y: field, x: data[0].fields[0] };
  return h(BigValue, { value, colorMode, graphMode, sparkline, theme, width, height });
}

function timeseries(panel, data, theme, width, height, timeRange) {
  return h(TimeSeries, {
    frames: data, width, height, timeRange, timeZone: "browser",
    legend: { showLegend: true, calcs: [], ...panel.options.legend },
  });
}

function draw(panel, recording, theme, timeRange) {
  const data = frames(panel, recording, theme);
  return (width, height) => {
    const { noValue = "No data" } = panel.fieldConfig.defaults;
    if (!data.length) return h("div", { style: { textAlign: "center", paddingTop: height / 2 - 10 } }, noValue);
    return (panel.type === "stat" ? stat : timeseries)(panel, data, theme, width, height, timeRange);
  };
}

function Dashboard({ dashboard, recording, theme, width }) {
  const timeRange = { from: dateTime(recording.start * 1000), to: dateTime(recording.end * 1000) };
  timeRange.raw = timeRange;
  const column = (width - GAP_PX * (COLUMNS - 1)) / COLUMNS;
  const bottom = Math.max(...dashboard.panels.map((panel) => panel.gridPos.y + panel.gridPos.h));
  const panels = dashboard.panels.map((panel) => {
    const { x, y, w, h: rows } = panel.gridPos;
    const size = { width: w * column + (w - 1) * GAP_PX, height: rows * CELL_PX + (rows - 1) * GAP_PX };
    const place = { position: "absolute", left: x * (column + GAP_PX), top: y * (CELL_PX + GAP_PX), ...size };
    if (panel.type === "row") return h("div", { key: panel.id, className: "row", style: place }, `⌄ ${panel.title}`);
    const content = draw(panel, recording, theme, timeRange);
    return h("div", { key: panel.id, style: place }, h(PanelChrome, { title: panel.title, ...size }, content));
  });
  return h("div", { id: "dashboard", style: { position: "relative", height: bottom * (CELL_PX + GAP_PX) - GAP_PX } }, panels);
}

window.drawDashboard = (dashboard, recording, mode) => {
  const theme = createTheme({ colors: { mode } }), root = document.body.appendChild(document.createElement("div"));
  root.style.margin = "16px";
  const content = h(Dashboard, { dashboard, recording, theme, width: root.clientWidth });
  flushSync(() => createRoot(root).render(h(ThemeContext.Provider, { value: theme }, h(GlobalStyles), content)));
};
