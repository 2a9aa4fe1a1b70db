// A worker, by the protocol of docs/workers-protocol.md.

import { randomBytes } from "node:crypto";
import {
  connect, createInbox, headers as newHeaders, Match,
  type Msg, type NatsConnection, type NodeConnectionOptions, type Subscription,
} from "@nats-io/transport-node";
import {
  Again, type Codec, encode, ENCODING, type Handler, type Job, newJob, oneLine, Permanent, RetryAfter, seal, Unavailable,
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
  job: Job;
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
  readonly #inbox = createInbox();
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
    const names = ["SIGTERM", "SIGINT"] as const;
    let tell = () => {};
    const told = new Promise<void>((resolve) => (tell = resolve));
    for (const name of names) process.on(name, tell);
    try {
      await Promise.race([this.start(), told]);
      await told;
    } finally {
      for (const name of names) process.off(name, tell);
    }
    await this.stop(grace);
  }

  /** Connects, and works from then on. */
  async start(): Promise<void> {
    const { prefix, log } = this.#options;
    const given = typeof this.servers === "string" ? { servers: this.servers.split(",") } : this.servers;
    const options = { name: `penstock worker of ${this.policy}`, maxReconnectAttempts: -1, reconnectTimeWait: 250, ...given };
    for (let tried = 0; !this.#nats; tried++) {
      try {
        this.#nats = await connect(options);
        if (tried > 0) log(`NATS at ${this.#nats.getServer()} is connected`);
      } catch (error) {
        if (this.#stopping) return;
        if (tried === 0) log(`NATS at ${options.servers ?? "127.0.0.1"}: ${oneLine(error)}`);
        await new Promise((resolve) => setTimeout(resolve, 250));
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
      await new Promise((resolve) => setTimeout(resolve, LOOK).unref());
      if (this.#stopping || performance.now() - this.#heard < LOOK) continue;
      let trouble = "";
      try {
        const subject = `${this.#options.prefix}.valve.${this.policy}.0`;
        const answer = await this.#nats!.request(subject, '{"v":1,"op":"worker"}', { timeout: 2000 });
        trouble = answer.json<{ error?: string }>().error ?? "";
      } catch (error) {
        trouble = `no drainer owns it (start drainer, or admitter --drain), or there is none of that name: ${oneLine(error)}`;
      }
      if (trouble !== reported) this.#options.log(`policy ${this.policy}: ${trouble || "its jobs can come now"}`);
      reported = trouble;
    }
  }

  /** Step 2: claim, busy or crowded, at once. */
  #offered(offer: Msg): void {
    const now = (this.#heard = performance.now());
    for (const [token, at] of this.#claims) if (now - at > WINDOW) this.#claims.delete(token);
    const key = header(offer, "Penstock-Key");
    const free = this.#options.concurrency - this.#claims.size - this.#running.size;
    const same = [...this.#running.values()].filter((running) => running.key === key).length;
    if (free <= 0 || this.#stopping || header(offer, "Penstock-V") !== "1") return this.#say(offer.reply!, "busy");
    if (same > 3 * (free - 1)) return this.#say(offer.reply!, "crowded");
    const token = randomBytes(8).toString("hex");
    this.#claims.set(token, now);
    this.#say(offer.reply!, "claim", `${this.#inbox}.${token}`);
  }

  #say(to: string, status: string, reply?: string, text = ""): void {
    this.#nats!.publish(to, text, { headers: hdrs({ "Penstock-Status": status }), reply });
  }

  /** Step 3: the valve's answer to a claim. */
  #told(m: Msg): void {
    const token = m.subject.slice(m.subject.lastIndexOf(".") + 1);
    const status = header(m, "Penstock-Status");
    const running = this.#running.get(token);
    if (status === "stop") return running && giveBack(running);
    const claimed = this.#claims.get(token) ?? -Infinity;
    this.#claims.delete(token);
    if (status !== "go") return;
    const ended = this.#run(token, claimed, m).catch((error) => this.#options.log(oneLine(error)));
    this.#ended.add(ended);
    void ended.then(() => this.#ended.delete(ended));
  }

  /** Steps 4 to 6. */
  async #run(token: string, claimed: number, m: Msg): Promise<void> {
    const timeout = Number(header(m, "Penstock-Timeout"));
    if (performance.now() - claimed > WINDOW) return this.#report(m, { "Penstock-Status": "late" }, timeout);
    const stop = new AbortController();
    let said = "";
    const tell = (text = said) => this.#say(m.reply!, "progress", undefined, (said = text));
    const job = newJob((name) => header(m, name), m.data, stop.signal, tell);
    const encoded = job.header("Content-Encoding") === ENCODING;
    const running: Running = { job, key: header(m, "Penstock-Key"), stop, returned: false };
    this.#running.set(token, running);
    // Three times within the time-out: one may be lost.
    const progress = setInterval(tell, timeout / 3);
    const expiry = setTimeout(() => stop.abort(new Asked(`the time-out of ${timeout} ms has passed`)), timeout);
    const outcome: Record<string, string> = { "Penstock-Status": "done" };
    let reply: Uint8Array | string = "";
    try {
      if (encoded) job.body = await this.#decode(job.body);
      await this.handler(job);
      reply = await this.#reply(job, encoded, outcome);
    } catch (error) {
      outcome["Penstock-Error"] = oneLine(error);
      if (error instanceof Again) {
        outcome["Penstock-Status"] = "returned";
        outcome["Penstock-Again"] = error.message;
      } else if (error instanceof Permanent) {
        outcome["Penstock-Status"] = "permanent";
        reply = await this.#reply(job, encoded, outcome).catch(() => "");
      } else if (error instanceof RetryAfter) {
        outcome["Penstock-Status"] = "retry-after";
        if (error.ms > 0) outcome["Penstock-Retry-After"] = String(Math.ceil(error.ms));
      } else {
        outcome["Penstock-Status"] = running.returned ? "returned" : "fail";
        if (error instanceof Unavailable) outcome["Penstock-Unavailable"] = "true";
        else if (!running.returned) this.#options.log(`job ${job.id}, attempt ${job.attempt}: ${oneLine(error)}`);
      }
    }
    clearInterval(progress);
    clearTimeout(expiry);
    this.#running.delete(token);
    for (const [name, cost] of Object.entries(job.used)) outcome[`Penstock-Used-${name}`] = String(cost);
    await this.#report(m, outcome, timeout, reply);
  }

  async #decode(body: Uint8Array): Promise<Uint8Array> {
    if (!this.#options.codec) throw new Unavailable("the payload is encoded, and this worker has no codec");
    return this.#options.codec.decode(body);
  }

  /** Returns the payload of an outcome, which it describes in a header, cut to 1 KiB if it does not fit a message. */
  async #reply(job: Job, encoded: boolean, outcome: Record<string, string>): Promise<Uint8Array | string> {
    if (job.reply === undefined) return "";
    const [data, headers] = await seal(encoded ? this.#options.codec : undefined, ...encode(job.reply));
    const cut = Buffer.byteLength(data) > (this.#nats!.info?.max_payload ?? 1 << 20) - (64 << 10);
    const header = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]]));
    outcome["Penstock-Reply"] = JSON.stringify({ header, body_too_large: cut });
    return cut ? Buffer.from(data).subarray(0, 1024) : data;
  }

  /** Repeats the outcome until the valve answers or no longer waits for it. */
  async #report(
    m: Msg, outcome: Record<string, string>, timeout: number, reply: Uint8Array | string = "",
  ): Promise<void> {
    const end = performance.now() + timeout;
    for (;;) {
      try {
        const answer = await this.#nats!.request(m.reply!, reply, { headers: hdrs(outcome), timeout: 1000 });
        if (header(answer, "Penstock-Status")) return;
      } catch {
        // no answer in time, or no responder: the valve may be moving
      }
      if (performance.now() > end) {
        return this.#options.log(`no valve heard that ${header(m, "Penstock-Job")} is ${outcome["Penstock-Status"]}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

function giveBack(running: Running): void {
  running.returned = true;
  running.stop.abort(new Asked("the worker stops"));
}

function header(m: Msg, name: string): string {
  return m.headers?.get(name, Match.IgnoreCase) ?? "";
}

function hdrs(values: Record<string, string>) {
  const h = newHeaders();
  for (const [name, value] of Object.entries(values)) h.set(name, value, Match.Exact);
  return h;
}
