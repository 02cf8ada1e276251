// Filters of a list, which the address remembers, so that a search can be kept and sent to others.

import { withQuery } from "./api.js";
import { debounce, make, select } from "./dom.js";

/** Midnight of a day of a date field, so many days later, in seconds since the epoch; empty if no day was chosen. */
function midnight(day, daysLater = 0) {
  const [year, month, date] = day.split("-").map(Number);
  return day && new Date(year, month - 1, date + daysLater).getTime() / 1000;
}

/** Fields by name; `view` is the name of the view in the address, `onchange` is called after every change. */
export class RememberedFilters {
  constructor(view, onchange) {
    this.view = view;
    this.remembered = new URLSearchParams(location.hash.split("?")[1] || "");
    this.changed = () => {
      if (location.hash.split("?")[0] !== `#/${view}`) return; // somebody typed and left the view at once
      this.remember();
      onchange();
    };
    this.changedLater = debounce(this.changed);
    this.fields = {};
  }

  addText(name, label) {
    const value = this.remembered.get(name) || "";
    const attributes = { type: "search", placeholder: label, "aria-label": label, value, oninput: this.changedLater };
    this.fields[name] = make("input", attributes);
  }

  addDay(name) {
    this.fields[name] = make("input", { type: "date", value: this.remembered.get(name) || "", onchange: this.changed });
  }

  /** A select box of pairs; an address that does not name one of them stands for the first. */
  addChoice(name, pairs, label) {
    const chosen = this.remembered.get(name) || "";
    this.fields[name] = select(pairs, chosen, { "aria-label": label, onchange: this.changed });
  }

  /** A date field with its label. */
  dated(name, label) {
    return make("label", { class: "dated" }, make("span", {}, label), this.fields[name]);
  }

  /** The values that were entered, by name. */
  get entered() {
    const pairs = Object.entries(this.fields).map(([name, field]) => [name, field.value.trim()]);
    return Object.fromEntries(pairs.filter(([, value]) => value));
  }

  /** The same as the server takes them: a day is from midnight to midnight, here. */
  get query() {
    const { since = "", until = "", ...others } = this.entered;
    return { ...others, since: midnight(since), until: midnight(until, 1) };
  }

  remember() {
    history.replaceState(null, "", withQuery(`#/${this.view}`, this.entered));
  }
}
