// The HTTP API of admitters. Types are in api.ts, which is made of openapi.yaml.

import { isUtf8 } from "node:buffer";
import { setTimeout as sleep } from "node:timers/promises";
import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./api.js";
import { type Body, type Codec, encode, ENCODING, ending, seal, type Time, timeText } from "./job.js";

type Schemas = components["schemas"];
export type Accepted = Schemas["Accepted"];
export type Outcome = Schemas["Outcome"];
export type JobState = Schemas["Job"];
export type Ended = Schemas["EndedJob"];
export type BatchJob = Schemas["BatchJob"];
export type BatchLine = Schemas["BatchLine"] & { n: number; status: number };

/** An error answer, as a problem document (RFC 9457). */
export class PenstockError extends Error {
  readonly reason: string;
  constructor(readonly status: number, readonly problem: Partial<Schemas["Problem"]>, options?: ErrorOptions) {
    super(`${status} ${problem.detail ?? problem.title ?? ""}`.trim(), options);
    this.reason = problem.reason ?? "";
  }
}

/** 429: the bucket is full, or the limit is exhausted (see `reason`). `retryAfter` is in milliseconds. */
export class RefusedError extends PenstockError {
  constructor(problem: Partial<Schemas["Problem"]>, readonly retryAfter: number) {
    super(429, problem);
  }
}

/**
 * 503, 507, or no answer, with status 0. The job may have been stored: repeat it with its idempotencyKey.
 */
export class UnavailableError extends PenstockError {}

/** Optional settings of a job. */
export interface JobOptions {
  idempotencyKey?: string;
  deadline?: Time;
  notBefore?: Time;
  priority?: number;
  cost?: number;
  /** By the names of limits' costs, such as tokens. */
  costs?: Record<string, number>;
  /** Failures after which it is a dead letter, at most the policy's. */
  maxAttempts?: number;
  /** Of one attempt, at most the policy's. */
  timeout?: string | number;
  /** How long the ended job is kept, at most the policy's. */
  retention?: string | number;
  /** A name under which one job of the bucket waits: the earlier one, or with replace this one. */
  unique?: string;
  replace?: boolean;
  tags?: string[];
  callback?: string;
  method?: string;
  path?: string;
  /** Any other header, such as Content-Type or Penstock-Forward-Authorization. */
  headers?: Record<string, string>;
}

export interface AcquireOptions {
  /** Maximum wait in milliseconds: 30 s by default, up to 5 minutes. */
  wait?: number;
  priority?: number;
  cost?: number;
  costs?: Record<string, number>;
  signal?: AbortSignal;
}

export interface FetchOptions extends AcquireOptions {
  /** The bucket of all requests, or of each. */
  key?: string | ((request: Request) => string);
}

/** Talks to the admitters at a URL. */
export class Penstock {
  /** Any request of the API, typed by its description: `penstock.api.GET("/v1/policies")`. It throws as methods do. */
  readonly api: Client<paths>;

  constructor(
    url = "http://127.0.0.1:8080",
    readonly options: { token?: string; /** of requests, in milliseconds */ timeout?: number; codec?: Codec } = {},
  ) {
    const headers: Record<string, string> = options.token ? { Authorization: `Bearer ${options.token}` } : {};
    this.api = createClient<paths>({ baseUrl: url, headers });
    this.api.use({
      onResponse: async ({ response }) => {
        if (!response.ok) throw await failure(response);
      },
      onError: ({ error }) => {
        throw new UnavailableError(0, { detail: String((error as Error).cause ?? error) }, { cause: error });
      },
    });
  }

  /** Stores a job. A RefusedError has the time after which to retry. */
  async submit(policy: string, key: string, body: Body, options: JobOptions = {}): Promise<Accepted> {
    return (await this.#submit(policy, key, body, options, 0)) as Accepted;
  }

  /** Submits a job and waits for its end, up to 5 minutes. The answer has an `end` if it came in time. */
  async run(
    policy: string, key: string, body: Body, options: JobOptions & { wait?: number } = {},
  ): Promise<Outcome | Accepted> {
    return this.#submit(policy, key, body, options, options.wait ?? 30_000);
  }

  async #submit(policy: string, key: string, body: Body, options: JobOptions, wait: number) {
    const [plain, type] = encode(body);
    const [data, headers] = await seal(this.options.codec, plain, { ...type, ...jobHeaders(options) });
    const { data: answer } = await this.api.POST("/v1/jobs/{policy}/{key}", {
      params: { path: { policy, key }, query: wait ? { wait: `${wait}ms` } : {} },
      headers,
      body: data as never,
      bodySerializer: (all: unknown) => all as string | Uint8Array<ArrayBuffer>,
      signal: this.#patience(wait),
    });
    if (!answer?.job) throw new UnavailableError(0, { detail: "what answers is no admitter" });
    return this.#opened(answer);
  }

