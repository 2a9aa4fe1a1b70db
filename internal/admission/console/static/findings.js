// Is anything refused, late, deep, failing, stuck, unowned? The dashboard for Grafana has the same questions in this order.

import { clock, count, key, plural, span } from "./format.js";
import { to } from "./ui.js";
import { HARMLESS, MEANT, capacity, held, late } from "./words.js";

const MINUTE = 59_000; // ms of counting that are enough for a no
const NEAR = 0.8; // of its capacity: a bucket will soon refuse
const LONG = 600_000; // ms of waiting that are mentioned after a change of the policy

/**
 * findings answers the six questions from the API's documents; drainers is null without the right. Each answer is
 * {text, link, level}: "bad" needs action, "warn" attention.
 */
export function findings({ policies, stats, window, buckets, depths, bytes, unanswered, drainers, dead, schedules }) {
  const none = (what) => window >= MINUTE ? `No ${what} in the last minute.` :
    `Unknown: watching for ${span(window)}, and no ${what} since.`;
  return [
    { question: "Refused?", none: none("job was refused"), found: refused(stats, buckets) },
    { question: "Late?", none: buckets.some(down) ? "Starts of other targets are on time." : "Starts are on time.", found: [...tardy(buckets), ...slowed(policies, buckets)] },
    { question: "Deep?", none: "No bucket is near its capacity, and no policy its room in bytes.", found: [...crowded(depths, bytes), ...deep(policies, buckets)] },
    { question: "Failing?", none: none("attempt failed"), found: [...failing(stats, buckets, dead), ...missed(schedules)] },
    { question: "Stuck?", none: "No waiting job is stuck.", found: stuck(policies, buckets, depths) },
    { question: "Unowned?", none: "Every queue with jobs has a drainer.", found: unowned(unanswered, depths, drainers) },
  ];
}

function refused(stats, buckets) {
  return stats.filter((s) => s.refused > 0).sort((a, b) => b.refused - a.refused).map((s) => {
    const deepest = buckets.find((b) => b.policy === s.policy);
    return { level: "bad", link: deepest ? to.bucket(s.policy, deepest.key) : to.policy(s.policy),
      text: `${s.policy} refused ${plural(s.refused, "job")}` +
        (deepest ? `; its deepest bucket is ${key(deepest.key)}, with ${plural(deepest.depth, "job")}.` : ".") };
  });
}

/** together groups items by policy and cause, so that each cause is one line. */
const together = (items, cause) => Object.values(Object.groupBy(items, (x) => cause(x) + " " + (x.b ?? x).policy));

function tardy(buckets) {
  const all = buckets.map((b) => ({ b, late: late(b.late_ms) })).filter(({ b, late }) => late && late.ms >= 500 && !down(b))
    .sort((x, y) => y.late.ms - x.late.ms);
  return together(all, (x) => x.late.why).map(([{ b, late }, ...more]) => ({ level: late.ms >= 10_000 ? "bad" : "warn",
    link: more.length ? to.policy(b.policy) : to.bucket(b.policy, b.key),
    text: (more.length ? `${count(more.length + 1)} buckets of ${b.policy} fell up to ${span(late.ms)} behind their outflow` :
      `${b.policy}/${key(b.key)} fell ${span(late.ms)} behind its outflow`) + ` in the last minute: ${late.why}.` }));
}

/** down: the bucket belongs under "Failing?". */
export const down = (b) => b.blocked_by === "breaker";

function deep(policies, buckets) {
  const room = Object.fromEntries(policies.map(({ policy: p }) => [p.name, capacity(p)]));
  const all = buckets.filter((b) => b.depth >= NEAR * room[b.policy])
    .sort((a, b) => b.depth / room[b.policy] - a.depth / room[a.policy]);
  return together(all, () => "").map(([b, ...more]) => ({ level: "warn",
    link: more.length ? to.policy(b.policy) : to.bucket(b.policy, b.key),
    text: `${b.policy}/${key(b.key)} holds ${count(b.depth)} of at most ${plural(room[b.policy], "job")}` +
      (more.length ? `, and ${plural(more.length, "other bucket is", "other buckets are")} nearly full.` : ".") }));
}

/** crowded lists policies whose jobs take nearly all bytes that they may. */
const crowded = (depths, bytes) => Object.entries(bytes).filter(([, b]) => b.why).map(([name, { used, max, why }]) => ({
  level: used + used / depths[name] > max ? "bad" : "warn", // for one more job of average size
  link: to.policy(name), text: `T${why.slice(1)}.` }));

/** slowed lists recently changed policies in which jobs wait long for their turn. */
function slowed(policies, buckets) {
  return policies.flatMap(({ policy: { name }, news }) => {
    const b = news && buckets.find((b) => b.policy === name && b.eta_ms >= LONG && HARMLESS.includes(b.blocked_by));
    return b ? [{ level: "warn", link: to.bucket(name, b.key),
      text: `${name} ${news}. A new job for ${key(b.key)} would start in ${span(b.eta_ms)}.` }] : [];
  });
}

