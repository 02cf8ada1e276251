// What happens now? The lanes, one sentence that tells the story, and who is waiting.

import { colourOf } from "./colours.js";
import { figure, make, named, plate, redraw, show } from "./elements.js";
import { Picture } from "./picture.js";
import { duration, number, rich, say } from "./texts.js";

const FLOOD_SHARE = 0.5,
  FLOOD_LEAST = 25;

/** Whether small senders wait so little that it is good news. */
export const isShort = (seconds) => seconds != null && seconds <= 60;

/** Of each customer in a frame: how many wait, and in which lanes; those with the most first. */
export function byCustomer(frame) {
  const found = new Map();
  for (const lane of frame.lanes) {
    for (const one of lane.top) {
      if (!one.ready) continue;
      const kept = found.get(one.customer) || { customer: one.customer, ready: 0, lanes: Array(9).fill(0) };
      kept.ready += one.ready;
      kept.lanes[lane.priority - 1] += one.ready;
      found.set(one.customer, kept);
    }
  }
  return [...found.values()].sort((one, other) => other.ready - one.ready || (one.customer < other.customer ? -1 : 1));
}

/** What happens, as one or two sentences. */
function story(frame) {
  const { ready, running, delayed } = frame.totals,
    biggest = byCustomer(frame)[0];
  if (frame.counted != null) return [rich("lanes.counting", { count: frame.counted })];
  const held = delayed ? [rich("lanes.held", { count: delayed })] : [];
  const working = rich("lanes.calm_running", { count: running });
  if (!ready && delayed) return running ? [...held, working] : held;
  if (!ready) return [running ? rich("lanes.no_wait", { count: running }) : rich("lanes.quiet")];
  if (biggest && biggest.ready >= FLOOD_LEAST && biggest.ready >= FLOOD_SHARE * ready) {
    const lane = biggest.lanes.indexOf(Math.max(...biggest.lanes)) + 1;
    const told = [rich("lanes.flood", { customer: named(biggest.customer), count: biggest.ready, lane })];
    if (lane > 1)
      told.push(
        frame.waits.light_p50 == null
          ? rich("lanes.pass")
          : rich("lanes.pass_within", { time: duration(frame.waits.light_p50, "long") }),
      );
    return told;
  }
  return [rich("lanes.calm", { count: ready }), ...held, working];
}

export function lanesView(place) {
  const sentence = make("p", { class: "story" }, say("lanes.loading"));
  const figures = make("dl", { class: "figures" });
  const canvas = make("canvas", { "aria-hidden": "true" });
  const tip = make("div", { class: "tip", hidden: true });
  const rows = Array.from({ length: 9 }, (_, place) => laneRow(place + 1));
  const scale = make("p", { class: "scale" });
  const workers = make("p", { class: "workers" });
  const legend = make("div", { class: "legend" });
  show(
    place,
    make("div", { class: "head" }, make("h1", {}, say("nav.lanes"))),
    sentence,
    make(
      "section",
      { class: "road", "aria-label": say("lanes.picture") },
      make(
        "div",
        { class: "captions" },
        make("span", {}, say("lanes.caption_waiting")),
        make("span", { class: "way" }, say("lanes.caption_way")),
        make("span", {}, say("lanes.caption_workers")),
      ),
      make(
        "div",
        { class: "lanes" },
        make(
          "ol",
          {},
          rows.map((row) => row.item),
        ),
        make("div", { class: "canvas" }, canvas, tip),
      ),
      make("div", { class: "captions under" }, scale, workers),
    ),
    figures,
    make("section", {}, make("h2", {}, say("lanes.who")), legend),
  );
  const picture = new Picture(canvas);
  picture.arranged = (each, hasOthers) =>
    show(
      scale,
      each > 1 ? say("lanes.scale_many", { count: each }) : say("lanes.scale_one"),
      hasOthers ? ` · ${say("lanes.grey")}` : "",
    );
  canvas.addEventListener("pointermove", (event) => point(picture, tip, event));
  canvas.addEventListener("pointerleave", () => (tip.hidden = true));

  function frame(told) {
    for (const one of byCustomer(told).slice(0, 10)) colourOf(one.customer); // the biggest choose their colours first
    picture.frame(told);
    show(
      sentence,
      story(told).flatMap((one) => [one, " "]),
    );
    told.lanes.forEach((lane, number) => rows[number].update(lane));
    show(
      workers,
      told.counted != null
        ? ""
        : told.running_total > told.running.length
        ? say("lanes.running_more", { count: told.running_total - told.running.length })
        : say("lanes.running", { count: told.running_total }),
    );
    show(figures, figuresOf(told));
    redraw(legend, legendOf(told));
  }
  return { frame, close: () => picture.close() };
}

