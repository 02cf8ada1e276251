// Keys, for admins: whose they are, what they may do, when they end and were last used; making, rotating and revoking them.
//
// Laws:
// - A key is shown once, right after it was made; it leaves the page with the view.
// - A key that somebody enters to find it stays in the browser: only its public part is sent or remembered.
// - Whoever rotates the key they are signed in with stays signed in: the new one would vanish with the session.

import { get, post, remove, withQuery } from "./api.js";
import { secretBox } from "./copy_box.js";
import {
  columnHeading, confirmAction, emptyState, field, heading, make, notify, scrollingTable, select, setChildren, tableRow,
  timestamp, updateChildren,
} from "./dom.js";
import { RememberedFilters } from "./filters.js";
import { duration, t, tParts } from "./i18n.js";
import { KeyForm } from "./key_form.js";
import { ROLES, holderCell, holderText, keyErrorText, keyName, scopesText, standing, whatStops } from "./key_texts.js";

const COLUMNS = ["keys.holder", "keys.may", "column.state", "keys.made", "keys.expires", "keys.used", "workers.action"];
const OVERLAPS = {
  0: "keys.overlap_none",
  86400: "keys.overlap_day",
  604800: "keys.overlap_week",
  2592000: "keys.overlap_month",
};
const OVERLAP_USUAL = "604800";
const PAGE = 200, // keys that the server sends at once
  PAGES_MAX = 5, // that are read before somebody asks for more
  ROWS = 200; // that are drawn at once
const URL_BASE = "/v1/keys";

const keyUrl = (id) => `${URL_BASE}/${encodeURIComponent(id)}`;

const isPublicPart = (text) => /^[0-9a-f]{16}$/.test(text);

/** The text to search for, without the secret part of a key. */
const withoutSecret = (text) => /^fl_([0-9a-f]{16}(?=_)|[^_]*(?=_.{20}))/.exec(text)?.[1] ?? text;

/** Those that end soon come first, then the newest. */
const byUrgency = (one, other) =>
  other.ends_soon - one.ends_soon || (one.ends_soon ? one.expires_at - other.expires_at : other.made_at - one.made_at);

class KeyFilters extends RememberedFilters {
  constructor(onchange) {
    super("keys", onchange);
    this.addText("search", t("keys.search"));
    const states = ["active", "expired", "revoked", "any"].map((state) => [state, t(`keys.only_${state}`)]);
    this.addChoice("state", states, t("column.state"));
    const roles = Object.entries(ROLES).map(([role, key]) => [role, t(key)]);
    this.addChoice("role", [["", t("keys.any_role")], ...roles], t("keys.for"));
  }

  get entered() {
    const { search } = this.fields,
      safe = withoutSecret(search.value.trim());
    if (safe !== search.value.trim()) search.value = safe; // before it is sent, remembered or seen by a neighbour
    return super.entered;
  }

  get query() {
    const { search, state, role } = this.entered;
    return { customer: search, state: state === "any" ? "" : state, role };
  }
}

export class KeysView {
  constructor(container) {
    this.filters = new KeyFilters(() => this.load());
    this.form = new KeyForm((key) => this.show(key, tParts("keys.made_done", { holder: holderText(key) })));
    this.secret = make("div", { class: "message" });
    this.warning = make("div", { class: "message" });
    this.list = make("div");
    this.status = make("p", { class: "muted", role: "status" }, t("lanes.loading"));
    this.more = make("button", { class: "quiet", hidden: true, onclick: () => this.showMore() }, t("act.more"));
    this.keys = [];
    this.loads = 0;
    const { search, state, role } = this.filters.fields;
    setChildren(
      container,
      heading(t("nav.keys"), t("keys.lead")),
      this.secret,
      this.warning,
      make("details", { class: "card" }, make("summary", {}, t("keys.make_title")), this.form.element),
      make("div", { class: "tools" }, search, state, role, this.status),
      this.list,
      make("p", { class: "center" }, this.more),
    );
    this.load();
  }

  close() {
    this.loads++;
    setChildren(this.secret);
  }

  // -- reading ---------------------------------------------------------------------------------------------------------

  async load() {
    const load = ++this.loads;
    try {
      this.me ??= (await get("/v1/me")).key;
      const found = await this.findById();
      if (load !== this.loads) return;
      this.keys = found ? [found] : [];
      this.next = found ? null : withQuery(URL_BASE, { ...this.filters.query, limit: PAGE });
      this.rows = ROWS;
      await this.read(load);
    } catch (error) {
      if (load === this.loads) setChildren(this.status, keyErrorText(error));
    }
  }

  /** The key whose id was entered, or null; a customer may be called like an id. */
  async findById() {
    const { search = "" } = this.filters.entered;
    try {
      return isPublicPart(search) ? await get(keyUrl(search)) : null;
    } catch (error) {
      if (error.status === 404) return null;
      throw error;
    }
  }

