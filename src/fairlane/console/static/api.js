// Requests to the server: calls with the session cookie, an event stream that reconnects, and uploads with progress.
//
// Laws:
// - Every call that changes something carries the CSRF token.
// - A stream that is silent for too long counts as lost: the page says so and reconnects.

import { hasText, t } from "./i18n.js";

const RETRY_MS = [500, 1000, 2000, 4000, 8000];
const READ_TIMEOUT_MS = 60_000; // a read that takes longer is on a dead connection

let csrfToken = "";

/** A request that the server refused; `type` is the problem code. */
class ApiError extends Error {
  constructor(type, status) {
    super(type);
    this.type = type;
    this.status = status;
  }
}

/** Explain an error to the reader. */
export function errorText(error) {
  const key = `problem.${error instanceof ApiError ? error.type : "offline"}`;
  return t(hasText(key) ? key : "problem.other");
}

function apiError(status, body) {
  try {
    return new ApiError(JSON.parse(body).type || "other", status);
  } catch {
    return new ApiError("other", status);
  }
}

async function request(method, url, body) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-Fairlane-CSRF"] = csrfToken;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const signal = method === "GET" ? AbortSignal.timeout(READ_TIMEOUT_MS) : undefined;
  const response = await fetch(url, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) {
    if (response.status === 401 && url !== "/page/session") dispatchEvent(new Event("signed-out"));
    throw apiError(response.status, text);
  }
  return text ? JSON.parse(text) : null;
}

export const get = (url) => request("GET", url);
export const post = (url, body) => request("POST", url, body);
export const put = (url, body) => request("PUT", url, body);
export const patch = (url, body) => request("PATCH", url, body);
export const remove = (url) => request("DELETE", url);

/** Add query parameters to a URL; empty values are left out. */
export function withQuery(url, parameters) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null));
  return query.size ? `${url}?${query}` : url;
}

export const customerUrl = (customer) => `/v1/customers/${encodeURIComponent(customer)}`;
export const documentUrl = (id) => `/v1/documents/${encodeURIComponent(id)}`;

function rememberToken(session) {
  csrfToken = session.csrf;
  return session;
}

/** Whether whoever is signed in has a permission; what would be refused is not offered. */
export const may = (session, permission) => session.permissions.includes(permission);

/** Whether a viewer, an operator or an admin is signed in, who see every customer. */
export const isStaff = (session) => session.role !== "customer";

/** The session of whoever is signed in, or null. */
export async function currentSession() {
  try {
    return rememberToken(await get("/page/session"));
  } catch (error) {
    if (error.status === 401) return null;
    throw error;
  }
}

export const signIn = async (key) => rememberToken(await post("/page/session", { key }));
export const signInByProxy = async () => rememberToken(await post("/page/proxy-session", {}));
export const signOut = () => remove("/page/session");

/** The text of a document; null when it has none. */
export async function fetchText(url) {
  const response = await fetch(url);
  if (response.status === 404 || response.status === 409) return null;
  if (!response.ok) throw new ApiError("other", response.status);
  return response.text();
}

/** Server-sent events. They are read with fetch, not EventSource, because EventSource hides comments: only comments show that a
 *  quiet connection is still alive. */
export class EventStream {
  /** Call `onMessage` with every event, and `onState` with true or false when the stream connects or is lost. */
  constructor(url, onMessage, onState, silenceMs) {
    Object.assign(this, { url, onMessage, onState, silenceMs, failures: 0, isClosed: false, isLive: undefined });
    this.onOnline = () => this.isLive === false && !this.isClosed && this.connect();
    addEventListener("online", this.onOnline);
    this.connect();
  }

  async connect() {
    clearTimeout(this.retryTimer);
    this.connection = new AbortController();
    this.restartSilenceTimer();
    try {
      const response = await fetch(this.url, { headers: { Accept: "text/event-stream" }, signal: this.connection.signal });
      if (response.status === 401 && !this.isClosed) return dispatchEvent(new Event("signed-out"));
      if (response.ok) await this.read(response.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch {
      // the connection is lost: retry below
    }
    clearTimeout(this.silenceTimer);
    if (this.isClosed) return;
    this.setLive(false);
    this.retryTimer = setTimeout(() => this.connect(), RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)]);
  }

  async read(reader) {
    let rest = "";
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
      this.failures = 0;
      this.setLive(true);
      this.restartSilenceTimer();
      const events = (rest + chunk.value).split("\n\n");
      rest = events.pop();
      for (const event of events) this.dispatch(event);
    }
  }

  dispatch(event) {
    const data = event
      .split("\n")
      .filter((line) => line.startsWith("data:"))
      .map((line) => line.slice(5))
      .join("\n");
    if (data && !this.isClosed) this.onMessage(JSON.parse(data));
  }

  setLive(isLive) {
    if (this.isLive !== isLive) this.onState((this.isLive = isLive));
  }

  restartSilenceTimer() {
    clearTimeout(this.silenceTimer);
    this.silenceTimer = setTimeout(() => this.connection.abort(), this.silenceMs);
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.retryTimer);
    clearTimeout(this.silenceTimer);
    this.connection.abort();
    removeEventListener("online", this.onOnline);
  }
}

/** Upload a file; `onProgress` is called with the share that was sent. */
export function upload(file, idempotencyKey, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/v1/documents");
    request.setRequestHeader("X-Fairlane-CSRF", csrfToken);
    request.setRequestHeader("Idempotency-Key", idempotencyKey);
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onload = () =>
      request.status < 300 ? resolve(JSON.parse(request.responseText)) : reject(apiError(request.status, request.responseText));
    request.onerror = () => reject(new Error("offline"));
    const form = new FormData();
    form.append("file", file, file.name);
    request.send(form);
  });
}
