// One document: when it will start and why it has its priority, its history, and its result.

import { documentUrl, errorText, fetchText, get, isStaff, may, patch, post, remove } from "./api.js";
import { stateBadge } from "./documents.js";
import {
  batchLink, confirmAction, customerLink, emptyState, make, namedPriority, notify, priorityBadge, section, setChildren,
  updateChildren, userName,
} from "./dom.js";
import { bytes, dateTime, duration, durationRange, hasText, number, percent, t, tParts } from "./i18n.js";
import { payloadSection } from "./payload.js";
import { choosePriority } from "./priority.js";

const REFRESH_MS = 2000,
  TEXT_SHOWN = 6000;
const ENDED = ["done", "failed", "cancelled"],
  WAITING = ["ready", "delayed"];
const HOLDS = ["paused", "cap", "kind_running", "kind_rate"]; // they keep a document from being taken, whoever is ahead of it
const OFFICE = "application/vnd.openxmlformats-officedocument.";
// Names that are the same in every language; other formats are shown as their media type.
const FORMATS = {
  "application/pdf": "PDF",
  "application/zip": "ZIP",
  "application/rtf": "RTF",
  "application/msword": "Word (DOC)",
  "application/vnd.ms-excel": "Excel (XLS)",
  "application/vnd.ms-excel.sheet.binary.macroenabled.12": "Excel (XLSB)",
  "application/vnd.ms-powerpoint": "PowerPoint (PPT)",
  "application/vnd.ms-outlook": "Outlook (MSG)",
  "application/vnd.oasis.opendocument.text": "OpenDocument (ODT)",
  "application/vnd.oasis.opendocument.spreadsheet": "OpenDocument (ODS)",
  "application/vnd.oasis.opendocument.presentation": "OpenDocument (ODP)",
  "application/epub+zip": "EPUB",
  "application/gzip": "GZ",
  "application/mbox": "MBOX",
  "application/x-bzip2": "BZ2",
  "application/x-tar": "TAR",
  "application/x-xz": "XZ",
  [`${OFFICE}wordprocessingml.document`]: "Word (DOCX)",
  [`${OFFICE}spreadsheetml.sheet`]: "Excel (XLSX)",
  [`${OFFICE}presentationml.presentation`]: "PowerPoint (PPTX)",
  "message/rfc822": "EML",
  "text/calendar": "iCalendar (ICS)",
  "text/csv": "CSV",
  "text/html": "HTML",
  "text/markdown": "Markdown",
  "text/plain": "TXT",
  "text/vcard": "vCard (VCF)",
  "image/avif": "AVIF",
  "image/bmp": "BMP",
  "image/heic": "HEIC",
  "image/jp2": "JPEG 2000",
  "image/jpeg": "JPEG",
  "image/png": "PNG",
  "image/svg+xml": "SVG",
  "image/tiff": "TIFF",
};

/** The sentences that explain a document's priority. */
function priorityReason({ why, document: item }) {
  const values = {
    priority: priorityBadge(why.priority),
    counter: number(why.counter),
    customer: userName(item.customer),
    interval: duration(why.reset_interval, "long"),
  };
  const sentences = [];
  if (why.no_better_than === why.priority) sentences.push(tParts("why.no_better", values));
  else if (why.was_retried) sentences.push(tParts("why.retried", values));
  else if (why.was_reset && why.silence == null) sentences.push(tParts("why.first", values));
  else if (why.was_reset && why.silence <= why.reset_interval) sentences.push(tParts("why.back", values));
  else if (why.was_reset) sentences.push(tParts("why.reset", { ...values, silence: duration(why.silence, "long") }));
  else if (why.priority === 1) sentences.push(tParts("why.light", values));
  else if (why.threshold == null) sentences.push(tParts("why.changed_since", values));
  else if (why.reset === "sliding")
    sentences.push(tParts("why.below_sliding", { ...values, threshold: number(why.threshold) }));
  else sentences.push(tParts("why.below", { ...values, threshold: number(why.threshold) }));
  const later = { priority: priorityBadge(item.priority) };
  if (item.set_by_hand) sentences.push(tParts("why.by_hand", later));
  else if (item.priority !== why.priority) sentences.push(tParts("why.new_table", later));
  if (why.weight !== undefined && why.weight !== 1) sentences.push(tParts("why.weight", { weight: number(why.weight) }));
  if (why.cost !== undefined && why.cost !== 1) sentences.push(tParts("why.cost", { cost: number(why.cost) }));
  return sentences;
}

