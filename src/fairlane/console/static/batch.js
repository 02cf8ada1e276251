// One batch: how far it is, how many of its documents are in which state, and the documents themselves.

import { errorText, get, isStaff, withQuery } from "./api.js";
import { documentsTable, stateFilter } from "./documents.js";
import { STATES, customerLink, emptyState, figure, make, setChildren, updateChildren, userName } from "./dom.js";
import { dateTime, duration, number, t, tParts } from "./i18n.js";

const REFRESH_MS = 3000,
  PAGE = 50;

export class BatchView {
  constructor(container, id, session) {
    this.url = `/page/batches/${encodeURIComponent(id)}`;
    this.address = `#/batches/${encodeURIComponent(id)}`;
    this.isStaff = isStaff(session);
    this.documents = [];
    this.next = null;
    this.loads = 0;
    this.summary = make("div", { class: "stack" });
    this.list = make("div");
    this.state = stateFilter(() => (this.remember(), this.load()), this.remembered);
    this.more = make("button", { class: "quiet", hidden: true, onclick: () => this.load(this.next) }, t("act.more"));
    this.listed = make(
      "section",
      { class: "stack", hidden: true },
      make("div", { class: "tools" }, make("h2", {}, t("nav.documents")), this.state),
      this.list,
      make("p", { class: "center" }, this.more),
    );
    const [href, key] = this.isStaff ? ["#/documents", "nav.documents"] : ["#/mine", "nav.mine"];
    setChildren(container, make("p", {}, make("a", { href }, `← ${t(key)}`)), this.summary, this.listed);
    this.load();
  }

  /** The state that the address names, so that what is shown can be kept and sent to others. */
  get remembered() {
    const state = new URLSearchParams(location.hash.split("?")[1] || "").get("state");
    return STATES.includes(state) ? state : "";
  }

  remember() {
    history.replaceState(null, "", withQuery(this.address, { state: this.state.value }));
  }

  close() {
    this.loads++;
    clearTimeout(this.timer);
  }

  async load(after) {
    const load = ++this.loads;
    clearTimeout(this.timer);
    let isEnded = false;
    try {
      const page = await get(withQuery(this.url, { state: this.state.value, limit: PAGE, after }));
      if (load !== this.loads) return;
      this.documents = after ? [...this.documents, ...page.documents] : page.documents;
      this.next = page.next;
      isEnded = page.ended === page.batch.documents;
      this.draw(page);
    } catch (error) {
      if (load !== this.loads) return;
      if (error.status === 404)
        return setChildren(this.summary, emptyState(t("batch.not_found"), t("document.missing_more")));
      if (this.listed.hidden) setChildren(this.summary, emptyState(errorText(error)));
    }
    if (!isEnded && this.documents.length <= PAGE) this.timer = setTimeout(() => this.load(), REFRESH_MS);
  }

  draw(page) {
    updateChildren(this.summary, this.summarySections(page));
    updateChildren(this.list, documentsTable(this.documents, false, this.isStaff ? "documents" : "mine"));
    this.more.hidden = !this.next;
    this.listed.hidden = false;
  }

  summarySections({ batch, counts, missing, ended, expected_in: expectedIn }) {
    const share = make("progress", { max: batch.documents, value: ended, "aria-label": t("batch.progress") });
    const sentences = [tParts("batch.ended", { ended, count: batch.documents })];
    if (expectedIn > 0) sentences.push(" ", tParts("batch.expected", { time: duration(expectedIn, "long") }));
    const figures = STATES.map((state) => figure(t(`state.${state}`), number(counts[state] ?? 0)));
    if (missing) figures.push(figure(t("batch.missing"), number(missing), t("batch.missing_hint")));
    const facts = [
      this.isStaff && ["column.customer", customerLink(batch.customer)],
      ["document.id", make("code", {}, batch.id)],
      batch.key && ["document.key", make("code", {}, batch.key)],
      ["document.submitted", dateTime(batch.made_at * 1000)],
    ].filter(Boolean);
    return [
      make("div", { class: "head" }, make("h1", {}, t("batch.title"), " ", userName(batch.key || batch.id))),
      make("section", { class: "card answer" }, make("p", { class: "story" }, sentences), share),
      make("dl", { class: "figures" }, figures),
      make(
        "dl",
        { class: "facts" },
        facts.map(([key, value]) => [make("dt", {}, t(key)), make("dd", {}, value)]),
      ),
    ];
  }
}
