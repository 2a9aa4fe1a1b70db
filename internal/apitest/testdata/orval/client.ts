// Calls a server with a client that orval generated.
import { getJob, getPolicy, putPolicy, submitBatch, submitJob } from "./api.ts";

const put = await putPolicy("notes", { algorithm: "leaking_bucket", outflow: "1/s", capacity: 100 });
if (put.status !== 201) throw new Error(JSON.stringify(put));
console.log("put", put.status, put.data.policy.algorithm);

const submitted = await submitJob("notes", encodeURIComponent("a/b c"), undefined, {
  headers: { "Content-Type": "text/plain", "Penstock-Not-Before": "1h" }, body: "hello",
});
if (submitted.status !== 202) throw new Error(JSON.stringify(submitted));
console.log("submit", submitted.status, submitted.data.verdict);

const job = await getJob(submitted.data.job, { body: 1 });
if (job.status !== 200 || !("partition" in job.data)) throw new Error(JSON.stringify(job));
console.log("job", job.data.key, job.data.body);

const batch = await submitBatch([{ policy: "notes", key: "k", text: "x" }, { policy: "none", key: "k" }]);
if (batch.status !== 200) throw new Error(JSON.stringify(batch));
console.log("batch", batch.status, (await batch.stream.text()).trim().split("\n").length);

const missing = await getPolicy("none");
if (missing.status !== 404) throw new Error(JSON.stringify(missing));
console.log("missing", missing.status, missing.data.title);
