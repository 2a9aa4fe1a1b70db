// Compresses payloads. Arguments: URL of a server, a token, and the URL of NATS.
import { gunzipSync, gzipSync } from "node:zlib";
import { batchJob, Penstock, Worker } from "@penstock-mq/client";
import type { Outcome } from "@penstock-mq/client";

const [url, token, nats] = process.argv.slice(2);
const codec = { encode: (plain: Uint8Array) => gzipSync(plain), decode: async (encoded: Uint8Array) => gunzipSync(encoded) };
const client = new Penstock(url!, { token, codec });
const answer = await client.run("go", "", { from: "typescript" }, {
  wait: 60_000, maxAttempts: 1, timeout: 30_000, retention: "1h", unique: "one", replace: true,
});
console.log((answer as Outcome).reply?.body);
await client.batch([batchJob("go", "batch", "a text", { priority: 3 })]);
await new Worker(nats!, "jobs", (job) => void (job.reply = `${job.text()}, in typescript`), { codec }).run();
