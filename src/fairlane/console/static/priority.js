// The question which priority waiting documents shall have.

import { confirmAction, field, select } from "./dom.js";
import { t } from "./i18n.js";

const PRIORITIES = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];

/** Let an operator choose a priority; resolves to a number, or to null when nothing shall be changed. */
export async function choosePriority(line, action) {
  const box = select(
    PRIORITIES.map((priority) => [priority, priority]),
    "1",
  );
  const lines = [line, field(t("document.priority_field"), box, t("document.priority_hint"))];
  return (await confirmAction(lines, action, action)) ? +box.value : null;
}
