// What handlers get and throw, in a Worker and behind an HTTP target alike.

/** Such as "90s" or "2d", milliseconds from now, or an instant. */
export type Time = string | number | Date;

/** A job that is being run. */
export interface Job {
  id: string;
  policy: string;
  key: string;
  /** 1 is the first; only attempts that failed count. */
  attempt: number;
  /** The submitter's, or one that all attempts of the job share and no other job has. */
  idempotencyKey: string;
  body: Uint8Array;
  /** Returns a header, whatever the case of its name; "" without one. */
  header(name: string): string;
  text(): string;
  json<T = unknown>(): T;
  /** Aborts when the policy's time-out has passed or the worker stops. */
  signal: AbortSignal;
  /** What the job really cost, by the names of its costs: { tokens: 830 }. */
  used: Record<string, number>;
}

/**
 * Runs a job, which is done when the promise resolves. It throws one of the errors below, or any other one, which is a
 * failed attempt.
 */
export type Handler = (job: Job) => unknown;

/** No attempt can succeed: the job becomes a dead letter. */
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

/** The job should run again at a time, and its bucket goes on with others; no attempt is counted. */
export class Again extends Error {
  constructor(when: Time) {
    super(timeText(when));
  }
}

/** The other side is down, whatever the job is: after several of these in a row the bucket waits until it is back. */
export class Unavailable extends Error {}

export function newJob(header: (name: string) => string, body: Uint8Array, signal: AbortSignal): Job {
  const text = () => new TextDecoder().decode(body);
  return {
    id: header("Penstock-Job"),
    policy: header("Penstock-Policy"),
    key: decodeKey(header("Penstock-Key")),
    attempt: Number(header("Penstock-Attempt") || 1),
    idempotencyKey: header("Idempotency-Key"),
    body,
    header,
    text,
    json: () => JSON.parse(text()),
    signal,
    used: {},
  };
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
