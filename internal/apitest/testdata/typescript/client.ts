// Calls a server with a client that is typed by the API's description.
import createClient from "openapi-fetch";
import type { paths } from "./api.d.ts";

const [url, token] = process.argv.slice(2);
const c = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${token}` } });

const put = await c.PUT("/v1/policies/{policy}", {
  params: { path: { policy: "letters" } },
  body: { algorithm: "leaking_bucket", outflow: "1/s", capacity: 100 },
});
if (!put.data) throw new Error(JSON.stringify(put.error));
console.log("put", put.response.status, put.data.policy.algorithm);

const submitted = await c.POST("/v1/jobs/{policy}/{key}", {
  params: { path: { policy: "letters", key: "a/b c" }, header: { "Penstock-Not-Before": "1h" } },
  body: "hello",
  bodySerializer: (body: unknown) => String(body),
  headers: { "Content-Type": "text/plain" },
});
if (!submitted.data || !("verdict" in submitted.data)) throw new Error(JSON.stringify(submitted.error));
console.log("submit", submitted.response.status, submitted.data.verdict);

const job = await c.GET("/v1/jobs/{job}", {
  params: { path: { job: submitted.data.job }, query: { body: 1 } },
});
if (!job.data || !("partition" in job.data)) throw new Error(JSON.stringify(job.error));
console.log("job", job.data.key, job.data.body);

const batch = await c.POST("/v1/jobs:batch", {
  body: [{ policy: "letters", key: "k", text: "x" }, { policy: "none", key: "k" }],
  parseAs: "text",
});
if (!batch.data) throw new Error(JSON.stringify(batch.error));
console.log("batch", batch.response.status, String(batch.data).trim().split("\n").length);

const missing = await c.GET("/v1/policies/{policy}", { params: { path: { policy: "none" } } });
if (!missing.error || !("title" in missing.error)) throw new Error("what is missing is no problem");
console.log("missing", missing.response.status, missing.error.title);
