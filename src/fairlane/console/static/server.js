// How does the page talk to its server? Calls with the session's cookie, a stream that comes back, uploads with progress.
//
// Laws:
// - Every call that changes something carries the word against forged requests.
// - A stream that is silent for too long counts as lost: the page says so and tries again.

import { has, say } from "./texts.js";

const AGAIN_MS = [500, 1000, 2000, 4000, 8000];
const READ_MS = 60_000; // a look that takes longer is on a line that is dead

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
  const signal = method === "GET" ? AbortSignal.timeout(READ_MS) : undefined;
  const answer = await fetch(address, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
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

/** Listen to server-sent events until the function that is returned is called; `state(true | false)` says whether it is live.
 *  Read with fetch, not with EventSource, as only so a silent line can be told from a quiet one: comments count as life. */
export function listen(address, heard, state, silentMs) {
  let timer,
    silence,
    line,
    tries = 0,
    closed = false,
    live;

  function turn(now) {
    if (live !== now) state((live = now));
  }
  function alive() {
    tries = 0;
    turn(true);
    clearTimeout(silence);
    silence = setTimeout(() => line.abort(), silentMs);
  }
  async function open() {
    clearTimeout(timer);
    line = new AbortController();
    silence = setTimeout(() => line.abort(), silentMs);
    try {
      const answer = await fetch(address, { headers: { Accept: "text/event-stream" }, signal: line.signal });
      if (answer.status === 401 && !closed) return dispatchEvent(new Event("signed-out"));
      if (answer.ok) await read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch {
      // lost; it is tried again
    }
    clearTimeout(silence);
    if (closed) return;
    turn(false);
    timer = setTimeout(open, AGAIN_MS[Math.min(tries++, AGAIN_MS.length - 1)]);
  }
  async function read(reader) {
    let rest = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      alive();
      const events = (rest + piece.value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const told = event
          .split("\n")
          .filter((one) => one.startsWith("data:"))
          .map((one) => one.slice(5))
          .join("\n");
        if (told && !closed) heard(JSON.parse(told));
      }
    }
  }
  const online = () => live === false && !closed && open();
  addEventListener("online", online);
  open();
  return () => {
    closed = true;
    clearTimeout(timer);
    clearTimeout(silence);
    line.abort();
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