/** The sentences about what is ahead of a waiting document, unless it is delayed, and when it will start. */
function outlookSentences(outlook, isDelayed) {
  if (!outlook) return [];
  if (HOLDS.includes(outlook.blocked)) return [tParts(`outlook.${outlook.blocked}`)];
  const sentences = [];
  if (outlook.ahead != null && !isDelayed)
    sentences.push(outlook.ahead ? tParts("outlook.ahead", { count: outlook.ahead }) : tParts("outlook.next"));
  if (["no_worker", "unserved", "draining"].includes(outlook.blocked)) sentences.push(tParts(`outlook.${outlook.blocked}`));
  else if (outlook.low != null && outlook.high != null)
    sentences.push(tParts("outlook.range", { range: durationRange(outlook.low, outlook.high) }));
  else if (outlook.likely != null) sentences.push(tParts("outlook.likely", { time: duration(outlook.likely, "long") }));
  else sentences.push(tParts("outlook.unknown"));
  return sentences;
}

export class DocumentView {
  constructor(container, id, session) {
    this.id = id;
    this.isStaff = isStaff(session);
    this.mayManage = may(session, "manage");
    this.mayOperate = may(session, "operate");
    this.body = make("div", { class: "stack" });
    this.isClosed = false;
    this.drawn = ""; // the response that is shown
    this.result = null;
    const [href, key] = this.isStaff ? ["#/documents", "nav.documents"] : ["#/mine", "nav.mine"];
    this.container = setChildren(container, make("p", {}, make("a", { href }, `← ${t(key)}`)), this.body);
    this.load();
  }

  event() {
    this.load();
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
  }

  async load() {
    clearTimeout(this.timer);
    try {
      const details = await get(`/page/documents/${encodeURIComponent(this.id)}`);
      if (this.isClosed) return;
      await this.draw(details);
      if (!this.isClosed && !ENDED.includes(details.document.state)) this.refreshLater();
    } catch (error) {
      if (this.isClosed) return;
      if (error.status === 404) {
        setChildren(this.body, emptyState(t("document.missing"), t("document.missing_more")));
      } else {
        if (!this.drawn) setChildren(this.body, emptyState(errorText(error)));
        this.refreshLater();
      }
    }
  }

  refreshLater() {
    this.timer = setTimeout(() => this.load(), REFRESH_MS);
  }

  async draw(details) {
    const response = JSON.stringify(details);
    if (response === this.drawn) return;
    if (details.document.state === "done" && !this.result) this.result = await resultSection(details.document);
    if (!this.isClosed && !document.querySelector("dialog")) updateChildren(this.body, this.sections(details));
    this.drawn = response;
    if (!this.hasPayload) await this.addPayload();
  }

  /** Show the payload below; it never changes, so that it can be read and scrolled while the rest is drawn again. */
  async addPayload() {
    this.hasPayload = true;
    const added = await payloadSection(this.id).catch((error) => section(t("document.payload"), errorText(error)));
    if (added && !this.isClosed) this.container.append(added);
  }

  sections(details) {
    const { document: item } = details;
    return [
      make(
        "div",
        { class: "head" },
        make("h1", {}, item.name ? userName(item.name) : make("code", {}, item.id)),
        make("span", { class: "marks" }, stateBadge(item.state), namedPriority(item.priority)),
      ),
      make(
        "section",
        { class: "card answer" },
        statusLines(details, this.isStaff),
        make("div", { class: "row" }, this.actions(details)),
      ),
      this.result,
      details.steps.length > 1 && section(t("document.steps"), stepList(details.steps)),
      details.parts && section(t("document.parts"), partList(details, this.isStaff)),
      section(t("document.life"), timeline(details.life, this.isStaff)),
      details.attempts.length > 0 && section(t("document.failed_attempts"), failedAttempts(details.attempts)),
      section(t("document.facts"), facts(details, this.isStaff)),
    ];
  }

