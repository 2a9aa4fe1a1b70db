// Calls a server. Arguments: its URL, a token, and the URL of an API.
import { batchJob, Penstock, PenstockError, RefusedError, UnavailableError } from "@penstock-mq/client";
import type { BatchJob, JobState, Outcome } from "@penstock-mq/client";

const [url, token, api] = process.argv.slice(2);
const client = new Penstock(url!, { token });

/** Repeats a call while a job has not reached its drainer yet. */
async function asked<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
    }
  }
}

/** Returns the error of a call. */
async function fails<T extends Error>(kind: abstract new (...args: never[]) => T, call: () => Promise<unknown>) {
  try {
    await call();
  } catch (error) {
    if (error instanceof kind) return error;
    throw error;
  }
  throw new Error("it does not fail");
}

const options = { idempotencyKey: "1", tags: ["a", "b"], priority: 2, notBefore: 3_600_000 };
const first = await client.submit("mail", "acme/ü b.c", { to: "ann" }, options);
const again = await client.submit("mail", "acme/ü b.c", { to: "ann" }, { idempotencyKey: "1" });
console.log("submit", first.job, again.job, again.duplicate ? "True" : "False");
const job = (await asked(() => client.job(first.job, { body: true }))) as JobState;
console.log("job", job.key, job.body, job.priority, job.tags!.join(" "));
const slow = await fails(DOMException, () => client.wait(first.job, { timeout: 100 }));
console.log(slow.name === "TimeoutError" && slow.message.replace("100 ms", "0.1"));
console.log("cancel", (await asked(() => client.cancel(first.job))).state, (await client.wait(first.job)).state);

await client.submit("mail", "", new Uint8Array([0, 255]));
await client.submit("mail", "", "text");
const full = await fails(RefusedError, () => client.submit("mail", "", null));
console.log("refused", full.status, full.reason, full.retryAfter > 0 ? "True" : "False");

const jobs: BatchJob[] = [batchJob("mail", "b", { n: 1 }, { cost: 1 }), batchJob("mail", "b", "text"),
  { policy: "none", key: "b" }];
console.log("batch", ...(await client.batch(jobs)).map((line) => line.status));

for (const body of ["good", "refuse"]) {
  const ended = (await client.run("echo", "k", body, { path: "/x", headers: { "Penstock-Forward-X-User": "u" } })) as Outcome;
  console.log("run", ended.end, ended.reply!.status, ended.reply!.body);
}

const missing = await fails(PenstockError, () => client.job("mail:999"));
console.log("missing", missing.status, missing.problem.title);
for (const other of ["http://127.0.0.1:1", api!]) {
  const nobody = await fails(UnavailableError, () => new Penstock(other).submit("mail", "", ""));
  console.log("unavailable", nobody.status);
}

const permit = await client.acquire("calls", "openai", { costs: { tokens: 60 } });
permit.used.tokens = 10; // which leaves room for 90
await permit.run(async () => {});
await (await client.acquire("calls", "openai", { costs: { tokens: 90 } })).run(async () => console.log("permit True"));
const late = await fails(RefusedError, () => client.acquire("calls", "openai", { costs: { tokens: 50 }, wait: 100 }));
console.log("too late", late.reason, late.retryAfter > 1000 ? "True" : "False");
await (await client.acquire("calls", "other")).giveBack();

const paced = client.fetch("paced", { key: (request) => (request.url.endsWith("good") ? "" : "paused"), wait: 5000 });
for (const path of ["/good", "/throttle"]) {
  const answer = await paced(api + path, { method: "GET" });
  console.log("fetch", answer.status, await answer.text());
}
const paused = await fails(RefusedError, () => client.acquire("paced", "paused", { wait: 100 }));
console.log("paused", paused.retryAfter > 1000 ? "True" : "False");
