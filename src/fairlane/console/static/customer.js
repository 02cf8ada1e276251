// Why does this customer stand where it stands, and what can an operator do about it?
//
// Laws:
// - Every control asks before it acts, and says what will happen.

import { steps, swatch } from "./charts.js";
import { colourOf } from "./colours.js";
import { documentsTable } from "./documents.js";
import { ask, badge, field, figure, make, named, nothing, plate, redraw, show, tell } from "./elements.js";
import { asking, get, patch, post, why } from "./server.js";
import { duration, number, rich, say } from "./texts.js";

const REFRESH_MS = 3000;
const address = (customer) => `/v1/customers/${encodeURIComponent(customer)}`;

export function customerView(place, customer) {
  const top = make("div", { class: "head" }),
    facts = make("dl", { class: "figures" }),
    chart = make("div"),
    controls = make("div", { class: "controls" });
  const listed = make("div");
  show(
    place,
    make("p", {}, make("a", { href: "#/customers" }, `← ${say("nav.customers")}`)),
    top,
    facts,
    make(
      "section",
      {},
      make("h2", {}, say("customer.counter_title")),
      make("p", { class: "soft" }, say("customer.counter_lead")),
      chart,
    ),
    make("section", {}, make("h2", {}, say("customer.controls")), controls),
    make("section", {}, make("h2", {}, say("nav.documents")), listed),
  );
  let timer,
    isClosed = false,
    drawn = "";

  async function load(isForced) {
    clearTimeout(timer);
    try {
      const [row, documents] = await Promise.all([
        get(`/page/customers/${encodeURIComponent(customer)}`),
        get(asking("/page/documents", { customer, limit: 20 })),
      ]);
      if (isClosed) return;
      drawTop(row);
      drawChart(row);
      drawControls(row, isForced === true);
      redraw(
        listed,
        documentsTable(documents.documents, false),
        make(
          "p",
          {},
          make("a", { href: `#/documents?customer=${encodeURIComponent(customer)}` }, say("customer.all_documents")),
        ),
      );
    } catch (error) {
      if (!isClosed && !drawn) show(facts, nothing(why(error)));
    }
    if (!isClosed) timer = setTimeout(load, REFRESH_MS);
  }
  function drawTop(row) {
    show(
      top,
      make("h1", {}, swatch(colourOf(customer)), named(customer)),
      row.paused && badge("paused", say("word.paused")),
      make(
        "p",
        { class: "soft" },
        rich("customer.standing", { counter: number(row.counter), priority: plate(row.next_priority) }),
        " ",
        !row.resets_in
          ? say("customer.fresh")
          : row.counter < 0 && say("customer.resets_in", { time: duration(row.resets_in, "long") }),
      ),
    );
    show(
      facts,
      figure(say("column.waiting"), number(row.waiting)),
      figure(say("column.running"), number(row.running)),
      figure(say("column.done_today"), number(row.done_today)),
      figure(say("column.failed_today"), number(row.failed_today)),
      figure(say("column.wait_p50"), duration(row.wait_p50), say("column.wait_p50_hint")),
      figure(say("column.wait_p95"), duration(row.wait_p95), say("column.wait_p95_hint")),
    );
  }
  function drawChart(row) {
    const now = `${row.steps?.length} ${row.steps?.at(-1)?.at}`;
    if (now === drawn) return;
    drawn = now;
    if (!row.steps?.length) return show(chart, nothing(say("customer.no_steps"), ""));
    const resets = row.steps.filter((one) => one.is_reset).length;
    show(
      chart,
      steps(
        say("customer.chart", { count: row.steps.length, resets }),
        row.steps,
        row.thresholds || row.terms?.thresholds || [-2, -4, -6, -8, -10, -12, -14, -20],
      ),
    );
  }
  function drawControls(row, isForced) {
    const writes = document.activeElement?.tagName === "INPUT" && controls.contains(document.activeElement);
    if (writes && !isForced) return;
    const weight = make("input", { type: "number", min: "0.01", max: "100", step: "0.01", value: row.weight, required: true });
    const cap = make("input", { type: "number", min: "1", max: "1000000", step: "1", value: row.cap ?? "" });
    const name = () => named(customer);
    redraw(
      controls,
      make(
        "div",
        { class: "control" },
        make("p", {}, row.paused ? say("customer.paused_now") : say("customer.not_paused")),
        row.paused
          ? button("customer.resume", "main", () =>
              act(
                [rich("customer.resume_ask", { customer: name() })],
                say("customer.resume"),
                () => patch(address(customer), { paused: false }),
                "customer.resumed",
              ),
            )
          : button("customer.pause", "quiet", () =>
              act(
                [rich("customer.pause_ask", { customer: name(), count: row.waiting })],
                say("customer.pause"),
                () => patch(address(customer), { paused: true }),
                "customer.paused_done",
              ),
            ),
      ),
      form(field(say("customer.weight"), weight, say("customer.weight_hint")), () =>
        act(
          [rich("customer.weight_ask", { customer: name(), value: number(+weight.value) })],
          say("act.save"),
          () => patch(address(customer), { weight: +weight.value }),
          "customer.saved",
        ),
      ),
      form(field(say("customer.cap"), cap, say("customer.cap_hint")), () =>
        act(
          [
            cap.value
              ? rich("customer.cap_ask", { customer: name(), count: +cap.value })
              : rich("customer.no_cap_ask", { customer: name() }),
          ],
          say("act.save"),
          () => patch(address(customer), { cap: cap.value ? +cap.value : null }),
          "customer.saved",
        ),
      ),
      make(
        "div",
        { class: "control" },
        make("p", {}, say("customer.reset_hint")),
        button("customer.reset", "quiet", () =>
          act(
            [rich("customer.reset_ask", { customer: name() })],
            say("customer.reset"),
            () => post(`${address(customer)}/reset`),
            "customer.reset_done",
          ),
        ),
      ),
    );
  }
  async function act(lines, yes, work, done) {
    if (!(await ask(say("act.sure"), lines, yes))) return;
    try {
      await work();
      tell(say(done));
      load(true);
    } catch (error) {
      tell(why(error), "bad");
    }
  }
  load();
  return { close: () => ((isClosed = true), clearTimeout(timer)) };
}

const button = (key, kind, work) => make("button", { class: kind, onclick: work }, say(key));

const form = (inside, work) =>
  make(
    "form",
    { class: "control", onsubmit: (event) => (event.preventDefault(), work()) },
    inside,
    make("button", { class: "quiet" }, say("act.save")),
  );
