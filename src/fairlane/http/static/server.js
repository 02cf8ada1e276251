// How does the page talk to its server? Calls with the session's cookie, a stream that comes back, uploads with progress.
//
// Laws:
// - Every call that changes something carries the word against forged requests.
// - A stream that is silent for too long counts as lost: the page says so and tries again.

import { has, say } from "./texts.js";

const SILENT_MS = 12_000; // the server is heard of at least every five seconds
const AGAIN_MS = [500, 1000, 2000, 4000, 8000];

let csrf = "";

/** What the server would not do; `type` is its word for it. */
export class Refused extends Error {
  constructor(type, status) {
    super(type);
    this.type = type;
    this.status = status;
  }
}

/** Why it did not work, for the reader. */
export function why(error) {
  const key = `problem.${error instanceof Refused ? error.type : "offline"}`;
  return say(has(key) ? key : "problem.other");
}

function problem(status, text) {
  try {
    return new Refused(JSON.parse(text).type || "other", status);
  } catch {
    return new Refused("other", status);
  }
}

async function call(method, address, body) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-Fairlane-CSRF"] = csrf;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(address, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok) {
    if (answer.status === 401 && address !== "/page/session") dispatchEvent(new Event("signed-out"));
    throw problem(answer.status, text);
  }
  return text ? JSON.parse(text) : null;
}

export const get = (address) => call("GET", address);
export const post = (address, body) => call("POST", address, body);
export const patch = (address, body) => call("PATCH", address, body);
export const remove = (address) => call("DELETE", address);

/** An address with what is asked; empty values are left out. */
export function asking(address, told) {
  const query = new URLSearchParams(Object.entries(told).filter(([, value]) => value !== "" && value != null));
  return query.size ? `${address}?${query}` : address;
}

/** Who is signed in; null: nobody. */
export async function session() {
  try {
    return opened(await get("/page/session"));
  } catch (error) {
    if (error.status === 401) return null;
    throw error;
  }
}

function opened(told) {
  csrf = told.csrf;
  return told;
}

export const signIn = async (key) => opened(await post("/page/session", { key }));
export const signOut = () => remove("/page/session");

/** Text of a document; null when it has none. */
export async function textOf(address) {
  const answer = await fetch(address);
  if (answer.status === 404 || answer.status === 409) return null;
  if (!answer.ok) throw new Refused("other", answer.status);
  return answer.text();
}

/** Listen to a stream until the function that is returned is called; `state(true | false)` says whether it is live. */
export function listen(address, names, heard, state, hasBeats) {
  let source, timer, silence, tries = 0, closed = false, live;

  function turn(now) {
    if (live !== now) state((live = now));
  }
  function alive() {
    tries = 0;
    turn(true);
    clearTimeout(silence);
    if (hasBeats) silence = setTimeout(lost, SILENT_MS);
  }
  function lost() {
    source.close();
    clearTimeout(silence);
    turn(false);
    if (!closed) timer = setTimeout(open, AGAIN_MS[Math.min(tries++, AGAIN_MS.length - 1)]);
    if (tries === 2) session().then((told) => told || dispatchEvent(new Event("signed-out")), () => {});
  }
  function open() {
    source = new EventSource(address);
    source.onopen = alive;
    source.onerror = lost;
    for (const name of names) {
      source.addEventListener(name, (event) => {
        alive();
        if (event.data) heard(JSON.parse(event.data), name);
      });
    }
  }
  const online = () => live === false && (clearTimeout(timer), open());
  addEventListener("online", online);
  open();
  return () => {
    closed = true;
    clearTimeout(timer);
    clearTimeout(silence);
    source.close();
    removeEventListener("online", online);
  };
}

/** Send a file; `progress(share)` is told on the way. */
export function upload(file, key, progress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/v1/documents");
    request.setRequestHeader("X-Fairlane-CSRF", csrf);
    request.setRequestHeader("Idempotency-Key", key);
    request.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded / event.total);
    request.onload = () =>
      request.status < 300 ? resolve(JSON.parse(request.responseText)) : reject(problem(request.status, request.responseText));
    request.onerror = () => reject(new Error("offline"));
    const form = new FormData();
    form.append("file", file, file.name);
    request.send(form);
  });
}
