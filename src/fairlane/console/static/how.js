// How are priorities decided? The plain explanation, with the reader's own counter marked on the table.

import { badge, make, nothing, plate, show } from "./elements.js";
import { get, why } from "./server.js";
import { duration, number, rich, say } from "./texts.js";

export function howView(place, who) {
  const body = make("div", { class: "prose" });
  show(place, make("div", { class: "head" }, make("h1", {}, say("nav.how"))), body);
  let isClosed = false;
  const standing = who.role === "customer" ? get("/v1/me").then((me) => me.standing) : Promise.resolve(null);
  Promise.all([get("/page/rules"), standing]).then(
    ([rules, look]) => isClosed || show(body, explained(rules, look)),
    (error) => isClosed || show(body, nothing(why(error))),
  );
  return { close: () => (isClosed = true) };
}

function explained(rules, look) {
  const interval = duration(rules.reset_interval, "long");
  return [
    make("p", { class: "story" }, say("how.short")),
    look &&
      make(
        "section",
        { class: "card you" },
        make("h2", {}, say("how.you")),
        make(
          "p",
          {},
          rich("how.you_now", { counter: number(look.counter), priority: plate(look.next_priority) }),
          " ",
          !look.resets_in
            ? say("how.you_fresh")
            : look.counter < 0 && say("how.you_reset", { time: duration(look.resets_in, "long") }),
        ),
      ),
    make(
      "section",
      {},
      make("h2", {}, say("how.steps_title")),
      make(
        "ol",
        { class: "steps" },
        make("li", {}, say("how.step_counter")),
        make("li", {}, say("how.step_down")),
        make("li", {}, say(`how.step_reset_${rules.reset}`, { interval })),
        make("li", {}, say("how.step_table")),
        make("li", {}, say("how.step_turns")),
        rules.open_turn_every > 0 && make("li", {}, say("how.step_open", { count: rules.open_turn_every })),
      ),
    ),
    make("section", {}, make("h2", {}, say("how.table_title")), table(rules.thresholds, look)),
    look &&
      make(
        "section",
        {},
        make("h2", {}, say("how.advice_title")),
        make(
          "ul",
          {},
          make("li", {}, say("how.advice_few")),
          make("li", {}, say("how.advice_many")),
          make("li", {}, say("how.advice_pause", { interval })),
        ),
      ),
  ];
}

function table(thresholds, look) {
  const levels = thresholds.length + 1;
  const lines = Array.from({ length: levels }, (_, place) => {
    const priority = place + 1;
    const from = place
      ? say("how.below", { value: number(thresholds[place - 1]) })
      : levels > 1
        ? say("how.at_least", { value: number(thresholds[0]) })
        : say("how.any");
    const here = look && look.next_priority === priority;
    return make(
      "tr",
      { class: here ? "here" : null, "aria-current": here ? "true" : null },
      make("td", {}, from),
      make("td", {}, plate(priority)),
      make(
        "td",
        {},
        priority === 1 ? `${say("how.first")} ` : priority === levels ? `${say("how.last")} ` : "",
        here ? badge("here", say("how.here")) : "",
      ),
    );
  });
  return make(
    "table",
    { class: "grid plain narrow" },
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        make("th", { scope: "col" }, say("column.counter")),
        make("th", { scope: "col" }, say("column.priority")),
        make("th", { scope: "col" }, say("how.served")),
      ),
    ),
    make("tbody", {}, lines),
  );
}
