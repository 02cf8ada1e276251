// A customer's own documents: uploads with progress, and a list with the state and result of each document.

import { documentUrl, errorText, get, may, upload, withQuery } from "./api.js";
import { stateBadge, stateFilter } from "./documents.js";
import {
  documentName, emptyState, figure, heading, make, namedPriority, notify, priorityBadge, setChildren, updateChildren,
  userName,
} from "./dom.js";
import { bytes, dateTime, duration, number, percent, t } from "./i18n.js";
import { keptFigures } from "./kept.js";

const REFRESH_MS = 5000,
  EVENT_DELAY_MS = 400, // events of one moment cause one refresh
  SENT_SHOWN_MS = 8000,
  PAGE = 50,
  UPLOADS_MAX = 3;

/** Files on their way to the server, a few at a time. */
class Uploads {
  constructor(onSent) {
    this.onSent = onSent;
    this.list = make("ul", { class: "sending" });
    this.queue = [];
    this.active = 0;
  }

  add(files) {
    for (const file of files) {
      const bar = make("progress", { max: "1", value: "0", "aria-label": file.name }),
        status = make("span", { class: "muted" }, t("mine.queued"));
      const item = make("li", {}, userName(file.name), make("span", { class: "muted" }, bytes(file.size)), bar, status);
      const key = crypto.randomUUID ? crypto.randomUUID() : `${Date.now()}-${Math.random()}`; // none on plain HTTP
      this.list.prepend(item);
      this.queue.push({ file, bar, status, item, key });
    }
    this.start();
  }

  start() {
    while (this.active < UPLOADS_MAX && this.queue.length) {
      this.active++;
      this.send(this.queue.shift()).finally(() => (this.active--, this.start()));
    }
  }

  async send({ file, bar, status, item, key }) {
    try {
      const receipt = await upload(file, key, (share) => {
        bar.value = share;
        setChildren(status, percent(share));
      });
      bar.value = 1;
      setChildren(status, t("mine.sent", { priority: receipt.priority }));
      item.classList.add("sent");
      setTimeout(() => item.remove(), SENT_SHOWN_MS);
      this.onSent();
    } catch (error) {
      const retry = () => (item.remove(), this.add([file]));
      item.classList.add("failed");
      bar.remove();
      setChildren(status, errorText(error), " ", make("button", { class: "quiet", onclick: retry }, t("mine.again")));
    }
  }
}

/** The area onto which files are dropped, with a button to choose them. */
function dropArea(onFiles) {
  const input = make("input", {
    type: "file",
    multiple: true,
    class: "visually-hidden",
    id: "files",
    onchange: () => (onFiles([...input.files]), (input.value = "")),
  });
  const area = make(
    "div",
    { class: "drop" },
    make("p", { class: "lead" }, t("mine.drop")),
    input,
    make("label", { for: "files", class: "button main" }, t("mine.choose")),
    make("p", { class: "muted" }, t("mine.kinds")),
  );
  for (const name of ["dragenter", "dragover"])
    area.addEventListener(name, (event) => (event.preventDefault(), area.classList.add("over")));
  for (const name of ["dragleave", "drop"]) area.addEventListener(name, () => area.classList.remove("over"));
  area.addEventListener("drop", (event) => (event.preventDefault(), onFiles([...event.dataTransfer.files])));
  return area;
}

export class MyDocumentsView {
  constructor(container, session) {
    this.uploads = new Uploads(() => this.load());
    this.figures = make("dl", { class: "figures" });
    this.list = make("div");
    this.state = stateFilter(() => this.load());
    this.more = make("button", { class: "quiet", hidden: true, onclick: () => this.load(this.next) }, t("act.more"));
    this.pausedWarning = make("p", { class: "warning", hidden: true }, t("mine.paused"));
    this.documents = [];
    this.next = null;
    this.loads = 0;
    this.isClosed = false;
    setChildren(
      container,
      heading(t("nav.mine")),
      this.pausedWarning,
      this.figures,
      may(session, "submit") && dropArea((files) => this.uploads.add(files)),
      this.uploads.list,
      make(
        "section",
        {},
        make("div", { class: "tools" }, make("h2", {}, t("mine.list")), this.state),
        this.list,
        make("p", { class: "center" }, this.more),
      ),
    );
    this.load();
  }

  event() {
    this.eventTimer ??= setTimeout(() => {
      this.eventTimer = null;
      if (!this.isClosed) this.load();
    }, EVENT_DELAY_MS);
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    const count = this.uploads.queue.length;
    if (count) notify(t("mine.left", { count }));
  }

  async load(after) {
    const load = ++this.loads;
    clearTimeout(this.timer);
    try {
      const [me, page] = await Promise.all([
        get("/v1/me"),
        get(withQuery("/page/documents", { state: this.state.value, limit: PAGE, after })),
      ]);
      if (this.isClosed || load !== this.loads) return;
      this.documents = after ? [...this.documents, ...page.documents] : page.documents;
      this.next = page.next;
      this.draw(me.standing);
    } catch (error) {
      if (!this.isClosed && !this.documents.length) setChildren(this.list, emptyState(errorText(error)));
    }
    if (!this.isClosed && load === this.loads && this.documents.length <= PAGE)
      this.timer = setTimeout(() => this.load(), REFRESH_MS);
  }

  draw(standing) {
    this.more.hidden = !this.next;
    this.pausedWarning.hidden = !standing.paused;
    setChildren(this.figures, standingFigures(standing));
    const nothing = this.state.value
      ? emptyState(t("documents.none"), t("documents.none_found_more"))
      : emptyState(t("mine.none"), t("mine.none_more"));
    updateChildren(this.list, this.documents.length ? documentList(this.documents) : nothing);
  }
}

function standingFigures(standing) {
  const resetsIn = standing.counter < 0 && standing.resets_in > 0 ? duration(standing.resets_in) : t("mine.fresh");
  return [
    figure(t("column.waiting"), number(standing.waiting)),
    figure(t("column.running"), number(standing.running)),
    figure(t("mine.done"), number(standing.done)),
    figure(t("mine.next_priority"), priorityBadge(standing.next_priority), t("mine.next_priority_hint")),
    figure(t("mine.resets_in"), resetsIn, t("mine.resets_in_hint")),
    ...keptFigures(standing),
  ];
}

/** The extension of a file name, shown where there is no thumbnail. */
const extension = (name) => /\.([\p{L}\p{N}]{1,4})$/u.exec(name || "")?.[1].toUpperCase() ?? "";

const thumbnailImage = (id) =>
  make("img", {
    src: `${documentUrl(id)}/thumbnail`,
    alt: "",
    loading: "lazy",
    onerror: (event) => event.target.remove(),
  });

function documentList(documents) {
  const items = documents.map((item) => {
    const attributes = { class: "face", "aria-hidden": "true", "data-kind": extension(item.name) };
    const thumbnail = make("span", attributes, item.state === "done" && thumbnailImage(item.id));
    const link = make("a", { href: `#/mine/${encodeURIComponent(item.id)}` }, documentName(item));
    const details = [make("time", {}, dateTime(item.submitted_at * 1000)), item.size != null && ` · ${bytes(item.size)}`];
    return make(
      "li",
      {},
      thumbnail,
      make("span", { class: "words" }, link, make("small", {}, details)),
      stateBadge(item.state),
      namedPriority(item.priority),
    );
  });
  return make("ul", { class: "files" }, items);
}