  /** Read further keys, some pages at most: the server sorts them by their ids, which are random. */
  async read(load) {
    for (let pages = 0; this.next && pages < PAGES_MAX; pages++) {
      const page = await get(this.next);
      if (load !== this.loads) return;
      this.keys.push(...page.keys);
      this.next = page.next;
    }
    this.keys.sort(byUrgency);
    this.draw();
  }

  async showMore() {
    const load = this.loads;
    this.rows += ROWS;
    try {
      if (this.rows > this.keys.length && this.next) await this.read(load);
      else this.draw();
    } catch (error) {
      notify(keyErrorText(error), "bad");
    }
  }

  // -- drawing ---------------------------------------------------------------------------------------------------------

  draw() {
    const columns = COLUMNS.map((key) => t(key)),
      shown = this.keys.slice(0, this.rows),
      ending = this.keys.filter((key) => key.ends_soon);
    setChildren(this.status, t(this.next ? "keys.total_some" : "keys.total", { count: this.keys.length }));
    const warning = () =>
      tParts("keys.ending", { count: ending.length, date: timestamp(ending[0].expires_at, false) });
    setChildren(this.warning, ending.length > 0 && make("p", { class: "warning" }, warning()));
    const rows = shown.map((key) => tableRow(this.cells(key), columns));
    const table = () => scrollingTable(t("nav.keys"), columns.map(columnHeading), rows, "keys");
    updateChildren(this.list, shown.length ? table() : emptyState(t("keys.none"), t("keys.none_more")));
    this.more.hidden = shown.length === this.keys.length && !this.next;
  }

  cells(key) {
    const used = key.last_used_at == null ? t("keys.never_used") : timestamp(key.last_used_at);
    const ends = key.expires_at == null ? t("keys.never") : timestamp(key.expires_at, false);
    const history = make("a", { href: `#/audit?who=${encodeURIComponent(key.id)}` }, t("keys.history"));
    const buttons = key.state === "active" && [
      !key.replaced_by && this.button("keys.rotate", key, () => this.rotate(key)),
      this.button("keys.revoke", key, () => this.revoke(key)),
    ];
    return [
      holderCell(key, key.id === this.me), scopesText(key), standing(key), timestamp(key.made_at, false), ends, used,
      make("div", { class: "row" }, buttons, history),
    ];
  }

  button(action, key, onclick) {
    const which = make("span", { class: "visually-hidden" }, ": ", keyName(key));
    return make("button", { class: "quiet", onclick }, t(action), which);
  }

  /** Show a key that was made, this once, and list it. */
  show(key, ...sentences) {
    const done = make("button", { class: "quiet", onclick: () => setChildren(this.secret) }, t("keys.stored"));
    setChildren(this.secret, secretBox([...sentences, t("keys.once")], key.key, done));
    this.secret.firstChild.focus();
    this.load();
  }

  // -- changing --------------------------------------------------------------------------------------------------------

  async rotate(key) {
    const isOwn = key.id === this.me;
    const overlaps = Object.entries(OVERLAPS).filter(([seconds]) => !isOwn || seconds !== "0");
    const overlap = select(overlaps.map(([seconds, text]) => [seconds, t(text)]), OVERLAP_USUAL);
    const time = key.expires_at != null && duration(key.expires_at - key.made_at, "long");
    const lines = [
      tParts("keys.rotate_ask", { key: keyName(key), holder: holderText(key) }),
      time ? t("keys.rotate_expiry", { time }) : t("keys.rotate_no_expiry"),
      field(t("keys.overlap"), overlap, t(isOwn ? "keys.overlap_own" : "keys.overlap_hint")),
    ];
    if (!(await confirmAction(lines, t("keys.rotate")))) return;
    try {
      const made = await post(`${keyUrl(key.id)}/rotate`, { overlap: +overlap.value });
      const until = Math.min(made.made_at + +overlap.value, key.expires_at ?? Infinity);
      const text = overlap.value === "0" ? "keys.rotated_now" : "keys.rotated";
      this.show(made, tParts(text, { holder: holderText(key), time: timestamp(until) }));
    } catch (error) {
      notify(keyErrorText(error), "bad");
      this.load();
    }
  }

  async revoke(key) {
    const lines = [
      tParts("keys.revoke_ask", { key: keyName(key), holder: holderText(key) }),
      whatStops(key),
      key.last_used_at == null ? t("keys.revoke_unused") : tParts("keys.revoke_used", { time: timestamp(key.last_used_at) }),
      ...(key.id === this.me ? [make("p", { class: "warning" }, t("keys.revoke_own"))] : []),
    ];
    if (!(await confirmAction(lines, t("keys.revoke")))) return;
    try {
      await remove(keyUrl(key.id));
      notify(t("keys.revoked"));
    } catch (error) {
      notify(keyErrorText(error), "bad");
    }
    this.load();
  }
}
