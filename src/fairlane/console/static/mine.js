// What became of my documents? A customer hands in files, sees where each one stands, and opens what came out.

import { STATES, stateBadge } from "./documents.js";
import { choice, figure, make, named, nothing, plate, redraw, show, tell } from "./elements.js";
import { asking, get, upload, why } from "./server.js";
import { bytes, dateTime, duration, number, say, share } from "./texts.js";

const REFRESH_MS = 5000,
  TOGETHER = 3;

export function mineView(place) {
  const standing = make("dl", { class: "figures" }),
    listed = make("div"),
    sending = make("ul", { class: "sending" });
  const file = make("input", {
    type: "file",
    multiple: true,
    class: "unseen",
    id: "files",
    onchange: () => (send([...file.files]), (file.value = "")),
  });
  const drop = make(
    "div",
    { class: "drop" },
    make("p", { class: "lead" }, say("mine.drop")),
    file,
    make("label", { for: "files", class: "button main" }, say("mine.choose")),
    make("p", { class: "soft" }, say("mine.kinds")),
  );
  const state = choice([["", say("filter.any_state")], ...STATES.map((one) => [one, say(`state.${one}`)])], "", {
    "aria-label": say("column.state"),
    onchange: () => load(),
  });
  const more = make("button", { class: "quiet", hidden: true, onclick: () => load(next) }, say("act.more"));
  const paused = make("p", { class: "warning", hidden: true }, say("mine.paused"));
  let next = null,
    found = [],
    timer,
    calls = 0,
    isClosed = false,
    soon = null;
  show(
    place,
    make("div", { class: "head" }, make("h1", {}, say("nav.mine"))),
    paused,
    standing,
    drop,
    sending,
    make(
      "section",
      {},
      make("div", { class: "tools" }, make("h2", {}, say("mine.list")), state),
      listed,
      make("p", { class: "center" }, more),
    ),
  );
  for (const name of ["dragenter", "dragover"])
    drop.addEventListener(name, (event) => (event.preventDefault(), drop.classList.add("over")));
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => (event.preventDefault(), send([...event.dataTransfer.files])));

  // -- handing in ------------------------------------------------------------------------------------------------------

  const line = [];
  let busy = 0;
  function send(files) {
    for (const one of files) {
      const bar = make("progress", { max: "1", value: "0", "aria-label": one.name }),
        told = make("span", { class: "soft" }, say("mine.queued"));
      const item = make("li", {}, named(one.name), make("span", { class: "soft" }, bytes(one.size)), bar, told);
      sending.prepend(item);
      line.push({ one, bar, told, item, key: crypto.randomUUID ? crypto.randomUUID() : `${Date.now()}-${Math.random()}` });
    }
    work();
  }
  async function work() {
    while (busy < TOGETHER && line.length) {
      busy++;
      hand(line.shift()).finally(() => (busy--, work()));
    }
  }
  async function hand(each) {
    const { one, bar, told, item } = each;
    try {
      const receipt = await upload(one, each.key, (part) => {
        bar.value = part;
        show(told, share(part));
      });
      bar.value = 1;
      show(told, say("mine.sent", { priority: receipt.priority }));
      item.classList.add("sent");
      setTimeout(() => item.remove(), 8000);
      load();
    } catch (error) {
      item.classList.add("failed");
      bar.remove();
      show(
        told,
        why(error),
        " ",
        make(
          "button",
          {
            class: "quiet",
            onclick: () => {
              item.remove();
              send([one]);
            },
          },
          say("mine.again"),
        ),
      );
    }
  }

  // -- the list --------------------------------------------------------------------------------------------------------

  async function load(after) {
    const mine = ++calls;
    clearTimeout(timer);
    try {
      const [me, page] = await Promise.all([
        get("/v1/me"),
        get(asking("/page/documents", { state: state.value, limit: 50, after })),
      ]);
      if (isClosed || mine !== calls) return;
      drawStanding(me.standing);
      found = after ? [...found, ...page.documents] : page.documents;
      next = page.next;
      more.hidden = !next;
      redraw(
        listed,
        found.length
          ? cards(found)
          : nothing(
              say(state.value ? "documents.none" : "mine.none"),
              say(state.value ? "documents.none_found_more" : "mine.none_more"),
            ),
      );
    } catch (error) {
      if (!isClosed && !found.length) show(listed, nothing(why(error)));
    }
    if (!isClosed && mine === calls && found.length <= 50) timer = setTimeout(load, REFRESH_MS);
  }
  function drawStanding(look) {
    show(
      standing,
      figure(say("column.waiting"), number(look.waiting)),
      figure(say("column.running"), number(look.running)),
      figure(say("mine.done"), number(look.done)),
      figure(say("mine.next_priority"), plate(look.next_priority), say("mine.next_priority_hint")),
      figure(
        say("mine.resets_in"),
        look.counter < 0 && look.resets_in > 0 ? duration(look.resets_in) : say("mine.fresh"),
        say("mine.resets_in_hint"),
      ),
    );
    paused.hidden = !look.paused;
  }
  load();
  return {
    event: () => (soon ??= setTimeout(() => ((soon = null), isClosed || load()), 400)),
    close: () => ((isClosed = true), clearTimeout(timer), line.length && tell(say("mine.left", { count: line.length }))),
  };
}

/** What a name ends with, to be shown where there is no picture. */
const kindOf = (name) => /\.([\p{L}\p{N}]{1,4})$/u.exec(name || "")?.[1].toUpperCase() ?? "";

function cards(documents) {
  return make(
    "ul",
    { class: "files" },
    documents.map((one) => {
      const picture =
        one.state === "done" &&
        make("img", {
          src: `/v1/documents/${encodeURIComponent(one.id)}/thumbnail`,
          alt: "",
          loading: "lazy",
          onerror: (event) => event.target.remove(),
        });
      return make(
        "li",
        {},
        make("span", { class: "face", "aria-hidden": "true", "data-kind": kindOf(one.name) }, picture || null),
        make(
          "span",
          { class: "words" },
          make(
            "a",
            { href: `#/mine/${encodeURIComponent(one.id)}` },
            one.name ? named(one.name) : make("code", {}, one.id.slice(-12)),
          ),
          make(
            "small",
            {},
            make("time", {}, dateTime(one.submitted_at * 1000)),
            one.size != null ? ` · ${bytes(one.size)}` : "",
          ),
        ),
        stateBadge(one.state),
        plate(one.priority),
      );
    }),
  );
}
