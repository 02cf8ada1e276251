// Building blocks of the page: elements, user-chosen names, badges, form fields, dialogs and notifications.
//
// Laws:
// - Text is set as text, never as HTML: nothing here makes markup from a string.
// - What users named themselves (customers, files) stands in <bdi>, is cut by the style, and is whole in its title.

import { date, dateTime, t } from "./i18n.js";

export const STATES = ["ready", "delayed", "running", "done", "failed", "cancelled"];
const SVG = "http://www.w3.org/2000/svg";
const NOTIFICATION_MS = 6000;

const visible = (children) => children.flat(Infinity).filter((child) => child != null && child !== false);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...visible(children));
  return element;
}

/** Create an element: make("a", {href}, "text", child). */
export const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** Create an SVG element. */
export const makeSvg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** A name that a user chose. */
export const userName = (text, kind = "name") => make("bdi", { class: kind, title: text }, text);

/** A link to a customer's page. */
export const customerLink = (customer) =>
  make("a", { href: `#/customers/${encodeURIComponent(customer)}` }, userName(customer));

/** A link to a batch, with how many documents it has. */
export const batchLink = (batch) =>
  make("a", { href: `#/batches/${encodeURIComponent(batch.id)}` }, t("batch.found", { count: batch.documents }));

/** The name of a document's file, or the end of its id. */
export const documentName = (item) => (item.name ? userName(item.name) : make("code", {}, item.id.slice(-12)));

/** Replace what is in a container. */
export function setChildren(container, ...children) {
  container.replaceChildren(...visible(children));
  return container;
}

const FOCUSABLE = "a, button, input, select, [tabindex]";

/** As `setChildren`, and keep the keyboard focus on the link or field at the same position. */
export function updateChildren(container, ...children) {
  const focusable = [...container.querySelectorAll(FOCUSABLE)];
  const index = focusable.indexOf(document.activeElement);
  setChildren(container, ...children);
  if (index >= 0) container.querySelectorAll(FOCUSABLE)[index]?.focus({ preventScroll: true });
  return container;
}

/** A view's heading, with an introduction beside it. */
export const heading = (title, lead) =>
  make("div", { class: "head" }, make("h1", {}, title), lead && make("p", { class: "muted" }, lead));

/** A section with a title. */
export const section = (title, ...children) => make("section", {}, make("h2", {}, title), ...children);

const prioritySquare = (priority, ...before) => make("span", { class: `priority p${priority}` }, before, String(priority));

/** A priority as a small coloured badge, for places that say what it is. */
export const priorityBadge = (priority) =>
  prioritySquare(priority, make("span", { class: "visually-hidden" }, `${t("word.priority")} `));

/** A priority as a small coloured badge after its name. */
export const namedPriority = (priority) =>
  make("span", { class: "named" }, `${t("word.priority")} `, prioritySquare(priority));

/** A word in a coloured frame, such as a state. */
export const badge = (kind, text) => make("span", { class: `badge ${kind}` }, text);

/** A number with its name; `hint` explains it. */
export const figure = (name, value, hint, kind = "") =>
  make("div", { class: `figure ${kind}`, title: hint }, make("dt", {}, name), make("dd", {}, value));

/** A small square of a colour. */
export function swatch(colour) {
  const square = make("i", { class: "swatch" });
  square.style.background = colour;
  return square;
}

/** What stands where a list or chart is empty. */
export const emptyState = (title, text) =>
  make("div", { class: "empty-state" }, make("p", { class: "lead" }, title), text && make("p", {}, text));

/** A table that scrolls sideways when it is too wide; a cell's column name is its label on phones. */
export const scrollingTable = (label, headings, rows, kind = "") =>
  make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    make("table", { class: `grid ${kind}` }, make("thead", {}, make("tr", {}, headings)), make("tbody", {}, rows)),
  );

export const columnHeading = (text) => make("th", { scope: "col" }, text);

/** A row of a table, its first cell being its heading. */
export const tableRow = (cells, columns) =>
  make(
    "tr",
    {},
    cells.map((cell, index) =>
      make(index ? "td" : "th", { "data-label": columns[index], scope: index ? null : "row" }, cell),
    ),
  );

/** A labelled form field. */
export function field(label, input, hint) {
  const id = input.id || (input.id = `field-${(field.count = (field.count || 0) + 1)}`);
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return make(
    "div",
    { class: "field" },
    make("label", { for: id }, label),
    input,
    hint && make("small", { id: `${id}-hint` }, hint),
  );
}

/** A select box of pairs of value and text. */
export const select = (pairs, chosen, attributes = {}) =>
  make(
    "select",
    attributes,
    pairs.map(([value, text]) => make("option", { value, selected: value === chosen }, text)),
  );

/** A moment, in seconds since the epoch: its day, or with `isExact` also the time of day. */
export function timestamp(seconds, isExact = true) {
  const ms = seconds * 1000;
  const attributes = { datetime: new Date(ms).toISOString(), title: isExact ? null : dateTime(ms) };
  return make("time", attributes, isExact ? dateTime(ms) : date(ms));
}

/** Let the reader confirm an action; a line is text or an element. Resolves to true when it may be done. */
export function confirmAction(lines, action, title = t("act.sure")) {
  return new Promise((resolve) => {
    const dialog = make(
      "dialog",
      { "aria-labelledby": "dialog-title" },
      make(
        "form",
        { method: "dialog" },
        make("h2", { id: "dialog-title" }, title),
        lines.map((line) => (line instanceof Element ? line : make("p", {}, line))),
        make(
          "div",
          { class: "row end" },
          make("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, t("act.back")),
          make("button", { value: "yes", class: "main" }, action),
        ),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Show a short message that screen readers read out. */
export function notify(text, kind = "") {
  let container = document.getElementById("notifications");
  if (!container)
    document.body.append((container = make("div", { id: "notifications", role: "status", "aria-live": "polite" })));
  const line = make("p", { class: kind }, text);
  container.append(line);
  setTimeout(() => line.remove(), NOTIFICATION_MS);
}

/** Call a function a little after the last call. */
export function debounce(work, milliseconds = 250) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), milliseconds);
  };
}
