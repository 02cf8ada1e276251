// The payload of a document, formatted: its beginning, and all of it when the reader asks.

import { errorText, get, withQuery } from "./api.js";
import { make, notify, section, setChildren } from "./dom.js";
import { bytes, t } from "./i18n.js";

const payloadUrl = (id, whole) => withQuery(`/page/documents/${encodeURIComponent(id)}/payload`, { whole });

/** The section of a document's payload; null for a file that came without one. */
export async function payloadSection(id) {
  const { payload } = await get(payloadUrl(id));
  if (!payload) return null;
  const attributes = { class: "text", tabindex: "0", role: "region", "aria-label": t("document.payload"), dir: "ltr" };
  const text = make("pre", attributes, payload.text, !payload.is_whole && "\n…");
  return section(t("document.payload"), text, !payload.is_whole && restButton(id, text, payload.size));
}

/** How large the whole payload is, and a button that shows it. */
function restButton(id, text, size) {
  const showAll = async () => {
    button.disabled = true;
    try {
      const { payload } = await get(payloadUrl(id, true));
      setChildren(text, payload.text);
      text.focus();
      row.remove();
    } catch (error) {
      button.disabled = false;
      notify(errorText(error), "bad");
    }
  };
  const button = make("button", { class: "quiet", onclick: showAll }, t("document.payload_all"));
  const note = make("span", { class: "muted" }, t("document.payload_cut", { size: bytes(size) }));
  const row = make("div", { class: "row rest" }, note, button);
  return row;
}