/** waiting tells of a bucket, and of others that wait for the same reason. */
const waiting = (level) => ([b, ...more]) => ({ level, link: more.length ? to.policy(b.policy) : to.bucket(b.policy, b.key),
  text: `${b.policy}/${key(b.key)} ${b.why}` + (b.head_age_ms ? `; its oldest job waits for ${span(b.head_age_ms)}` : "") +
    (more.length ? `, and ${plural(more.length, "other bucket waits", "other buckets wait")} for the same reason.` : ".") });

function failing(stats, buckets, dead) {
  const letters = Object.fromEntries(dead.map((d) => [d.policy, d.letters]));
  const stand = (n) => `${plural(n, "dead letter")} ${n === 1 ? "waits" : "wait"} to be replayed or dropped`;
  const targets = together(buckets.filter(down).sort((a, b) => !!b.last_error - !!a.last_error), () => "").map(waiting("bad"));
  const attempts = stats.filter((s) => s.failed + s.dead + s.throttled > 0)
    .sort((a, b) => b.dead - a.dead || b.failed - a.failed).map((s) => ({
      policy: s.policy, level: s.dead || s.failed > s.done ? "bad" : "warn",
      link: s.dead || letters[s.policy] ? to.dead(s.policy) : to.policy(s.policy),
      text: `${s.policy}: ` + [
        s.failed && plural(s.failed, "attempt") + " failed",
        s.throttled && `the target asked for a pause ${plural(s.throttled, "time")}`,
        s.dead && plural(s.dead, "job") + " became " + (s.dead === 1 ? "a dead letter" : "dead letters"),
      ].filter(Boolean).join(", ") + `; ${count(s.done)} done` + (letters[s.policy] ? `. ${stand(letters[s.policy])}.` : ".") }));
  const told = new Set(attempts.map((a) => a.policy));
  const older = dead.filter((d) => !told.has(d.policy)).map((d) => ({ level: "warn", link: to.dead(d.policy),
    text: `${d.policy}: ${stand(d.letters)}, the last one since ${clock(d.newest_at)}.` }));
  return [...targets, ...attempts, ...older];
}

const missed = (schedules) => schedules.filter((s) => s.last?.outcome === "missed").map((s) => ({ level: "warn", link: to.policy(s.policy),
  text: `The schedule ${s.name} of ${s.policy}/${key(s.key)} made no job at ${clock(s.last.at)}: ${s.last.reason}.` }));

function stuck(policies, buckets, depths) {
  const paused = policies.filter((p) => p.paused && depths[p.policy.name]).map((p) => ({ level: "warn",
    link: to.policy(p.policy.name),
    text: `${p.policy.name} is paused by an operator: ${plural(depths[p.policy.name], "job waits", "jobs wait")}.` }));
  const held1 = buckets.filter((b) => b.blocked_by && ![...HARMLESS, "breaker", "policy_paused", "no_drainer"].includes(b.blocked_by))
    .filter((b) => !b.running || b.blocked_by === "paused").filter((b) => b.blocked_by !== "backoff" || b.head_age_ms > 60_000)
    .sort((a, b) => (b.head_age_ms ?? 0) - (a.head_age_ms ?? 0));
  const mild = (b) => [...MEANT, "throttled_by_target"].includes(b.blocked_by) ? "warn" : "bad";
  return [...paused, ...together(held1, (b) => b.blocked_by).map((all) => waiting(mild(all[0]))(all))];
}

function unowned(unanswered, depths, drainers) {
  const lost = Object.entries(unanswered ?? {}).filter(([policy]) => depths[policy])
    .map(([policy, partitions]) => ({ level: "bad", link: "#/drainers",
      text: `No drainer answers for ${policy}` + (partitions.length > 1 ? ` (${plural(partitions.length, "partition")})` : "") +
        `: ${plural(depths[policy], "job waits", "jobs wait")}.` }));
  const dead = (drainers ?? []).filter((d) => !d.alive).map((d) => ({ level: "bad", link: "#/drainers",
    text: `The drainer ${d.host}:${d.pid} has not renewed its lease for ${span(d.lease_age_ms)}.` }));
  return [...lost, ...dead];
}

/** state describes a bucket in a word or two, with a level. */
export function state(b) {
  const by = b.blocked_by ?? "";
  if (b.reading) return { text: "loading", level: "warn" };
  if (!by) return { text: b.running ? "running" : b.depth || b.calls ? "starting" : "idle", level: "" };
  if (HARMLESS.includes(by)) return { text: "on pace", level: "" };
  return { text: held(b), level: [...MEANT, "throttled_by_target", "concurrency", "backoff"].includes(by) ||
    by.startsWith("limit:") ? "warn" : "bad" };
}
