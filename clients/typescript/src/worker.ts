// A worker, by the protocol of docs/workers-protocol.md.

import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import {
  connect, createInbox, headers, Match,
  type Msg, type NatsConnection, type NodeConnectionOptions, type Subscription,
} from "@nats-io/transport-node";
import {
  type Codec, encode, ENCODING, ending, type Handler, Job, oneLine, seal, type Settlement, Unavailable,
} from "./job.js";

const WINDOW = 50; // milliseconds that a claim counts, on this process's monotonic clock
const LOOK = 5000; // without an offer for so long, the worker asks whether there is anybody to make one

export interface WorkerOptions {
  /** Concurrent jobs, 4 by default. One bucket gets about three quarters of them, which leaves room for others. */
  concurrency?: number;
  /** `nats.prefix` of the installation. */
  prefix?: string;
  /** Decodes the payloads of jobs and encodes their replies. */
  codec?: Codec;
  /** Reports problems; console.error by default. */
  log?: (text: string) => void;
}

interface Running {
  key: string;
  stop: AbortController;
  returned: boolean; // the worker stops: an error means that the job goes back to its bucket
}

class Asked extends Error {}

/**
 * Runs the jobs of a policy:
 *
 *     await new Worker("nats://127.0.0.1:4222", "charges", async (job) => { … }).run();
 */
export class Worker {
  readonly #options: WorkerOptions & Required<Omit<WorkerOptions, "codec">>;
  #inbox = "";
  readonly #claims = new Map<string, number>(); // open claims, by token: when they were made
  readonly #running = new Map<string, Running>(); // by the token of their claim
  readonly #ended = new Set<Promise<void>>(); // of each job, when its outcome has been reported
  #nats?: NatsConnection;
  #offers?: Subscription;
  #heard = 0; // when the last offer came
  #stopping = false;

  constructor(
    readonly servers: string | NodeConnectionOptions,
    readonly policy: string,
    readonly handler: Handler,
    options: WorkerOptions = {},
  ) {
    this.#options = { concurrency: 4, prefix: "penstock", log: console.error, ...options };
  }

  /** Works until SIGTERM or SIGINT, then calls stop. A second signal has its usual effect. */
  async run(grace = 30_000): Promise<void> {
    const over = new AbortController();
    const told = Promise.race(["SIGTERM", "SIGINT"].map((name) => once(process, name, over)));
    try {
      await Promise.race([this.start(), told]);
      await told;
    } finally {
      over.abort();
    }
    await this.stop(grace);
  }