  actions({ document: item, can_retry: canRetry }) {
    if (!this.mayManage) return [];
    const url = documentUrl(this.id);
    const cancel = () => this.act("document.cancel_ask", "document.cancel", () => remove(url), "document.cancelled");
    const question = this.isStaff ? "document.retry_ask" : "document.retry_ask_mine";
    const retry = () => this.act(question, "document.retry", () => post(`${url}/retry`), "document.retried");
    const prioritize = () => this.prioritize(url);
    return [
      this.mayOperate &&
        WAITING.includes(item.state) &&
        make("button", { class: "quiet", onclick: prioritize }, t("document.prioritize")),
      !ENDED.includes(item.state) && make("button", { class: "quiet", onclick: cancel }, t("document.cancel")),
      canRetry && make("button", { class: "main", onclick: retry }, t("document.retry")),
    ];
  }

  async act(question, action, work, confirmation) {
    if (await confirmAction([t(question)], t(action))) await this.change(work, confirmation);
  }

  async prioritize(url) {
    const priority = await choosePriority(t("document.prioritize_ask"), t("document.prioritize"));
    if (priority !== null) await this.change(() => patch(url, { priority }), "document.prioritized");
  }

  async change(work, confirmation) {
    try {
      await work();
      notify(t(confirmation));
    } catch (error) {
      notify(errorText(error), "bad");
    }
    this.drawn = "";
    this.load();
  }
}

/** When a document will start or why it failed, and why it has its priority. */
function statusLines(details, isStaff) {
  const { document: item } = details;
  const spaced = (sentences) => sentences.flatMap((sentence) => [sentence, " "]);
  return [
    make("p", { class: "story" }, spaced(stateSentences(details))),
    isStaff && item.state === "failed" && item.reason && make("p", {}, make("code", {}, item.reason)),
    make("p", {}, spaced(priorityReason(details))),
  ];
}

/** What a document waits for, or why it failed; nothing where its state says it all. */
function stateSentences({ document: item, failure_code: code, outlook }) {
  const failure = `failure.${code}`;
  if (item.state === "failed") return [t(hasText(failure) ? failure : "failure.other")];
  if (!WAITING.includes(item.state)) return [];
  if (waitsForParts(item)) return [t("document.waits_for_parts")];
  const isDelayed = item.state === "delayed" && item.ready_at > 0;
  const delay = isDelayed ? [tParts("document.not_before", { time: dateTime(item.ready_at * 1000) })] : [];
  return [...delay, ...outlookSentences(outlook, isDelayed)];
}

/** Whether a document goes on when its parts are done. */
function waitsForParts(item) {
  return item.state === "delayed" && item.parts_done < item.parts;
}

function stepList(steps) {
  const state = (step) => (step.state === "to come" ? make("small", {}, t("document.step_to_come")) : stateBadge(step.state));
  return make(
    "ol",
    { class: "steps" },
    steps.map((step) => make("li", {}, userName(step.kind), " ", state(step))),
  );
}

function documentLink(id, label, isStaff) {
  return make("a", { href: `#/${isStaff ? "documents" : "mine"}/${encodeURIComponent(id)}` }, label);
}

/** How far the parts are, and links to those that run or failed. */
function partList({ document: item, parts }, isStaff) {
  const counts = { done: number(item.parts_done), total: number(item.parts) };
  const pages = { done: number(parts.cost_done), total: number(parts.cost) };
  return [
    make("p", {}, t("document.parts_done", counts), parts.cost > item.parts ? ` · ${t("document.pages_done", pages)}` : ""),
    make("progress", { max: String(parts.cost), value: String(parts.cost_done), "aria-label": t("document.parts") }),
    make(
      "ul",
      { class: "parts" },
      parts.shown.map((part) =>
        make(
          "li",
          {},
          documentLink(part.id, t("document.part", { number: number(part.number) }), isStaff),
          " ",
          stateBadge(part.state),
        ),
      ),
    ),
  ];
}

function timeline(life, isStaff) {
  const items = life.map((change) => {
    const key = `life.${change.what}`;
    return make(
      "li",
      { class: change.what },
      make("time", { datetime: new Date(change.at).toISOString() }, dateTime(change.at)),
      make(
        "span",
        {},
        make("b", {}, hasText(key) ? t(key) : change.what),
        change.attempt ? ` · ${t("life.attempt", { attempt: change.attempt })}` : "",
        change.priority ? [" · ", priorityBadge(change.priority)] : null,
        change.worker || change.by ? [" · ", userName(change.worker || change.by)] : null,
        change.note && isStaff ? make("small", {}, userName(change.note, "note")) : null,
      ),
    );
  });
  return make("ol", { class: "life" }, items);
}

