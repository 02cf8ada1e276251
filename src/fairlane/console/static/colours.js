// Colours of customers and priorities. A customer keeps its colour; colours differ while there are enough of them.

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

const assigned = new Map(); // customer: index of its colour

function hash(text) {
  let value = 2166136261;
  for (let index = 0; index < text.length; index++) value = Math.imul(value ^ text.charCodeAt(index), 16777619);
  return value >>> 0;
}

export function customerColour(customer) {
  let index = assigned.get(customer);
  if (index === undefined) {
    index = hash(customer) % COLOURS.length;
    const taken = new Set(assigned.values());
    if (assigned.size < COLOURS.length) while (taken.has(index)) index = (index + 1) % COLOURS.length;
    assigned.set(customer, index);
  }
  return COLOURS[index];
}
