// Client of Fairlane's HTTP API. Types and paths come from schema.ts, which is generated; this file adds the key, errors that are
// thrown, retries that double nothing, uploads, waiting and events.
import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./schema.js";

export type { components, paths } from "./schema.js";
export type Receipt = components["schemas"]["Receipt"];
export type Document = components["schemas"]["Document"];
export type Explanation = components["schemas"]["Explanation"];
export type Problem = components["schemas"]["Problem"];

/** What the service answered instead of a result. `code` is stable: "bad-value", "nothing-here", "too-many-queued", … */
export class FairlaneError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly problem?: Problem,
  ) {
    super(message);
    this.name = "FairlaneError";
  }
}

export interface SubmitOptions {
  /** A repetition with the same key returns the first receipt. Default: a random one, so that retries double nothing. */
  key?: string;
  kind?: string;
  cost?: number;
  /** Seconds until it is ready. */
  delay?: number;
  /** The best priority that it may get, 1 to 9: for bulk imports. */
  noBetterThan?: number;
  /** The kinds that it passes through, one after the other. */
  steps?: string[];
  /** With a file: a long PDF or TIFF may be read in slices of so many pages. */
  slices?: number;
  /** Whose document it is; for an operator's key. */
  customer?: string;
}

export interface FairlaneEvent {
  id: string;
  event: string;
  data: Record<string, unknown>;
}

export interface ClientOptions {
  /** How many seconds something is tried again while the connection fails or the server is busy. Default: 60. */
  patience?: number;
  /** Aborts everything. */
  signal?: AbortSignal;
}

const BUSY = new Set([429, 502, 503, 504]);
const WAIT_SECONDS = 30; // of one ?wait= request
const SAFE = new Set(["GET", "HEAD", "PUT", "DELETE"]);

/** A connection to a Fairlane service; `api` is every call of it, typed. */
export class Fairlane {
  /** Every path of the API with its types, as openapi-fetch has them: `await client.api.GET("/v1/me")`. Errors are thrown. */
  readonly api: Client<paths>;
  private readonly url: string;
  private readonly headers: Record<string, string>;
  private readonly patience: number;
  private readonly signal: AbortSignal | undefined;

  constructor(url: string, key: string, options: ClientOptions = {}) {
    this.url = url.replace(/\/+$/, "");
    this.headers = { Authorization: `Bearer ${key}` };
    this.patience = 1000 * (options.patience ?? 60);
    this.signal = options.signal;
    this.api = createClient<paths>({ baseUrl: this.url, headers: this.headers, fetch: (request) => this.send(request) });
  }

  /** Submit a document without a file. */
  async submit(payload: unknown, options: SubmitOptions = {}): Promise<Receipt> {
    const { data } = await this.api.POST("/v1/documents", {
      body: { payload, ...fields(options) } as components["schemas"]["SubmissionBody"],
      headers: idempotency(options),
    });
    return data as Receipt;
  }

  /** Submit a file: a Blob of the browser, `await openAsBlob(path)` of Node, or bytes. */
  async submitFile(content: Blob | Uint8Array<ArrayBuffer>, name: string, options: SubmitOptions & { payload?: unknown } = {}): Promise<Receipt> {
    const form = new FormData();
    for (const [field, value] of Object.entries(fields(options))) form.append(field, String(value));
    if (options.payload !== undefined) form.append("payload", JSON.stringify(options.payload));
    form.append("file", content instanceof Blob ? content : new Blob([content]), name);
    const { data } = await this.api.POST("/v1/documents", {
      body: form as never,
      bodySerializer: (body: unknown) => body as FormData,
      headers: idempotency(options),
    });
    return data as Receipt;
  }

  /** Return a document as it is now. */
  async document(id: string): Promise<Document> {
    const { data } = await this.api.GET("/v1/documents/{id}", { params: { path: { id } } });
    return data as Document;
  }

  /** Wait until a document has ended and return it; after `timeout` seconds as it is then. */
  async wait(id: string, timeout = Infinity): Promise<Document> {
    const until = Date.now() + 1000 * timeout;
    for (;;) {
      const wait = Math.max(0, Math.min(WAIT_SECONDS, (until - Date.now()) / 1000));
      const { data } = await this.api.GET("/v1/documents/{id}", { params: { path: { id }, query: { wait } } });
      const document = data as Document;
      if (["done", "failed", "cancelled"].includes(document.state) || Date.now() >= until) return document;
    }
  }

