// What a customer keeps: its documents and the storage they use, and of how much, for staff and for the customer itself.

import { figure } from "./dom.js";
import { bytes, number, t } from "./i18n.js";

/** The figures of a row or a standing. */
export const keptFigures = (row) => [
  figure(t("kept.documents"), ofMost(row.documents, row.documents_max, number)),
  figure(t("kept.bytes"), ofMost(row.bytes, row.bytes_max, bytes), t("kept.hint")),
];

const ofMost = (count, most, format) =>
  most == null ? format(count) : t("kept.of", { count: format(count), most: format(most) });
