// The views of staff, which customers do not load.

import { CustomerView } from "./customer.js";
import { CustomersView } from "./customers.js";
import { DocumentsView } from "./documents.js";
import { KindsView } from "./kinds.js";
import { LanesView } from "./lanes.js";
import { WaitsView } from "./waits.js";
import { WhatIfView } from "./what_if.js";
import { WorkersView } from "./workers.js";

/** By name, in the order of the navigation. */
export const STAFF_VIEWS = {
  lanes: LanesView,
  customers: CustomersView,
  documents: DocumentsView,
  workers: WorkersView,
  kinds: KindsView,
  waits: WaitsView,
  "what-if": WhatIfView,
};
/** The views of one item that only staff sees. */
export const STAFF_ITEM_VIEWS = { customers: CustomerView };