  /** Decodes the reply of a job that has ended. */
  async #opened<T extends Accepted | Outcome>(answer: T): Promise<T> {
    const reply = "reply" in answer ? answer.reply : undefined;
    const encoding = Object.entries(reply?.header ?? {}).find(([name]) => name.toLowerCase() === "content-encoding");
    if (!reply || !this.options.codec || encoding?.[1][0] !== ENCODING || reply.body_too_large) return answer;
    const plain = Buffer.from(await this.options.codec.decode(bytes(reply)));
    const { body, body_base64, ...rest } = reply;
    const decoded = isUtf8(plain) ? { body: plain.toString() } : { body_base64: plain.toString("base64") };
    return { ...answer, reply: { ...rest, ...decoded } };
  }

  /** Encodes a job of a batch. */
  async #sealed(job: BatchJob): Promise<BatchJob> {
    if (!this.options.codec) return job;
    const [plain, type] = "body" in job ? encode(job.body as Body)
      : encode(job.text ?? Buffer.from(job.base64 ?? "", "base64"));
    const [data, headers] = await seal(this.options.codec, plain, { ...type, ...job.headers });
    return { policy: job.policy, key: job.key, headers, base64: Buffer.from(data).toString("base64") };
  }

  /** Stores up to 10,000 jobs, of at most 16 MiB. The answer has a line for each, in order: see batchJob. */
  async batch(jobs: Iterable<BatchJob>): Promise<BatchLine[]> {
    const { data } = await this.api.POST("/v1/jobs:batch", {
      body: await Promise.all([...jobs].map((job) => this.#sealed(job))), parseAs: "text", signal: this.#patience(),
    });
    return String(data).trim().split("\n").filter(Boolean).map((line) => JSON.parse(line) as BatchLine);
  }

  /** Returns a job's state, or its outcome while that is kept. */
  async job(job: string, options: { body?: boolean } = {}): Promise<JobState | Ended> {
    const query = options.body ? ({ body: 1 } as const) : {};
    const { data } = await this.api.GET("/v1/jobs/{job}", {
      params: { path: { job }, query }, signal: this.#patience(),
    });
    return data!;
  }

  /**
   * Polls a job until it has ended. Its end must be remembered: by its idempotencyKey, by the policy, or because it is a
   * dead letter. Otherwise the error has status 404. After the timeout, by default five minutes, it is a TimeoutError, and
   * the job goes on. progress is called with the reports of the job's worker.
   */
  async wait(
    job: string, options: { timeout?: number; signal?: AbortSignal; progress?: (text: string) => void } = {},
  ): Promise<Ended> {
    const { timeout = 300_000 } = options;
    const end = performance.now() + timeout;
    for (let told = "", last = "not known"; ;) {
      options.signal?.throwIfAborted();
      let pause = 0;
      try {
        const { data: state } = await this.api.GET("/v1/jobs/{job}", {
          params: { path: { job } }, signal: this.#patience(0, end - performance.now()),
        });
        if (ends.has(state!.state)) return state as Ended;
        last = state!.state;
        const { eta_ms, progress = "" } = state as JobState;
        pause = eta_ms ?? 0;
        if (progress && progress !== told) options.progress?.((told = progress));
      } catch (error) {
        if (!(error instanceof UnavailableError)) throw error;
        if (performance.now() < end) last = String(error); // a request ends with the wait
      }
      const left = end - performance.now();
      if (left <= 0) throw new DOMException(`job ${job} has not ended within ${timeout} ms: ${last}`, "TimeoutError");
      await sleep(Math.min(Math.max(pause, 50), 1000, left), undefined, { signal: options.signal }).catch(() => {});
    }
  }

  /** Drops a job that has not started. The error has status 409 if it runs, and 404 if it has ended. */
  async cancel(job: string): Promise<JobState> {
    const { data } = await this.api.DELETE("/v1/jobs/{job}", { params: { path: { job } }, signal: this.#patience() });
    return data!;
  }

  /**
   * Waits for the start of a call that the program makes itself, at once. The permit is then settled, or given back if the
   * call has not begun. fetch below does all of that.
   */
  async acquire(policy: string, key: string, options: AcquireOptions = {}): Promise<Permit> {
    const { wait = 30_000, signal, ...body } = options;
    for (;;) {
      const { data } = await this.api.POST("/v1/permits/{policy}/{key}", {
        params: { path: { policy, key }, query: { wait: `${wait}ms` } },
        body,
        signal: signal ? AbortSignal.any([signal, this.#patience(wait)]) : this.#patience(wait),
      });
      const permit = new Permit(this.api, policy, key, data!);
      if (performance.now() < permit.startBy) return permit;
      await permit.giveBack(); // this process was held up
    }
  }

  /**
   * Returns a fetch whose requests start at the pace of a policy: `new OpenAI({ fetch: penstock.fetch("llm") })`. A request
   * that would wait for too long throws a RefusedError. A 429 pauses the bucket, a 5xx counts for its breaker.
   */
  fetch(policy: string, options: FetchOptions = {}): typeof globalThis.fetch {
    const { key = "", ...rest } = options;
    return async (input, init) => {
      const request = new Request(input, init);
      const bucket = typeof key === "string" ? key : key(request);
      const permit = await this.acquire(policy, bucket, { ...rest, signal: request.signal });
      let response: Response;
      try {
        response = await fetch(request);
      } catch (error) {
        const aborted = request.signal.aborted;
        await permit.settle(aborted ? "fail" : "unavailable", { error: String(error) }).catch(() => {});
        throw error;
      }
      const settled = { retryAfter: retryAfter(response) };
      if (!GATEWAYS.has(response.status)) void permit.answered().catch(() => {});
      if (response.status === 429) { // other callers must pause, too
        await permit.settle(429, settled).catch(() => {});
        return response;
      }
      return whenRead(response, () => void permit.settle(response.status, settled).catch(() => {}));
    };
  }

  #patience(more = 0, most = Infinity): AbortSignal {
    return AbortSignal.timeout(Math.max(1, Math.ceil(Math.min((this.options.timeout ?? 30_000) + more, most))));
  }
}

/** Allows one call, which begins by `startBy` of performance.now(), or is given back. Its lease is renewed until then. */
export class Permit {
  readonly id: string;
  readonly startBy: number;
  /** The call's actual costs, by name. */
  used: Record<string, number> = {};
  readonly #api: Client<paths>;
  readonly #path: { policy: string; key: string };
  readonly #renewal?: NodeJS.Timeout;
  readonly #counts: boolean;

  constructor(
    api: Client<paths>, policy: string, key: string,
    lent: { permit: string; lease_ms: number; start_within_ms: number; max_delay_ms?: number },
  ) {
    this.#counts = lent.max_delay_ms !== undefined;
    this.id = lent.permit;
    this.startBy = performance.now() + lent.start_within_ms;
    this.#api = api;
    this.#path = { policy, key };
    if (lent.lease_ms > 0) {
      this.#renewal = setInterval(() => void this.#put({ status: "progress" }).catch(() => {}), lent.lease_ms / 3);
      this.#renewal.unref();
    }
  }

  /**
   * Reports the end of the call; a number is the HTTP status of its answer. `retryAfter`, in milliseconds, is the pause that
   * the other side requests.
   */
  async settle(
    status: "done" | "fail" | "unavailable" | "retry-after" | "returned" | number = "done",
    options: { error?: string; retryAfter?: number } = {},
  ): Promise<void> {
    clearInterval(this.#renewal);
    await this.#put({ status, error: options.error, retry_after_ms: Math.ceil(options.retryAfter ?? 0), used: this.used });
  }

  /**
   * Reports that the target's answer has begun: for a limit that counts from the answer, the call counts from now on, and
   * no longer from its end.
   */
  async answered(): Promise<void> {
    if (this.#counts) await this.#put({ status: "answered" });
  }

  /** Makes the call, and settles as it ends: RetryAfter pauses the bucket, Unavailable counts for its breaker. */
  async run<T>(call: () => Promise<T>): Promise<T> {
    try {
      const result = await call();
      await this.settle().catch(() => {});
      return result;
    } catch (error) {
      const { status, retry_after_ms: retryAfter } = ending(error);
      const known = status === "retry-after" || status === "unavailable" ? status : "fail";
      await this.settle(known, { error: String(error), retryAfter }).catch(() => {});
      throw error;
    }
  }

  /** Returns a permit whose call has not begun. */
  async giveBack(): Promise<void> {
    await this.settle("returned");
  }

  async #put(body: paths["/v1/permits/{policy}/{key}"]["put"]["requestBody"]["content"]["application/json"]) {
    try {
      await this.#api.PUT("/v1/permits/{policy}/{key}", {
        params: { path: this.#path, query: { permit: this.id } }, body, signal: AbortSignal.timeout(10_000),
      });
    } catch (error) {
      if (!(error instanceof PenstockError && error.status === 404)) throw error; // else its lease is over
    }
  }
}

/** Returns a job for Penstock.batch. */
export function batchJob(policy: string, key: string, body: Body, options: JobOptions = {}): BatchJob {
  const content = body instanceof Uint8Array ? { base64: Buffer.from(body).toString("base64") }
    : typeof body === "string" ? { text: body } : { body };
  return { policy, key, headers: jobHeaders(options), ...content };
}

/** Statuses that a gateway may have made, so that the request may not have arrived yet. */
const GATEWAYS = new Set([408, 499, 502, 503, 504, ...Array.from({ length: 10 }, (_, n) => 520 + n)]);

const ends = new Set<string>(["done", "dead", "cancelled", "purged", "replayed"]);

/** Headers of options that have none of their own, or one of another name. */
const NAMES: Record<string, string> = {
  idempotencyKey: "Idempotency-Key", tags: "Penstock-Tag", headers: "", costs: "", replace: "", wait: "",
};
const TIMES = new Set(["deadline", "notBefore", "timeout", "retention"]);

function jobHeaders(options: JobOptions): Record<string, string> {
  const headers: Record<string, string> = { ...options.headers };
  for (const [option, value] of Object.entries(options)) {
    const name = NAMES[option] ?? `Penstock-${option[0]!.toUpperCase()}${option.slice(1).replace(/[A-Z]/g, "-$&")}`;
    if (!name || value === undefined) continue;
    headers[name] = Array.isArray(value) ? value.join(", ") : TIMES.has(option) ? timeText(value) : String(value);
  }
  if (options.unique && options.replace) headers["Penstock-Unique"] += "; replace";
  for (const [name, cost] of Object.entries(options.costs ?? {})) headers[`Penstock-Cost-${name}`] = String(cost);
  return headers;
}

function bytes(of: { body?: string; body_base64?: string }): Buffer {
  return of.body_base64 === undefined ? Buffer.from(of.body ?? "") : Buffer.from(of.body_base64, "base64");
}

async function failure(response: Response): Promise<PenstockError> {
  const text = await response.text();
  let problem: Partial<Schemas["Problem"]> & { retry_after_ms?: number } = { title: response.statusText };
  if (response.headers.get("Content-Type")?.includes("json")) problem = JSON.parse(text);
  if (response.status === 429) return new RefusedError(problem, problem.retry_after_ms ?? (retryAfter(response) || 1000));
  const unavailable = response.status === 503 || response.status === 507;
  return new (unavailable ? UnavailableError : PenstockError)(response.status, problem);
}

/** Returns the retry delay of an answer in milliseconds; 0 without one. */
function retryAfter(response: Response): number {
  const ms = Number(response.headers.get("Retry-After-Ms"));
  if (ms > 0) return ms;
  const text = response.headers.get("Retry-After") ?? "";
  return Math.max(0, /^\d+$/.test(text) ? Number(text) * 1000 : (Date.parse(text) || 0) - Date.now());
}

/** Returns a response that calls a function when its body has been read, or is not wanted any more. */
function whenRead(response: Response, then: () => void): Response {
  if (!response.body) {
    then();
    return response;
  }
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array<ArrayBuffer>>();
  void response.body.pipeTo(writable).catch(() => {}).finally(then);
  const read = new Response(readable, response);
  Object.defineProperty(read, "url", { value: response.url });
  return read;
}