  /** Return the result of a document that is done. */
  async result(id: string): Promise<unknown> {
    const { data } = await this.api.GET("/v1/documents/{id}/result", { params: { path: { id } } });
    return data;
  }

  /** Return the extracted text of a document that is done. */
  async text(id: string): Promise<string> {
    const { data } = await this.api.GET("/v1/documents/{id}/text", { params: { path: { id } }, parseAs: "text" });
    return data as string;
  }

  /** Explain why a document waits, about how much is ahead of it, and about when it will start. */
  async explain(id: string): Promise<Explanation> {
    const { data } = await this.api.GET("/v1/documents/{id}/explain", { params: { path: { id } } });
    return data as Explanation;
  }

  /** Cancel a document that has not ended. */
  async cancel(id: string): Promise<void> {
    await this.api.DELETE("/v1/documents/{id}", { params: { path: { id } } });
  }

  /** Yield what happens, as it happens, each once; `after` is the id of the last event that was seen, "0" for all that is kept.
   *  A connection that is lost is opened again after the last event. */
  async *events(after?: string, signal?: AbortSignal): AsyncGenerator<FairlaneEvent> {
    let last = after;
    while (!signal?.aborted) {
      try {
        for await (const event of this.stream(last, signal)) {
          last = event.id || last;
          yield event;
        }
      } catch (error) {
        if (signal?.aborted) return;
        if (error instanceof FairlaneError) throw error;
      }
    }
  }

  private async *stream(after: string | undefined, signal?: AbortSignal): AsyncGenerator<FairlaneEvent> {
    const query = after === undefined ? "" : `?after=${encodeURIComponent(after)}`;
    const headers = { ...this.headers, Accept: "text/event-stream" };
    const response = await this.send(new Request(`${this.url}/v1/events${query}`, { headers, signal: signal ?? null }));
    const decoder = new TextDecoder();
    let text = "";
    for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>) {
      text += decoder.decode(piece, { stream: true });
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        const event = parseEvent(text.slice(0, end));
        text = text.slice(end + 2);
        if (event) yield event;
      }
    }
  }

  /** Send a request, again while the server is busy or away if that doubles nothing; throw what is not a success. */
  private async send(request: Request): Promise<Response> {
    const until = Date.now() + this.patience;
    const repeatable = SAFE.has(request.method) || request.headers.has("Idempotency-Key");
    for (let pause = 250; ; pause = Math.min(2 * pause, 5000)) {
      const again = repeatable && Date.now() + pause < until;
      let response: Response | undefined;
      try {
        response = await fetch(request.clone(), this.signal ? { signal: this.signal } : {});
      } catch (error) {
        if (!again || this.signal?.aborted || request.signal.aborted) throw error;
      }
      if (response?.ok) return response;
      if (response && !(again && BUSY.has(response.status))) throw await toError(response);
      const seconds = Number(response?.headers.get("Retry-After") ?? 0);
      await response?.body?.cancel();
      await new Promise((resume) => setTimeout(resume, Math.max(pause * (0.5 + Math.random() / 2), 1000 * seconds)));
    }
  }
}

function fields(options: SubmitOptions): Record<string, unknown> {
  const { kind, cost, delay, noBetterThan: no_better_than, steps, slices, customer } = options;
  const all = { kind, cost, delay, no_better_than, steps, slices, customer };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

function idempotency(options: SubmitOptions): Record<string, string> {
  return { "Idempotency-Key": options.key ?? crypto.randomUUID() };
}

function parseEvent(block: string): FairlaneEvent | undefined {
  const members = new Map(block.split("\n").map((line) => [line.split(": ", 1)[0] ?? "", line.slice(line.indexOf(": ") + 2)]));
  const data = members.get("data");
  if (data === undefined) return undefined; // a comment that keeps the connection open
  return { id: members.get("id") ?? "", event: members.get("event") ?? "message", data: JSON.parse(data) };
}

async function toError(response: Response): Promise<FairlaneError> {
  if (response.headers.get("Content-Type")?.startsWith("application/problem+json")) {
    const problem = (await response.json()) as Problem;
    return new FairlaneError(problem.status, problem.type, problem.detail, problem);
  }
  return new FairlaneError(response.status, "", `the server answered ${response.status} without a reason`);
}
