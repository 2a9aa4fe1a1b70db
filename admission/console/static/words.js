// Sentences for the API's words.

import { clock, count, span } from "./format.js";

const HELD = {
  rate: "waits for its turn: only its rate limits it",
  total_rate: "waits for its turn under the rate of all keys together",
  concurrency: "its maximum number of jobs is running",
  paused: "an operator paused it",
  policy_paused: "an operator paused the whole policy",
  throttled_by_target: "the target asked for a pause",
  backoff: "all its jobs have failed and will be retried",
  not_before: "none of its jobs is due yet",
  no_worker: "no process has workers for it",
  workers_busy: "all workers are busy, or the bucket has its maximum number of them",
  no_drainer: "no drainer owns its partition: start one",
  storage: "its drainer cannot write its lease or an outcome, or is still reading the queue",
};

/** mistaken: a drainer could not call the target, by a mistake of its own. Package workers has the words. */
export const mistaken = (b) => b.last_error?.startsWith("a mistake at the drainer") ?? false;

const breaker = (b) => (mistaken(b) ? "its drainer cannot call the target" : b.last_error ? "the target is down" :
  "the target is down, or cannot be called") + ": one job at a time probes it, without counting attempts";

/** counted is how many units of a limit count now. */
export const counted = (u) => Math.max(0, u.most - u.left - (u.open ?? 0));

/** usedUp says what a bucket's limit has no units left for; until: when some come free, if that is known. */
function usedUp(b, name, until) {
  const u = b.limits?.find((u) => u.name === name && u.open);
  return `the limit ${name} is used up` + (u ? `: ${count(u.open)} unanswered, ${count(counted(u))} counted` :
    until ? "" : ", or kept by another drainer");
}

/** blockedBy says what keeps a bucket, or a job, from starting. */
export function blockedBy(b, until) {
  const by = b.blocked_by;
  if (!by) return "";
  const words = by.startsWith("limit:") ? usedUp(b, by.slice(6), until) :
    by === "breaker" ? breaker(b) : HELD[by] ?? by;
  return words + (until ? `, until ${clock(until)}` : "");
}

/** HARMLESS is what holds buckets that keep their pace. */
export const HARMLESS = ["rate", "total_rate", "not_before"];

const short = {
  total_rate: "rate of all keys", policy_paused: "policy paused",
  not_before: "not due", no_worker: "no worker", workers_busy: "workers busy",
  no_drainer: "no drainer", throttled_by_target: "target asked for a pause",
};

/** held is blockedBy in a word or two. */
export const held = (b) => b.blocked_by === "breaker" ?
  mistaken(b) ? "drainer's mistake" : b.last_error ? "target down" : "target unavailable" :
  short[b.blocked_by] ?? (b.blocked_by ?? "").replace("limit:", "limit ");

const LATE = {
  processor: "its drainer's machine was busy", rate: "its rate",
  workers_busy: "all workers had jobs", no_worker: "there were no workers",
  storage: "its drainer waited for storage", throttled_by_target: "the target asked for a pause",
  concurrency: "its maximum number of jobs was running", breaker: "the target was down, or could not be called",
  total_rate: "other keys had their turns",
};

/** late returns the worst cause of late starts other than pauses, with its milliseconds. */
export function late(ms) {
  const [cause, most] = Object.entries(ms ?? {}).filter(([by]) => !by.endsWith("paused"))
    .sort((a, b) => b[1] - a[1])[0] ?? [];
  if (!cause) return null;
  return { ms: most, why: LATE[cause] ?? (cause.startsWith("limit:") ?
    `the limit ${cause.slice(6)} was used up` : cause.replaceAll("_", " ")) };
}

/** changed describes a policy's overrides, or a change within the last day, or returns null. */
export function changed({ overridden, last_change: last }) {
  if (overridden) return `is overridden: ${overridden.join("; ")}`;
  const ago = last ? Math.max(0, Date.now() - Date.parse(last.at)) : Infinity;
  return ago < 86400e3 ? `was changed ${span(ago)} ago: ${last.changed.join(", ")}` : null;
}

/** eta describes when a job accepted now would start. */
export const eta = (ms) => ms === null || ms === undefined ? "unknown" :
  ms < 1000 ? "immediately" : "in " + span(ms);
