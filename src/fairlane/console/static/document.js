// Why is this document still waiting, what happened to it, and what came out?

import { stateBadge } from "./documents.js";
import { ask, make, named, nothing, plate, redraw, show, tell } from "./elements.js";
import { get, post, remove, textOf, why } from "./server.js";
import { bytes, dateTime, duration, durationRange, has, number, rich, say } from "./texts.js";

const REFRESH_MS = 2000,
  TEXT_SHOWN = 6000;
const ENDED = ["done", "failed", "cancelled"];
const OFFICE = "application/vnd.openxmlformats-officedocument.";
const FORMATS = {
  "application/pdf": "PDF",
  "application/zip": "ZIP",
  "application/rtf": "RTF",
  "application/msword": "Word (DOC)",
  "application/vnd.oasis.opendocument.text": "OpenDocument (ODT)",
  [`${OFFICE}wordprocessingml.document`]: "Word (DOCX)",
  [`${OFFICE}spreadsheetml.sheet`]: "Excel (XLSX)",
  [`${OFFICE}presentationml.presentation`]: "PowerPoint (PPTX)",
  "message/rfc822": "EML",
  "text/csv": "CSV",
  "text/html": "HTML",
  "text/markdown": "Markdown",
  "text/plain": "TXT",
  "image/jpeg": "JPEG",
  "image/png": "PNG",
  "image/tiff": "TIFF",
}; // names that are the same in every language; of others the media type is told

/** Why it has its priority, in one plain sentence. */
export function whySentence(told) {
  const reason = told.why,
    values = { priority: plate(reason.priority), counter: number(reason.counter), customer: named(told.document.customer) };
  const lines = [];
  if (reason.was_reset && reason.silence == null) lines.push(rich("why.first", values));
  else if (reason.was_reset && reason.silence <= reason.reset_interval) lines.push(rich("why.back", values));
  else if (reason.was_reset)
    lines.push(
      rich("why.reset", {
        ...values,
        silence: duration(reason.silence, "long"),
        interval: duration(reason.reset_interval, "long"),
      }),
    );
  else if (reason.priority === 1 || reason.threshold == null) lines.push(rich("why.light", values));
  else
    lines.push(
      rich("why.below", { ...values, threshold: number(reason.threshold), interval: duration(reason.reset_interval, "long") }),
    );
  if (reason.weight !== undefined && reason.weight !== 1) lines.push(rich("why.weight", { weight: number(reason.weight) }));
  if (reason.cost !== undefined && reason.cost !== 1) lines.push(rich("why.cost", { cost: number(reason.cost) }));
  return lines;
}

/** About what is ahead, and when it will start. */
export function outlookSentence(outlook) {
  if (!outlook) return [];
  if (outlook.blocked === "paused") return [rich("outlook.paused")];
  if (outlook.blocked === "cap") return [rich("outlook.cap")];
  const lines = [];
  if (outlook.ahead != null) lines.push(outlook.ahead ? rich("outlook.ahead", { count: outlook.ahead }) : rich("outlook.next"));
  if (outlook.blocked === "no_worker") lines.push(rich("outlook.no_worker"));
  else if (outlook.low != null && outlook.high != null)
    lines.push(rich("outlook.range", { range: durationRange(outlook.low, outlook.high) }));
  else if (outlook.likely != null) lines.push(rich("outlook.likely", { time: duration(outlook.likely, "long") }));
  else lines.push(rich("outlook.unknown"));
  return lines;
}

function life(told, isOperator) {
  return make(
    "ol",
    { class: "life" },
    told.life.map((one) => {
      const key = `life.${one.what}`;
      return make(
        "li",
        { class: one.what },
        make("time", { datetime: new Date(one.at).toISOString() }, dateTime(one.at)),
        make(
          "span",
          {},
          make("b", {}, has(key) ? say(key) : one.what),
          one.attempt ? ` · ${say("life.attempt", { attempt: one.attempt })}` : "",
          one.worker ? [" · ", named(one.worker)] : null,
          one.note && isOperator ? make("small", {}, named(one.note, "note")) : null,
        ),
      );
    }),
  );
}

