// Runs jobs that end as their payloads say. Arguments: URL of NATS, policy, and "target" for an HTTP target.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Again, type Job, listener, Permanent, RetryAfter, target, Unavailable, Worker } from "@penstock-mq/client";

let throttled = false;
let snoozed = false;
let release = () => {};
const released = new Promise<void>((resolve) => (release = resolve));

async function handle(job: Job): Promise<void> {
  const payload = job.text();
  console.log("ran", job.key, job.attempt, job.id, job.idempotencyKey, payload);
  job.used.tokens = 3;
  switch (payload.split(",")[0]) {
    case "fail":
      throw new Error("it will not do");
    case "exit":
      throw "? left";
    case "permanent":
      throw new Permanent("never");
    case "down":
      throw new Unavailable("nobody there");
    case "throttled":
      if (!throttled) {
        throttled = true;
        throw new RetryAfter(100);
      }
      break;
    case "again":
      if (!snoozed) {
        snoozed = true;
        throw new Again(100);
      }
      break;
    case "slow":
      await new Promise((resolve) => setTimeout(resolve, 2000));
      break;
    case "far":
      job.progress("20 %");
      job.progress("40 %");
      await released;
      job.reply = { far: job.key };
      break;
    case "near":
      release();
      job.reply = "near";
      throw new Permanent("too near");
    case "large":
      job.reply = new Uint8Array(9 << 20);
      break;
    case "answered":
      job.answered();
      throw new Error("it answered");
    case "stuck":
      await new Promise((_, reject) => job.signal.addEventListener("abort", () => reject(job.signal.reason)));
  }
}

const [url, policy, as] = process.argv.slice(2);
if (as === "target") {
  const server = createServer(listener(target(handle, { secret: "0123456789abcdef" })));
  server.listen(0, "127.0.0.1", () => console.log(`ready http=127.0.0.1:${(server.address() as AddressInfo).port}`));
} else {
  const { host, username: user, password: pass } = new URL(url!);
  const servers = user ? { servers: host, user, pass } : url!;
  await new Worker(servers, policy!, handle, { concurrency: 3 }).run(1000 * Number(process.env.GRACE ?? 30));
}
