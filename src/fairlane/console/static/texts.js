// How is it said in the reader's language? Catalogs, plural forms, numbers, dates and durations.
//
// Laws:
// - Every word on the page comes from locales/*.json; a key is written whole, or as `prefix.${word}`.
// - A text with "{count}" may have a form for each plural category of its language.

export const LANGUAGES = { en: "English", pl: "Polski", pt: "Português", es: "Español", de: "Deutsch" };
const KEPT = "fairlane.language";

let catalog = {};
let plural, whole, decimal, percent, moment, clock, day;
export let language = "en";

function kept() {
  try {
    return localStorage.getItem(KEPT);
  } catch {
    return null; // storage may be forbidden
  }
}

/** The language that was chosen, else the first one of the browser that we have. */
export function wanted() {
  const asked = [kept(), ...(navigator.languages || [])].filter(Boolean).map((one) => one.slice(0, 2).toLowerCase());
  return asked.find((one) => one in LANGUAGES) || "en";
}

/** Load a catalog; with `remember` it is the choice from now on. */
export async function speak(asked, remember = false) {
  const answer = await fetch(`/static/locales/${asked}.json`);
  if (!answer.ok) throw new Error(`no catalog: ${asked}`);
  catalog = await answer.json();
  language = asked;
  if (remember) {
    try {
      localStorage.setItem(KEPT, asked);
    } catch {
      // the choice holds until the page is closed
    }
  }
  plural = new Intl.PluralRules(asked);
  whole = new Intl.NumberFormat(asked, { maximumFractionDigits: 0 });
  decimal = new Intl.NumberFormat(asked, { maximumFractionDigits: 2 });
  percent = new Intl.NumberFormat(asked, { style: "percent", maximumFractionDigits: 0 });
  moment = new Intl.DateTimeFormat(asked, { dateStyle: "medium", timeStyle: "medium" });
  clock = new Intl.DateTimeFormat(asked, { timeStyle: "short" });
  day = new Intl.DateTimeFormat(asked, { dateStyle: "full" });
  document.documentElement.lang = asked;
}

/** The text of a key as pieces: strings, and the nodes that were given for names. */
export function rich(key, values = {}) {
  let told = catalog[key];
  if (told === undefined) return [key];
  if (typeof told === "object") told = told[plural.select(Math.abs(values.count ?? 0))] ?? told.other;
  const pieces = [];
  for (const piece of told.split(/(\{\w+\})/).filter(Boolean)) {
    const name = /^\{(\w+)\}$/.exec(piece);
    const value = name ? (values[name[1]] ?? piece) : piece;
    if (value instanceof Node) pieces.push(value);
    else if (typeof value === "number") pieces.push(number(value));
    else if (value.startsWith(".") && pieces.at(-1)?.endsWith?.("."))
      pieces.push(value.slice(1)); // "5 Min." ends a sentence too
    else pieces.push(value);
  }
  return pieces;
}

/** The text of a key. */
export function say(key, values) {
  return rich(key, values)
    .map((piece) => (piece instanceof Node ? piece.textContent : piece))
    .join("");
}

/** Whether the catalog has this key. */
export const has = (key) => key in catalog;

export const number = (value) =>
  value == null ? "–" : (Number.isInteger(value) ? whole : decimal).format(value).replace(/^-/, "−");
export const share = (value) => (value == null ? "–" : percent.format(value));
export const dateTime = (ms) => moment.format(ms);
export const timeOfDay = (ms) => clock.format(ms);
export const date = (ms) => day.format(ms);

const SIZES = [
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1],
];

function unitFor(seconds) {
  return SIZES.find(([, size]) => seconds >= 2 * size) || SIZES.at(-1);
}

/** Numbers with a unit. Polish bends the long words of units by their place in a sentence, so it gets the short ones. */
function inUnit(unit, form, digits) {
  return new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay: language === "pl" ? "short" : form, ...digits });
}

/** A time span in one unit; `form` is "short" for tables and "long" for sentences. */
export function duration(seconds, form = "short") {
  if (seconds == null) return "–";
  const [unit, size] = unitFor(seconds);
  const value = form === "long" ? Math.max(1, Math.round(seconds / size)) : seconds / size;
  return inUnit(unit, form, { maximumFractionDigits: value < 10 ? 1 : 0 }).format(value);
}

/** From a span to another, in the unit of the longer one. */
export function durationRange(low, high) {
  const [unit, size] = unitFor(high);
  const [from, to] = [Math.floor(low / size), Math.max(1, Math.ceil(high / size))];
  const format = inUnit(unit, "long", { maximumFractionDigits: 0 });
  return from >= to ? format.format(to) : format.formatRange(from, to);
}

const BYTES = ["byte", "kilobyte", "megabyte", "gigabyte"];

/** The size of a file. */
export function bytes(count) {
  if (count == null) return "–";
  const step = Math.min(3, count < 1000 ? 0 : Math.floor(Math.log10(count) / 3));
  return inUnit(BYTES[step], step ? "short" : "long", { maximumSignificantDigits: 3 }).format(count / 1000 ** step);
}
