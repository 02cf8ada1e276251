// Which colour has a customer? Always the same one on this page, and different ones while there are enough.

const COLOURS = [
  "#2f7ed8",
  "#e0842b",
  "#2e9e6b",
  "#c8446a",
  "#7d62c9",
  "#b8962e",
  "#2aa3b5",
  "#a85b3a",
  "#5d8f2f",
  "#c257b5",
  "#5470a8",
  "#d1605e",
];
export const OTHERS = "#8a949e";
export const PRIORITIES = ["#1b8a5a", "#4b9b4c", "#86a83c", "#b5a32e", "#cf9127", "#d77a2b", "#d66033", "#c8463c", "#a8324a"];

const given = new Map();

function hash(text) {
  let value = 2166136261;
  for (let place = 0; place < text.length; place++) value = Math.imul(value ^ text.charCodeAt(place), 16777619);
  return value >>> 0;
}

/** The colour of a customer. */
export function colourOf(customer) {
  let found = given.get(customer);
  if (found === undefined) {
    const first = hash(customer) % COLOURS.length;
    const taken = new Set(given.values());
    let place = first;
    if (given.size < COLOURS.length) while (taken.has(place)) place = (place + 1) % COLOURS.length;
    given.set(customer, (found = place));
  }
  return COLOURS[found];
}

export const colourOfPriority = (priority) => PRIORITIES[Math.min(9, Math.max(1, priority)) - 1];
