// Words for the API's words. Its sentences, why and news, are the server's.

import { span } from "./format.js";

/** capacity is how many jobs a key may have. */
export const capacity = (p) => p.queue?.capacity ?? p.capacity;

/** counted is how many units of a limit count now. */
export const counted = (u) => Math.max(0, u.most - u.left - (u.open ?? 0));

/** HARMLESS is what holds buckets that keep their pace. */
export const HARMLESS = ["rate", "total_rate", "not_before", "quiet"];

/** held is what holds a bucket or a job, in a word or two; `why` is the sentence. */
export const held = (b) => (b.blocked_by ?? "").replace("limit:", "limit ").replaceAll("_", " ");

/** MEANT is what operators want, so what waits is not late. */
export const MEANT = ["paused", "policy_paused", "quiet"];

const LATE = {
  processor: "its drainer's machine was busy", rate: "its rate",
  workers_busy: "all workers had jobs", no_worker: "there were no workers",
  storage: "its drainer waited for storage", throttled_by_target: "the target asked for a pause",
  concurrency: "its maximum number of jobs was running", breaker: "the target was down, or could not be called",
  total_rate: "other keys had their turns", limit: "a limit was exhausted",
};

/** late returns the worst cause of late starts that is not meant, with its milliseconds. */
export function late(ms) {
  const [cause, most] = Object.entries(ms ?? {}).filter(([by]) => !MEANT.includes(by))
    .sort((a, b) => b[1] - a[1])[0] ?? [];
  if (!cause) return null;
  return { ms: most, why: LATE[cause] ?? (cause.startsWith("limit:") ?
    `the limit ${cause.slice(6)} was exhausted` : cause.replaceAll("_", " ")) };
}

/** eta describes when a job accepted now would start. */
export const eta = (ms) => ms === null || ms === undefined ? "unknown" :
  ms < 1000 ? "immediately" : "in " + span(ms);
