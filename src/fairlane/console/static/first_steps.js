// The lanes as an admin sees them: while no customer has used the service, with the commands that send the first document.

import { errorText, get } from "./api.js";
import { make, notify, section, setChildren } from "./dom.js";
import { t } from "./i18n.js";
import { LanesView } from "./lanes.js";

function firstSteps() {
  const steps = [
    ["first.key", "export FAIRLANE_KEY=$(fairlane keys create --customer acme)"],
    ["first.send", `curl -H "Authorization: Bearer $FAIRLANE_KEY" -F file=@invoice.pdf ${location.origin}/v1/documents`],
    ["first.worker", "fairlane work tasks:worker"],
  ];
  const item = ([text, command]) => make("li", {}, make("p", {}, t(text)), make("pre", { class: "text" }, command));
  return section(t("first.title"), make("ol", { class: "first-steps" }, steps.map(item)));
}

export class GuidedLanesView extends LanesView {
  constructor(container) {
    super(container);
    this.firstSteps = make("div");
    this.warnings.container.after(this.firstSteps);
    this.guide();
  }

  async guide() {
    try {
      const { total } = await get("/page/customers?limit=1");
      if (!total) setChildren(this.firstSteps, firstSteps());
    } catch (error) {
      notify(errorText(error), "bad");
    }
  }

  frame(frame) {
    super.frame(frame);
    this.firstSteps.hidden ||= Object.values(frame.totals).some(Boolean);
  }
}
