// Translations: catalogs, plural forms, and numbers, dates and durations in the reader's language.
//
// Laws:
// - Every word on the page comes from locales/*.json, and for admins from locales/admin/*.json; a key is written whole, or as
//   `prefix.${word}`.
// - A text with "{count}" may have a form for each plural category of its language.

export const LANGUAGES = { en: "English", pl: "Polski", pt: "Português", es: "Español", de: "Deutsch" };
const STORAGE_KEY = "fairlane.language";

const folders = ["locales"]; // of the catalogs that are loaded
let catalog = {};
let pluralRules, integerFormat, decimalFormat, percentFormat, dateTimeFormat, dateFormat, timeFormat;
export let language = "en";

function storedLanguage() {
  try {
    return localStorage.getItem(STORAGE_KEY);
  } catch {
    return null; // the browser may forbid storage
  }
}

/** The language that the reader chose, else the first of the browser's languages that has a catalog. */
export function preferredLanguage() {
  const codes = [storedLanguage(), ...(navigator.languages || [])].filter(Boolean).map((tag) => tag.slice(0, 2).toLowerCase());
  return codes.find((code) => code in LANGUAGES) || "en";
}

async function loadCatalog(folder, code) {
  const response = await fetch(`/static/${folder}/${code}.json`);
  if (!response.ok) throw new Error(`no catalog: ${folder}, ${code}`);
  return response.json();
}

/** Load the texts of further views, in this language and in those that are chosen later. */
export async function addCatalog(folder) {
  if (folders.includes(folder)) return;
  Object.assign(catalog, await loadCatalog(folder, language));
  folders.push(folder);
}

/** Load the catalogs of a language; with `remember` it is the reader's choice from now on. */
export async function loadLanguage(code, remember = false) {
  catalog = Object.assign({}, ...(await Promise.all(folders.map((folder) => loadCatalog(folder, code)))));
  language = code;
  if (remember) {
    try {
      localStorage.setItem(STORAGE_KEY, code);
    } catch {
      // the choice lasts until the page is closed
    }
  }
  pluralRules = new Intl.PluralRules(code);
  integerFormat = new Intl.NumberFormat(code, { maximumFractionDigits: 0 });
  decimalFormat = new Intl.NumberFormat(code, { maximumFractionDigits: 2 });
  percentFormat = new Intl.NumberFormat(code, { style: "percent", maximumFractionDigits: 0 });
  dateTimeFormat = new Intl.DateTimeFormat(code, { dateStyle: "medium", timeStyle: "medium" });
  dateFormat = new Intl.DateTimeFormat(code, { dateStyle: "medium" });
  timeFormat = new Intl.DateTimeFormat(code, { timeStyle: "short" });
  document.documentElement.lang = code;
}

/** Translate a key into parts: strings, and the nodes among the values. */
export function tParts(key, values = {}) {
  let text = catalog[key];
  if (text === undefined) return [key];
  if (typeof text === "object") text = text[pluralRules.select(Math.abs(values.count ?? 0))] ?? text.other;
  const parts = [];
  for (const piece of text.split(/(\{\w+\})/).filter(Boolean)) {
    const name = /^\{(\w+)\}$/.exec(piece);
    const value = name ? (values[name[1]] ?? piece) : piece;
    if (value instanceof Node) parts.push(value);
    else if (typeof value === "number") parts.push(number(value));
    else if (value.startsWith(".") && parts.at(-1)?.endsWith?.("."))
      parts.push(value.slice(1)); // an abbreviation such as "5 Min." brings its own full stop
    else parts.push(value);
  }
  return parts;
}

/** Translate a key into a string. */
export function t(key, values) {
  return tParts(key, values)
    .map((part) => (part instanceof Node ? part.textContent : part))
    .join("");
}

export const hasText = (key) => key in catalog;

/** A number; what is nothing, or rounded to nothing, has no sign. */
export function number(value) {
  if (value == null) return "–";
  const text = (Number.isInteger(value) ? integerFormat : decimalFormat).format(value);
  return text === "-0" ? "0" : text.replace(/^-/, "−");
}
export const percent = (share) => (share == null ? "–" : percentFormat.format(share));
export const dateTime = (ms) => dateTimeFormat.format(ms);
export const date = (ms) => dateFormat.format(ms);
export const timeOfDay = (ms) => timeFormat.format(ms);

const UNITS = [
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1],
];

function unitFor(seconds) {
  return UNITS.find(([, size]) => seconds >= 2 * size) || UNITS.at(-1);
}

/** A format with a unit. Polish gets short units: its long ones change with their place in a sentence. */
function unitFormat(unit, form, digits) {
  return new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay: language === "pl" ? "short" : form, ...digits });
}

/** A duration in one unit; `form` is "short" for tables and "long" for sentences. */
export function duration(seconds, form = "short") {
  if (seconds == null) return "–";
  const [unit, size] = unitFor(seconds);
  const value = form === "long" ? Math.max(1, Math.round(seconds / size)) : seconds / size;
  return unitFormat(unit, form, { maximumFractionDigits: value < 10 ? 1 : 0 }).format(value);
}

/** How long ago something was. */
export function ago(seconds) {
  const [unit, size] = unitFor(seconds);
  return new Intl.RelativeTimeFormat(language, { style: "short" }).format(-Math.round(seconds / size), unit);
}

/** A range of durations, in the unit of the longer one. */
export function durationRange(low, high) {
  const [unit, size] = unitFor(high);
  const [from, to] = [Math.floor(low / size), Math.max(1, Math.ceil(high / size))];
  const format = unitFormat(unit, "long", { maximumFractionDigits: 0 });
  return from >= to ? format.format(to) : format.formatRange(from, to);
}

const BYTE_UNITS = ["byte", "kilobyte", "megabyte", "gigabyte"];

/** The size of a file. */
export function bytes(count) {
  if (count == null) return "–";
  const power = Math.min(3, count < 1000 ? 0 : Math.floor(Math.log10(count) / 3));
  return unitFormat(BYTE_UNITS[power], power ? "short" : "long", { maximumSignificantDigits: 3 }).format(count / 1000 ** power);
}
