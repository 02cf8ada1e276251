// A secret that is shown once, with a button that copies it.

import { make, notify } from "./dom.js";
import { t } from "./i18n.js";

/** Copy the text of an element; browsers give the clipboard to pages on TLS only, elsewhere the selection is copied. */
async function copyText(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return document.execCommand("copy");
  }
}

/** The box of a secret: what it is, the secret, a button that copies it, and more buttons. */
export function secretBox(sentences, secret, ...buttons) {
  const code = make("code", { class: "secret" }, secret);
  const onclick = async () => {
    const isCopied = await copyText(code);
    notify(t(isCopied ? "secret.copied" : "secret.not_copied"), isCopied ? "" : "bad");
  };
  const copyButton = make("button", { class: "quiet", onclick }, t("secret.copy"));
  return make(
    "div",
    { class: "warning", role: "status", tabindex: "-1" },
    sentences.map((sentence) => make("p", {}, sentence)),
    make("p", {}, code),
    make("div", { class: "row" }, copyButton, ...buttons),
  );
}