export function documentView(place, id, who) {
  const isOperator = who.role === "operator",
    back = isOperator ? ["#/documents", "nav.documents"] : ["#/mine", "nav.mine"];
  const body = make("div", { class: "stack" });
  show(place, make("p", {}, make("a", { href: back[0] }, `← ${say(back[1])}`)), body);
  let timer,
    isClosed = false,
    seen = "",
    result = null;

  async function load() {
    clearTimeout(timer);
    try {
      const told = await get(`/page/documents/${encodeURIComponent(id)}`);
      if (isClosed) return;
      const now = JSON.stringify(told);
      if (now !== seen) {
        if (told.document.state === "done" && !result) result = await outcome(told.document);
        if (!isClosed && !document.querySelector("dialog")) redraw(body, drawn(told));
      }
      seen = now;
      if (!isClosed && !ENDED.includes(told.document.state)) timer = setTimeout(load, REFRESH_MS);
    } catch (error) {
      if (isClosed) return;
      if (error.status === 404) show(body, nothing(say("document.missing"), say("document.missing_more")));
      else {
        if (!seen) show(body, nothing(why(error)));
        timer = setTimeout(load, REFRESH_MS);
      }
    }
  }
  function drawn(told) {
    const { document: one } = told,
      isWaiting = one.state === "ready" || one.state === "delayed";
    return [
      make(
        "div",
        { class: "head" },
        make("h1", {}, one.name ? named(one.name) : make("code", {}, one.id)),
        make("span", { class: "marks" }, stateBadge(one.state), plate(one.priority)),
      ),
      make(
        "section",
        { class: "card answer" },
        isWaiting &&
          make(
            "p",
            { class: "story" },
            outlookSentence(told.outlook).flatMap((line) => [line, " "]),
          ),
        one.state === "delayed" && one.ready_at
          ? make("p", {}, say("document.not_before", { time: dateTime(one.ready_at * 1000) }))
          : null,
        one.state === "failed" && make("p", { class: "story" }, failure(told)),
        make(
          "p",
          {},
          whySentence(told).flatMap((line) => [line, " "]),
        ),
        make("div", { class: "row" }, actions(one)),
      ),
      result,
      make("section", {}, make("h2", {}, say("document.life")), life(told, isOperator)),
      make("section", {}, make("h2", {}, say("document.facts")), factsOf(one, isOperator)),
    ];
  }
  function failure(told) {
    const key = `failure.${told.failure_code}`;
    return say(has(key) ? key : "failure.other");
  }
  function actions(one) {
    const act = async (question, yes, work, done) => {
      if (!(await ask(say("act.sure"), [say(question)], yes))) return;
      try {
        await work();
        tell(say(done));
      } catch (error) {
        tell(why(error), "bad");
      }
      seen = "";
      load();
    };
    const address = `/v1/documents/${encodeURIComponent(id)}`;
    return [
      !ENDED.includes(one.state) &&
        make(
          "button",
          {
            class: "quiet",
            onclick: () => act("document.cancel_ask", say("document.cancel"), () => remove(address), "document.cancelled"),
          },
          say("document.cancel"),
        ),
      one.state === "failed" &&
        make(
          "button",
          {
            class: "main",
            onclick: () => act("document.retry_ask", say("document.retry"), () => post(`${address}/retry`), "document.retried"),
          },
          say("document.retry"),
        ),
    ];
  }
  load();
  return { event: () => load(), close: () => ((isClosed = true), clearTimeout(timer)) };
}

function factsOf(one, isOperator) {
  const pairs = [
    isOperator && [
      "column.customer",
      make("a", { href: `#/customers/${encodeURIComponent(one.customer)}` }, named(one.customer)),
    ],
    ["document.id", make("code", {}, one.id)],
    one.size != null && ["document.size", bytes(one.size)],
    one.media_type && ["document.type", FORMATS[one.media_type] ?? one.media_type],
    ["document.submitted", dateTime(one.submitted_at * 1000)],
    one.ended_at && ["document.ended", dateTime(one.ended_at * 1000)],
    ["document.attempts", say("document.attempts_of", { attempts: one.attempts, most: one.attempts_max })],
    isOperator && one.reason && ["document.note", make("code", {}, one.reason)],
  ].filter(Boolean);
  return make(
    "dl",
    { class: "facts" },
    pairs.map(([key, value]) => [make("dt", {}, say(key)), make("dd", {}, value)]),
  );
}

/** What came out of a document that is done: a picture, the text, and both to keep. */
async function outcome(one) {
  const address = `/v1/documents/${encodeURIComponent(one.id)}`;
  let text = null;
  try {
    text = await textOf(`${address}/text`);
  } catch {
    // the links stay
  }
  const picture = make("img", {
    src: `${address}/thumbnail`,
    alt: say("document.picture"),
    class: "thumbnail",
    onerror: (event) => event.target.remove(),
  });
  const name = (one.name || one.id).replace(/[^\p{L}\p{N}._ -]/gu, "_").slice(0, 100);
  return make(
    "section",
    { class: "outcome" },
    make("h2", {}, say("document.result")),
    make(
      "div",
      { class: "row" },
      text !== null &&
        make("a", { class: "button main", href: `${address}/text`, download: `${name}.txt` }, say("document.download_text")),
      make("a", { class: "button", href: `${address}/result`, download: `${name}.json` }, say("document.download_result")),
    ),
    make(
      "div",
      { class: "beside" },
      picture,
      text === null
        ? make("p", { class: "soft" }, say("document.no_text"))
        : make(
            "pre",
            { class: "text", tabindex: "0", "aria-label": say("document.text"), dir: "auto" },
            text.slice(0, TEXT_SHOWN) || say("document.empty_text"),
            text.length > TEXT_SHOWN ? "\n…" : "",
          ),
    ),
  );
}
