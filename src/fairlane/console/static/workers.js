// The workers of the queue: where each runs, what it takes and has in hand, and the button that drains it.

import { errorText, get, may, post } from "./api.js";
import {
  badge, columnHeading, confirmAction, customerLink, emptyState, heading, make, notify, scrollingTable, setChildren, tableRow,
  updateChildren, userName,
} from "./dom.js";
import { ago, dateTime, duration, number, t, tParts } from "./i18n.js";

const COLUMNS = [
  "workers.worker", "workers.state", "workers.busy", "workers.kinds", "workers.documents", "workers.since", "workers.report",
  "workers.version", "workers.action",
];
const BADGES = { working: "running", draining: "paused", drained: "paused", gone: "failed" };
const REFRESH_MS = 3000,
  KINDS_SHOWN = 5,
  DOCUMENTS_SHOWN = 4;

const workerUrl = (worker) => `/v1/workers/${encodeURIComponent(worker.instance)}`;

function kindsCell(kinds) {
  if (!kinds) return t("workers.kinds_many");
  const more = kinds.length > KINDS_SHOWN && t("workers.more", { count: kinds.length - KINDS_SHOWN });
  return make("ul", { class: "commas" }, [...kinds.slice(0, KINDS_SHOWN).map((kind) => userName(kind)), more].map(listItem));
}

const listItem = (content) => content && make("li", {}, content);

function documentItem(item) {
  const link = make("a", { href: `#/documents/${encodeURIComponent(item.id)}` }, make("code", {}, item.id.slice(-12)));
  const seconds = item.running_for != null && ` ${duration(item.running_for).replace(" ", "\u00a0")}`;
  return [link, " ", customerLink(item.customer), seconds];
}

function documentsCell(documents) {
  if (!documents.length) return "–";
  const more = documents.length > DOCUMENTS_SHOWN && t("workers.more", { count: documents.length - DOCUMENTS_SHOWN });
  return make("ul", {}, [...documents.slice(0, DOCUMENTS_SHOWN).map(documentItem), more].map(listItem));
}

function versionCell(worker) {
  const outdated = worker.is_outdated && badge("failed", t("workers.outdated"));
  return make("span", { title: worker.is_outdated ? t("workers.outdated_more") : null }, worker.version, " ", outdated);
}

/** A container that names the kinds that wait although no worker takes them; it is drawn again only when they change. */
export class UnservedWarnings {
  constructor() {
    this.container = make("div", { role: "alert" });
    this.shown = "[]";
  }

  draw(unserved) {
    const kinds = unserved.map(({ kind, is_draining }) => [kind, is_draining]);
    if (JSON.stringify(kinds) === this.shown) return;
    this.shown = JSON.stringify(kinds);
    const sentences = kinds.map(([kind, isDraining]) =>
      tParts(isDraining ? "workers.all_draining" : "workers.unserved", { kind: userName(kind) }),
    );
    setChildren(
      this.container,
      sentences.map((sentence) => make("p", { class: "warning" }, sentence)),
    );
  }
}

export class WorkersView {
  constructor(container, session) {
    this.mayOperate = may(session, "operate");
    this.workers = null;
    this.loads = 0;
    this.list = make("div", {}, make("p", { class: "muted" }, t("lanes.loading")));
    this.status = make("p", { class: "muted", role: "status" });
    this.warnings = new UnservedWarnings();
    setChildren(
      container,
      make("div", { class: "tools" }, heading(t("nav.workers"), t("workers.lead")), this.status),
      this.warnings.container,
      this.list,
    );
    this.load();
  }

  close() {
    this.loads++;
    clearTimeout(this.timer);
  }

  async load(isRefresh) {
    const load = ++this.loads;
    clearTimeout(this.timer);
    try {
      const { workers, unserved } = await get("/v1/workers");
      if (load !== this.loads) return;
      this.workers = workers;
      this.warnings.draw(unserved);
      this.draw();
    } catch (error) {
      if (load === this.loads && !isRefresh) setChildren(this.status, errorText(error));
    }
    if (load === this.loads) this.timer = setTimeout(() => this.load(true), REFRESH_MS);
  }

  draw() {
    const present = this.workers.filter((worker) => worker.state !== "gone");
    const slots = present.reduce((sum, worker) => sum + worker.slots, 0),
      busy = present.reduce((sum, worker) => sum + worker.documents.length, 0);
    setChildren(this.status, this.workers.length > 0 && t("workers.total", { count: present.length, busy, slots }));
    if (!this.workers.length) return setChildren(this.list, emptyState(t("workers.none"), t("workers.none_more")));
    const columns = COLUMNS.filter((key) => this.mayOperate || key !== "workers.action").map((key) => t(key));
    const rows = this.workers.map((worker) => tableRow(this.cells(worker), columns));
    return updateChildren(this.list, scrollingTable(t("nav.workers"), columns.map(columnHeading), rows));
  }

  cells(worker) {
    const cells = [
      [userName(worker.name), make("br"), make("small", {}, userName(worker.host))],
      badge(BADGES[worker.state], t(`workers.state_${worker.state}`)),
      `${number(worker.documents.length)} / ${number(worker.slots)}`,
      kindsCell(worker.kinds),
      documentsCell(worker.documents),
      make("time", { datetime: new Date(worker.started_at * 1000).toISOString() }, dateTime(worker.started_at * 1000)),
      ago(worker.silent_for).replaceAll(" ", "\u00a0"),
      versionCell(worker),
    ];
    return this.mayOperate ? [...cells, this.button(worker)] : cells;
  }

  button(worker) {
    if (worker.state === "gone") return "–";
    const isWorking = worker.state === "working";
    const [action, question] = isWorking
      ? ["workers.drain", "workers.drain_ask"]
      : ["workers.undrain", "workers.undrain_ask"];
    const done = isWorking ? "workers.drain_done" : "workers.undrain_done";
    const onclick = async () => {
      const count = worker.documents.length;
      const key = isWorking && !count ? "workers.drain_ask_idle" : question;
      const sentence = tParts(key, { worker: userName(worker.name), count });
      if (!(await confirmAction([sentence], t(action)))) return;
      try {
        await post(`${workerUrl(worker)}/${isWorking ? "drain" : "undrain"}`);
        notify(t(done));
        this.load(true);
      } catch (error) {
        notify(errorText(error), "bad");
      }
    };
    return make("button", { class: "quiet", onclick, "aria-label": `${t(action)}: ${worker.name}` }, t(action));
  }
}
