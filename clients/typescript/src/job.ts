// Types that handlers get and throw, in a Worker or behind an HTTP target.

/** Such as "90s" or "2d", milliseconds from now, or an instant. */
export type Time = string | number | Date;

/** A text, bytes, or anything else as JSON. */
export type Body = string | Uint8Array | object | number | boolean | null;

/** Encodes the payloads of jobs and replies, to encrypt or compress them: the same as penstock.Codec in Go. */
export interface Codec {
  encode(plain: Uint8Array): Uint8Array | Promise<Uint8Array>;
  decode(encoded: Uint8Array): Uint8Array | Promise<Uint8Array>;
}

/** A job that is being run. */
export class Job {
  readonly id: string;
  readonly policy: string;
  readonly key: string;
  /** 1 is the first; only attempts that failed count. */
  readonly attempt: number;
  /** The submitter's key, or a unique one shared by all attempts of the job. */
  readonly idempotencyKey: string;
  /** The job's actual costs, by name: { tokens: 830 }. */
  used: Record<string, number> = {};
  /** The job's result, for a waiting submitter, a callback and the policy's history. */
  reply?: Body;

  constructor(
    /** Returns a header, whatever the case of its name; "" without one. */
    readonly header: (name: string) => string,
    public body: Uint8Array,
    /** Aborts when the policy's time-out has passed or the worker stops. */
    readonly signal: AbortSignal,
    /** Reports how far the job is, in up to 256 bytes, which is shown with it. An HTTP target cannot. */
    readonly progress: (text: string) => void = () => {},
    /**
     * Reports that the target's answer has begun: for a limit that counts from the answer, the request counts from now on,
     * and no longer from the end of the run. An HTTP target cannot.
     */
    readonly answered: () => void = () => {},
  ) {
    this.id = header("Penstock-Job");
    this.policy = header("Penstock-Policy");
    this.key = decodeKey(header("Penstock-Key"));
    this.attempt = Number(header("Penstock-Attempt") || 1);
    this.idempotencyKey = header("Idempotency-Key");
  }

  text(): string {
    return new TextDecoder().decode(this.body);
  }

  json<T = unknown>(): T {
    return JSON.parse(this.text());
  }
}

/**
 * Runs a job, which is done when the promise resolves. It throws one of the errors below, or any other one, which is a
 * failed attempt.
 */
export type Handler = (job: Job) => unknown;

/** The job can never succeed and becomes a dead letter. */
export class Permanent extends Error {}

/**
 * The other side is throttling: the whole bucket pauses, and no attempt is counted. Without a time the pause is the
 * policy's backoff.
 */
export class RetryAfter extends Error {
  constructor(readonly ms = 0, message = "throttled") {
    super(message);
  }
}

/** Runs the job again at a later time, without counting an attempt or holding up its bucket. */
export class Again extends Error {
  constructor(when: Time) {
    super(timeText(when));
  }
}

/** The other side is down, whatever the job is: after several of these in a row the bucket waits until it is back. */
export class Unavailable extends Error {}

/** How a run or a call ended, as its valve hears it. */
export interface Settlement {
  status: string;
  error?: string;
  again?: string;
  retry_after_ms?: number;
  used?: Record<string, number>;
  reply?: { header: Record<string, string[]>; body_too_large: boolean };
}

/** Returns what an error says of a run. */
export function ending(error: unknown): Settlement {
  const text = oneLine(error);
  if (error instanceof Again) return { status: "returned", again: error.message };
  if (error instanceof RetryAfter) return { status: "retry-after", retry_after_ms: Math.ceil(error.ms), error: text };
  if (error instanceof Permanent) return { status: "permanent", error: text };
  return { status: error instanceof Unavailable ? "unavailable" : "fail", error: text };
}

/** Returns a payload and the headers that describe it. */
export function encode(body: Body): [string | Uint8Array, Record<string, string>] {
  if (body instanceof Uint8Array) return [body, { "Content-Type": "application/octet-stream" }];
  if (typeof body === "string") return [body, { "Content-Type": "text/plain; charset=utf-8" }];
  return [JSON.stringify(body), { "Content-Type": "application/json" }];
}

/** The Content-Encoding of a payload that a codec encoded. */
export const ENCODING = "penstock-codec";

/** Encodes a payload, if there is a codec, and returns it with its headers. */
export async function seal(
  codec: Codec | undefined, data: string | Uint8Array, headers: Record<string, string>,
): Promise<[string | Uint8Array, Record<string, string>]> {
  if (!codec) return [data, headers];
  const already = Object.keys(headers).find((name) => name.toLowerCase() === "content-encoding");
  if (already) throw new TypeError(`encode a payload that has Content-Encoding ${headers[already]}`);
  const encoded = await codec.encode(typeof data === "string" ? new TextEncoder().encode(data) : data);
  return [encoded, { ...headers, "Content-Encoding": ENCODING }];
}

/** Returns the key of its form in subjects. */
export function decodeKey(form: string): string {
  if (form === "_") return "";
  return form.split(".").map((token) => (token === "%" ? "" : decodeURIComponent(token))).join(".");
}

/** Returns a time as headers have it. */
export function timeText(time: Time): string {
  return time instanceof Date ? time.toISOString() : typeof time === "number" ? `${time}ms` : time;
}

/** Returns the text of an error, fit for a header. */
export function oneLine(error: unknown): string {
  return String(error instanceof Error ? error.message || error.name : error).replace(/\s+/g, " ").trim().slice(0, 1000);
}