function laneRow(priority) {
  const count = make("b", {}, "0"),
    more = make("span", { class: "unseen" });
  const hint = priority === 1 ? say("lanes.first") : priority === 9 ? say("lanes.last") : null;
  const item = make("li", {}, plate(priority), make("span", { class: "count" }, count, hint && make("small", {}, hint)), more);
  return {
    item,
    update(lane) {
      show(count, number(lane.ready));
      item.classList.toggle("empty", !lane.ready);
      const told = lane.top
        .slice(0, 3)
        .filter((one) => one.ready)
        .map((one) => [named(one.customer), ` ${number(one.ready)}, `]);
      show(
        more,
        say("state.ready"),
        ". ",
        told,
        lane.oldest_wait == null ? "" : say("lanes.longest", { time: duration(lane.oldest_wait, "long") }),
      );
    },
  };
}

function point(picture, tip, event) {
  const box = picture.canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const found = picture.at(x, y);
  tip.hidden = !found;
  if (!found) return;
  const who = found.customer === null ? say("lanes.others", { count: found.customers }) : named(found.customer);
  show(
    tip,
    make("b", {}, who),
    make(
      "span",
      {},
      found.is_running
        ? say("lanes.tip_running", { priority: found.priority })
        : say("lanes.tip", { count: found.ready, priority: found.priority }),
    ),
  );
  tip.style.left = `${Math.min(Math.max(0, x - 20), box.width - tip.offsetWidth)}px`;
  tip.style.top = `${y + 16 + tip.offsetHeight > box.height ? y - tip.offsetHeight - 8 : y + 16}px`;
}

function figuresOf(frame) {
  const { totals, waits, rate } = frame,
    known = (value) => number(frame.counted == null ? value : null); // what is read last is not known while it is counted
  return [
    figure(say("figure.waiting"), number(totals.ready + totals.delayed), say("figure.waiting_hint")),
    figure(say("figure.running"), known(totals.running), say("figure.running_hint")),
    figure(say("figure.light"), duration(waits.light_p95), say("figure.light_hint"), isShort(waits.light_p95) ? "good" : ""),
    figure(say("figure.heavy"), duration(waits.heavy_p95), say("figure.heavy_hint")),
    figure(say("figure.done_minute"), known(rate.done_last_minute), say("figure.done_minute_hint")),
    figure(say("figure.done"), known(totals.done_today), say("figure.today_hint")),
    figure(say("figure.failed"), known(totals.failed_today), say("figure.today_hint"), totals.failed_today ? "bad" : ""),
    figure(say("figure.starved"), known(frame.starved), say("figure.starved_hint"), frame.starved ? "bad" : ""),
  ];
}

function legendOf(frame) {
  const all = byCustomer(frame);
  if (!all.length) return make("p", { class: "soft" }, frame.totals.delayed ? "" : say("lanes.nobody"));
  const most = all[0].ready;
  const shown = all.slice(0, 10).map((one) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = `${Math.max(1, (100 * one.ready) / most)}%`;
    bar.style.background = colourOf(one.customer);
    const lanes = one.lanes.flatMap((count, place) => (count ? [plate(place + 1)] : []));
    return make(
      "li",
      {},
      make("a", { href: `#/customers/${encodeURIComponent(one.customer)}` }, named(one.customer)),
      make("span", { class: "plates" }, lanes),
      make("span", { class: "track" }, bar),
      make("b", {}, number(one.ready)),
    );
  });
  const others = frame.lanes.some((lane) => lane.others.ready);
  return [
    make("ul", { class: "who" }, shown),
    all.length > 10 || others
      ? make("p", { class: "soft" }, make("a", { href: "#/customers" }, say("lanes.all_customers")))
      : null,
  ];
}
