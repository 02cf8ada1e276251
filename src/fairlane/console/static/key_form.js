// The form that makes a key: for whom it is, what it may do, what it is for and when it ends.
//
// Laws:
// - Only what the role may do is offered: the server refuses the rest.

import { post } from "./api.js";
import { field, make, select, setChildren } from "./dom.js";
import { t } from "./i18n.js";
import { ROLES, keyErrorText, scopesText } from "./key_texts.js";

const DAY = 86400;
const EXPIRIES = { 30: "keys.days_30", 90: "keys.days_90", 365: "keys.days_365", never: "keys.never" };
const USUAL_DAYS = "90"; // what the server takes where nothing is said
const SCOPES = {
  customer: [["submit", "read"], ["submit"], ["read"]],
  viewer: [[], ["metrics"]],
  operator: [[], ["submit", "read"], ["submit"], ["read"], ["metrics"]],
  admin: [[], ["submit", "read"], ["submit"], ["read"], ["metrics"]],
};

export class KeyForm {
  /** `onMade` is called with every key that was made. */
  constructor(onMade) {
    this.onMade = onMade;
    const pairs = (texts) => Object.entries(texts).map(([value, key]) => [value, t(key)]);
    this.role = select(pairs(ROLES), "customer", { onchange: () => this.drawForRole() });
    this.customer = make("input", { maxlength: "200", autocomplete: "off", spellcheck: "false" });
    this.scopes = select([], "");
    this.name = make("input", { maxlength: "200", autocomplete: "off" });
    this.expiry = select(pairs(EXPIRIES), USUAL_DAYS);
    this.message = make("p", { class: "wrong", role: "alert" });
    this.button = make("button", { class: "main" }, t("keys.make"));
    this.customerField = field(t("column.customer"), this.customer, t("keys.customer_hint"));
    this.element = make(
      "form",
      { class: "what-if", onsubmit: (event) => (event.preventDefault(), this.submit()) },
      field(t("keys.for"), this.role, t("keys.for_hint")),
      this.customerField,
      field(t("keys.may"), this.scopes, t("keys.may_hint")),
      field(t("keys.name"), this.name, t("keys.name_hint")),
      field(t("keys.expires"), this.expiry, t("keys.expires_hint")),
      this.message,
      this.button,
    );
    this.drawForRole();
  }

  drawForRole() {
    const role = this.role.value,
      isCustomers = role === "customer";
    this.customerField.hidden = !isCustomers;
    this.customer.required = isCustomers;
    setChildren(
      this.scopes,
      SCOPES[role].map((scopes) => make("option", { value: scopes.join(" ") }, scopesText({ role, scopes }))),
    );
  }

  async submit() {
    const { role, customer, scopes, name, expiry } = this;
    const holder = role.value === "customer" ? { customer: customer.value.trim() } : { role: role.value };
    const wanted = {
      ...holder,
      scopes: scopes.value ? scopes.value.split(" ") : [],
      name: name.value.trim(),
      expires_in: expiry.value === "never" ? null : +expiry.value * DAY,
    };
    setChildren(this.message);
    this.button.disabled = true;
    try {
      const { keys } = await post("/v1/keys", { keys: [wanted] });
      customer.value = name.value = "";
      this.onMade(keys[0]);
    } catch (error) {
      setChildren(this.message, keyErrorText(error));
    } finally {
      this.button.disabled = false;
    }
  }
}
