// An explanation of the priority system in plain words, with the reader's own counter marked in the table.

import { errorText, get, isStaff } from "./api.js";
import { badge, columnHeading, emptyState, heading, make, priorityBadge, section, setChildren } from "./dom.js";
import { duration, number, t, tParts } from "./i18n.js";

export class HowItWorksView {
  constructor(container, session) {
    const body = make("div", { class: "prose" });
    const standing = isStaff(session) ? null : get("/v1/me").then((me) => me.standing);
    setChildren(container, heading(t("nav.how")), body);
    this.isClosed = false;
    Promise.all([get("/page/rules"), standing]).then(
      ([rules, standing]) => this.isClosed || setChildren(body, explanation(rules, standing)),
      (error) => this.isClosed || setChildren(body, emptyState(errorText(error))),
    );
  }

  close() {
    this.isClosed = true;
  }
}

/** The explanation; staff has no standing of its own. */
function explanation(rules, standing) {
  const interval = duration(rules.reset_interval, "long");
  const items = (texts) => texts.map((text) => make("li", {}, text));
  const steps = [
    t("how.step_counter"),
    t("how.step_down"),
    t(`how.step_reset_${rules.reset}`, { interval }),
    t("how.step_table"),
    rules.dispatch === "fair" ? t(`how.step_turns_${rules.turns}`) : t("how.step_strict"),
  ];
  if (rules.dispatch === "fair" && rules.open_turn_every > 0) steps.push(t("how.step_open", { count: rules.open_turn_every }));
  const advice = [t("how.advice_few"), t("how.advice_many"), t("how.advice_pause", { interval })];
  return [
    make("p", { class: "story" }, t("how.short")),
    standing && standingCard(standing),
    section(t("how.steps_title"), make("ol", { class: "steps" }, items(steps))),
    section(t("how.table_title"), priorityTable(rules.thresholds, standing)),
    standing && section(t("how.advice_title"), make("ul", {}, items(advice))),
  ];
}

function standingCard(standing) {
  const recovery = () =>
    standing.resets_in ? t("how.you_reset", { time: duration(standing.resets_in, "long") }) : t("how.you_fresh");
  const values = { counter: number(standing.counter), priority: priorityBadge(standing.next_priority) };
  return make(
    "section",
    { class: "card you" },
    make("h2", {}, t("how.you")),
    make("p", {}, tParts("how.you_now", values), " ", standing.counter < 0 && recovery()),
  );
}

function priorityTable(thresholds, standing) {
  const levels = thresholds.length + 1;
  const counterText = (priority) => {
    if (priority > 1) return t("how.below", { value: number(thresholds[priority - 2]) });
    return levels > 1 ? t("how.at_least", { value: number(thresholds[0]) }) : t("how.any");
  };
  const rows = Array.from({ length: levels }, (_, index) => {
    const priority = index + 1,
      isHere = standing?.next_priority === priority;
    const order = priority === 1 ? `${t("how.first")} ` : priority === levels ? `${t("how.last")} ` : "";
    return make(
      "tr",
      { class: isHere ? "here" : null, "aria-current": isHere ? "true" : null },
      make("td", {}, counterText(priority)),
      make("td", {}, priorityBadge(priority)),
      make("td", {}, order, isHere && badge("here", t("how.here"))),
    );
  });
  const headings = [t("column.counter"), t("column.priority"), t("how.served")].map(columnHeading);
  return make(
    "table",
    { class: "grid plain narrow" },
    make("thead", {}, make("tr", {}, headings)),
    make("tbody", {}, rows),
  );
}
