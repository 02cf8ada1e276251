// How are pieces of the page made? Elements, names of others, buttons, questions and messages.
//
// Laws:
// - Text is set as text, never as HTML: there is no way here to make markup from a string.
// - What people named themselves (customers, files) stands in <bdi>, is cut by the style, and is whole in its title.

import { say } from "./texts.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(element, told, children) {
  for (const [name, value] of Object.entries(told)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** An element: make("a", {href}, "text", child). */
export const make = (tag, told = {}, ...children) => fill(document.createElement(tag), told, children);

/** An element of a drawing. */
export const draw = (tag, told = {}, ...children) => fill(document.createElementNS(SVG, tag), told, children);

/** A name that somebody else chose. */
export const named = (text, kind = "name") => make("bdi", { class: kind, title: text }, text);

/** Put these children in place of what was there. */
export function show(place, ...children) {
  place.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return place;
}

const REACHED = "a, button, input, select, [tabindex]";

/** As `show`, but whoever was on the third link with the keyboard is on the third link again. */
export function redraw(place, ...children) {
  const at = place.contains(document.activeElement) ? [...place.querySelectorAll(REACHED)].indexOf(document.activeElement) : -1;
  show(place, ...children);
  if (at >= 0) place.querySelectorAll(REACHED)[at]?.focus({ preventScroll: true });
  return place;
}

/** A priority as a small plate. */
export const plate = (priority) =>
  make(
    "span",
    { class: `plate p${priority}` },
    make("span", { class: "unseen" }, `${say("word.priority")} `),
    String(priority),
  );

/** Something of a state: done, waiting, failed. */
export const badge = (word, text) => make("span", { class: `badge ${word}` }, text);

/** A figure with its name; `hint` says more. */
export const figure = (name, value, hint, kind = "") =>
  make("div", { class: `figure ${kind}`, title: hint }, make("dt", {}, name), make("dd", {}, value));

/** What is told where there is nothing yet. */
export const nothing = (title, text, ...more) =>
  make("div", { class: "nothing" }, make("p", { class: "lead" }, title), text && make("p", {}, text), ...more);

/** A labelled field. */
export function field(label, input, hint) {
  const id = input.id || (input.id = `field-${(field.count = (field.count || 0) + 1)}`);
  const told = hint && make("small", { id: `${id}-hint` }, hint);
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return make("div", { class: "field" }, make("label", { for: id }, label), input, told);
}

/** A choice out of pairs of value and text. */
export function choice(pairs, chosen, told = {}) {
  return make(
    "select",
    told,
    pairs.map(([value, text]) => make("option", { value, selected: value === chosen }, text)),
  );
}

/** Ask before something is done; resolves to true when it may be done. */
export function ask(title, lines, yes, kind = "") {
  return new Promise((resolve) => {
    const dialog = make(
      "dialog",
      { "aria-labelledby": "ask-title" },
      make(
        "form",
        { method: "dialog" },
        make("h2", { id: "ask-title" }, title),
        lines.map((line) => make("p", {}, line)),
        make(
          "div",
          { class: "row end" },
          make("button", { value: "no", class: "quiet" }, say("act.back")),
          make("button", { value: "yes", class: kind || "main" }, yes),
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

/** A short message that is also read out. */
export function tell(text, kind = "") {
  let place = document.getElementById("told");
  if (!place) document.body.append((place = make("div", { id: "told", role: "status", "aria-live": "polite" })));
  const line = make("p", { class: kind }, text);
  place.append(line);
  setTimeout(() => line.remove(), 6000);
}

/** Do `work` a little after the last call. */
export function later(work, milliseconds = 250) {
  let timer;
  return (...told) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...told), milliseconds);
  };
}