  /** Connects, and works from then on. */
  async start(): Promise<void> {
    const { prefix, log } = this.#options;
    const given: NodeConnectionOptions = typeof this.servers === "string" ? { servers: this.servers.split(",") } : this.servers;
    const inboxPrefix = /^[\w-]+$/.test(given.user ?? "") ? `_INBOX.${given.user}` : "_INBOX"; // as the role worker allows
    const options = {
      name: `penstock worker of ${this.policy}`, maxReconnectAttempts: -1, reconnectTimeWait: 250, inboxPrefix, ...given,
    };
    this.#inbox = createInbox(options.inboxPrefix);
    for (let tried = 0; !this.#nats; tried++) {
      try {
        this.#nats = await connect(options);
        if (tried > 0) log(`NATS at ${this.#nats.getServer()} is connected`);
      } catch (error) {
        if (this.#stopping) return;
        if (tried === 0) log(`NATS at ${options.servers ?? "127.0.0.1"}: ${oneLine(error)}`);
        await sleep(250);
      }
    }
    const nats = this.#nats;
    if (this.#stopping) return nats.close();
    nats.subscribe(`${this.#inbox}.*`, { callback: (_, m) => this.#told(m) });
    this.#offers = nats.subscribe(`${prefix}.work.${this.policy}`, {
      queue: "workers",
      callback: (error, m) => (error ? log(`policy ${this.policy}: ${error.message}`) : this.#offered(m)),
    });
    void this.#look();
    void this.#outages(nats);
  }

  /**
   * Stops taking jobs, and resolves when the running ones have ended and been reported. After the grace period, their
   * signal asks them to end.
   */
  async stop(grace = 30_000): Promise<void> {
    this.#stopping = true;
    this.#offers?.unsubscribe();
    await sleep(WINDOW); // a job that is claimed may still come
    const timer = setTimeout(() => [...this.#running.values()].forEach(giveBack), grace);
    while (this.#ended.size > 0) await Promise.all(this.#ended);
    clearTimeout(timer);
    await this.#nats?.drain();
  }

  async #outages(nats: NatsConnection): Promise<void> {
    for await (const { type } of nats.status()) {
      if (this.#stopping) return;
      if (type === "disconnect") this.#options.log("NATS: the connection is lost");
      if (type === "reconnect") this.#options.log(`NATS at ${nats.getServer()} is connected`);
    }
  }

  /** Reports once when offers cannot come, and once when they can again. */
  async #look(): Promise<void> {
    let reported = "";
    while (!this.#stopping) {
      await sleep(LOOK, undefined, { ref: false });
      if (this.#stopping || performance.now() - this.#heard < LOOK) continue;
      let trouble = "";
      try {
        const subject = `${this.#options.prefix}.claim.${this.policy}.0`;
        const answer = await this.#nats!.request(subject, claim("claim", "look", { want: "job", slots: 0 }), { timeout: 2000 });
        trouble = turn(answer).error ?? "";
      } catch (error) {
        trouble = `no drainer owns it (start drainer, or admitter --drain), or there is none of that name: ${oneLine(error)}`;
      }
      if (trouble !== reported) this.#options.log(`policy ${this.policy}: ${trouble || "its jobs can come now"}`);
      reported = trouble;
    }
  }

  /** Claims a job at once, or says that there is no room for one. */
  #offered(offer: Msg): void {
    const now = (this.#heard = performance.now());
    for (const [token, at] of this.#claims) if (now - at > WINDOW) this.#claims.delete(token);
    const token = randomBytes(8).toString("hex");
    let slots = Math.max(this.#options.concurrency - this.#claims.size - this.#running.size, 0);
    if (this.#stopping || turn(offer).v !== 1) slots = 0;
    if (slots > 0) this.#claims.set(token, now);
    const keys = [...this.#running.values()].map(({ key }) => key);
    const except = [...new Set(keys)].filter((key) => keys.filter((other) => other === key).length > 3 * (slots - 1));
    this.#nats!.publish(offer.reply!, claim("claim", token, { want: "job", slots, except }), { reply: `${this.#inbox}.${token}` });
  }

  /** Takes the valve's answer to a claim. */
  #told(m: Msg): void {
    const token = m.subject.slice(m.subject.lastIndexOf(".") + 1);
    const told = turn(m);
    const running = this.#running.get(token);
    if (told.state === "stop") return running && giveBack(running);
    const claimed = this.#claims.get(token) ?? -Infinity;
    this.#claims.delete(token);
    if (told.state !== "go") return;
    const ended = this.#run(token, claimed, m, told).catch((error) => this.#options.log(oneLine(error)));
    this.#ended.add(ended);
    void ended.then(() => this.#ended.delete(ended));
  }

  async #run(token: string, claimed: number, m: Msg, told: Turn): Promise<void> {
    const lease = told.lease_ms!;
    if (performance.now() - claimed > WINDOW) return this.#report(token, m, { status: "returned" }, lease);
    const stop = new AbortController();
    let said = "";
    const tell = (text = said) => this.#nats!.publish(m.reply!, claim("progress", token, { progress: (said = text) }));
    let begun = false;
    const answered = () => {
      if (told.max_delay_ms && !begun) this.#nats!.publish(m.reply!, claim("answered", token, {}));
      begun = true;
    };
    const job = new Job(started(told, m), m.data, stop.signal, tell, answered);
    const encoded = job.header("Content-Encoding") === ENCODING;
    const running: Running = { key: told.job!.key, stop, returned: false };
    this.#running.set(token, running);
    // Three times within the lease: one may be lost.
    const progress = setInterval(tell, lease / 3);
    const expiry = setTimeout(() => stop.abort(new Asked(`the time-out of ${lease} ms has passed`)), lease);
    let outcome: Settlement = { status: "done" };
    let payload: Uint8Array | string | undefined;
    try {
      if (encoded) job.body = await this.#decode(job.body);
      await this.handler(job);
      payload = await this.#reply(job, encoded, outcome);
    } catch (error) {
      outcome = ending(error);
      if (outcome.status === "permanent") payload = await this.#reply(job, encoded, outcome).catch(() => undefined);
      if (running.returned && ["fail", "unavailable"].includes(outcome.status)) outcome.status = "returned";
      if (outcome.status === "fail") this.#options.log(`job ${job.id}, attempt ${job.attempt}: ${outcome.error}`);
    }
    outcome.used = job.used;
    clearInterval(progress);
    clearTimeout(expiry);
    this.#running.delete(token);
    await this.#report(token, m, outcome, lease, payload);
  }

  async #decode(body: Uint8Array): Promise<Uint8Array> {
    if (!this.#options.codec) throw new Unavailable("the payload is encoded, and this worker has no codec");
    return this.#options.codec.decode(body);
  }

  /** Returns the payload of an outcome, which it describes in it, cut to 1 KiB if it does not fit a message. */
  async #reply(job: Job, encoded: boolean, outcome: Settlement): Promise<Uint8Array | string | undefined> {
    if (job.reply === undefined) return undefined;
    const [data, described] = await seal(encoded ? this.#options.codec : undefined, ...encode(job.reply));
    const cut = Buffer.byteLength(data) > (this.#nats!.info?.max_payload ?? 1 << 20) - (64 << 10);
    const header = Object.fromEntries(Object.entries(described).map(([name, value]) => [name, [value]]));
    outcome.reply = { header, body_too_large: cut };
    return cut ? Buffer.from(data).subarray(0, 1024) : data;
  }

  /** Repeats the outcome until the valve answers or no longer waits for it. */
  async #report(token: string, m: Msg, outcome: Settlement, lease: number, payload?: Uint8Array | string): Promise<void> {
    const said = claim("settle", token, outcome);
    const carried = headers();
    if (payload !== undefined) carried.set("Penstock-Turn", said, Match.Exact);
    const end = performance.now() + lease;
    for (;;) {
      try {
        await this.#nats!.request(m.reply!, payload ?? said, { headers: carried, timeout: 1000 });
        return;
      } catch {
        // no answer in time, or no responder: the valve may be moving
      }
      if (performance.now() > end) return this.#options.log(`no valve heard that a job is ${outcome.status}`);
      await sleep(100);
    }
  }
}

/** A valve's message. */
interface Turn {
  v?: number;
  state?: string;
  error?: string;
  lease_ms?: number;
  max_delay_ms?: number;
  job?: { id: string; policy: string; key: string; attempt: number; idempotency_key: string };
}

/** Returns a message to a valve. */
function claim(op: string, id: string, more: object): string {
  return JSON.stringify({ v: 1, op, id, n: 1, ...more });
}

/** Returns a message of a valve, which is a header of one with a job. */
function turn(m: Msg): Turn {
  try {
    return JSON.parse(header(m, "Penstock-Turn") || m.string()) ?? {};
  } catch {
    return {};
  }
}

/** Returns a job's headers, with those that a target gets besides. */
function started(told: Turn, m: Msg): (name: string) => string {
  const { id, policy, key, attempt, idempotency_key } = told.job!;
  const own: Record<string, string> = {
    "penstock-job": id, "penstock-policy": policy, "penstock-key": key, "penstock-attempt": String(attempt),
    "penstock-timeout": String(told.lease_ms), "idempotency-key": idempotency_key,
  };
  return (name) => own[name.toLowerCase()] ?? header(m, name);
}

function giveBack(running: Running): void {
  running.returned = true;
  running.stop.abort(new Asked("the worker stops"));
}

function header(m: Msg, name: string): string {
  return m.headers?.get(name, Match.IgnoreCase) ?? "";
}
