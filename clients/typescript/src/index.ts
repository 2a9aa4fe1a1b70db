export { Penstock, PenstockError, RefusedError, UnavailableError, Permit, batchJob } from "./client.js";
export type { AcquireOptions, BatchJob, BatchLine, Ended, FetchOptions, JobOptions } from "./client.js";
export type { Accepted, JobState, Outcome } from "./client.js";
export { Again, Permanent, RetryAfter, Unavailable } from "./job.js";
export type { Body, Codec, Handler, Job, Time } from "./job.js";
export { listener, target } from "./target.js";
export { Worker } from "./worker.js";
export type { WorkerOptions } from "./worker.js";
export type { components, paths } from "./api.js";