/** The failed attempts, newest first: what was raised, and the end of what was printed. */
function failedAttempts(attempts) {
  return [...attempts].reverse().map((attempt, index) => {
    const when = `${t("life.attempt", { attempt: attempt.number })} · ${dateTime(attempt.at * 1000)} · `;
    const output = [
      ["document.traceback", attempt.traceback],
      ["document.output", attempt.output],
    ].filter(([, text]) => text);
    return make(
      "details",
      { class: "attempt", open: index === 0 },
      make("summary", {}, when, userName(attempt.worker), make("small", {}, userName(attempt.reason, "note"))),
      output.map(([key, text]) => [
        make("h3", {}, t(key)),
        make("pre", { class: "text", tabindex: "0", "aria-label": t(key), dir: "ltr" }, text),
      ]),
    );
  });
}

function facts({ document: item, batch }, isStaff) {
  const place = batch && t("document.place", { position: batch.position, total: batch.documents });
  const pairs = [
    isStaff && ["column.customer", customerLink(item.customer)],
    ["document.id", make("code", {}, item.id)],
    ["document.kind", userName(item.kind)],
    item.whole && ["document.part_of", documentLink(item.whole, make("code", {}, item.whole), isStaff)],
    item.key && ["document.key", make("code", {}, item.key)],
    batch && ["batch.title", [place, " · ", batchLink(batch)]],
    item.has_file && ["document.file", make("a", { href: item.links.file, download: "" }, t("document.download_file"))],
    item.size != null && ["document.size", bytes(item.size)],
    item.media_type && ["document.type", FORMATS[item.media_type] ?? item.media_type],
    item.no_better_than && ["document.no_better_than", priorityBadge(item.no_better_than)],
    ["document.submitted", dateTime(item.submitted_at * 1000)],
    item.ended_at && ["document.ended", dateTime(item.ended_at * 1000)],
    ["document.attempts", t("document.attempts_of", { attempts: item.attempts, most: item.attempts_max })],
    isStaff && item.reason && item.state !== "failed" && ["document.note", make("code", {}, item.reason)],
  ].filter(Boolean);
  return make(
    "dl",
    { class: "facts" },
    pairs.map(([key, value]) => [make("dt", {}, t(key)), make("dd", {}, value)]),
  );
}

/** The result of a document that is done: a thumbnail, the text, how sure OCR is of it, and downloads. */
async function resultSection(item) {
  const url = documentUrl(item.id);
  const text = await fetchText(`${url}/text`).catch(() => null); // without the text the downloads are still offered
  const result = item.has_file ? await get(`${url}/result`).catch(() => null) : null;
  const name = (item.name || item.id).replace(/[^\p{L}\p{N}._ -]/gu, "_").slice(0, 100);
  const thumbnail = make("img", {
    src: `${url}/thumbnail`,
    alt: t("document.picture"),
    class: "thumbnail",
    onerror: (event) => event.target.remove(),
  });
  return make(
    "section",
    { class: "outcome" },
    make("h2", {}, t("document.result")),
    make(
      "div",
      { class: "row" },
      text !== null &&
        make("a", { class: "button main", href: `${url}/text`, download: `${name}.txt` }, t("document.download_text")),
      make("a", { class: "button", href: `${url}/result`, download: `${name}.json` }, t("document.download_result")),
    ),
    typeof result?.ocr_confidence === "number" && make("p", {}, t("document.ocr", { share: percent(result.ocr_confidence) })),
    make("div", { class: "beside" }, thumbnail, textPreview(text)),
  );
}

function textPreview(text) {
  if (text === null) return make("p", { class: "muted" }, t("document.no_text"));
  return make(
    "pre",
    { class: "text", tabindex: "0", "aria-label": t("document.text"), dir: "auto" },
    text.slice(0, TEXT_SHOWN) || t("document.empty_text"),
    text.length > TEXT_SHOWN ? "\n…" : "",
  );
}
