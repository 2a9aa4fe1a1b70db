// A policy: its settings, and its deepest buckets.

import { ask, get, path, withQuery } from "../api.js";
import { spark } from "../comb.js";
import { day, lasting } from "../day.js";
import { h } from "../dom.js";
import { down, state } from "../findings.js";
import { count, key, perSecond, plural, rate, span } from "../format.js";
import { action, dialog, facts, field, from, link, noRight, pager, search, table, to } from "../ui.js";
import { capacity, eta, late } from "../words.js";
import { rule } from "./doors.js";
import { limits } from "./limits.js";
import { hasQueue, limit } from "./overview.js";
import { recent, scheduled } from "./schedules.js";

const PAGE = 50;

export const title = ([name]) => name;

export const events = ([name]) => "policy=" + encodeURIComponent(name) +
  "&type=failed,throttled,dead,cancelled,breaker_opened,breaker_closed,limit_broken";

export async function load([name], page) {
  const [p, stats] = await Promise.all([get(path("policies", name)), get("/v1/stats")]);
  const buckets = hasQueue(p.policy) ? await get(withQuery(path("buckets", name), { offset: from(page), limit: PAGE })) : null;
  const deepest = p.policy.limits && buckets?.buckets.length ? await get(path("buckets", name, buckets.buckets[0].key)) : null;
  const minute = Math.floor(page.now() / 60_000);
  if (buckets && page.state.minute !== minute) { // there is news once a minute
    page.state.day = await get(path("minutes", name));
    page.state.minute = minute;
  }
  const { schedules } = buckets ? await recent(page, () => get(path("schedules", name))) : { schedules: [] };
  return { ...p, schedules, stat: stats.policies.find((s) => s.policy === name), window: stats.window_ms, buckets, deepest };
}

export function view({ policy: p, paused, state: life, overridden, source, set, stat, window, buckets, deepest, schedules, news }, page) {
  const name = p.name, why = noRight(page.may("operate", name), "operate");
  const held = buckets?.buckets.reduce((sum, b) => sum + b.depth, 0);
  return [
    h("div", { class: "head" },
      h("h1", null, name),
      paused ? h("span", { class: "tag warn" }, "paused") : null,
      overridden ? h("span", { class: "tag warn" }, "overridden") : null,
      life === "draining" ? h("span", { class: "tag" }, "draining") : null,
      h("div", { class: "actions" },
        buckets?.buckets.some(down) ? action("Probe the target now", () => probe(page, name), { why, id: "probe" }) : null,
        buckets ? paused ?
          action("Resume", () => page.does(() => ask("POST", path("resume", name)), `${name} is resumed.`), { why, id: "resume" }) :
          action("Pause", () => pause(page, name, buckets), { why, id: "pause" }) : null,
        p.outflow ? action("Change the rate…", () => change(page, p), { why, id: "rate" }) : null,
        overridden ? action("End overrides", () => restore(page, name, overridden), { why, id: "restore" }) : null,
        p.result_retention ? link(to.history(name), "History") : null,
        link(to.audit(name), "Change history"),
        buckets ? link(to.dead(name), "Dead letters") : null)),
    h("div", { class: "columns" },
      facts(
        ["Algorithm", p.algorithm?.replaceAll("_", " ")],
        buckets ? ["Limit", limit(p)] : ["Rule", rule(p)],
        ["Peak", p.peak ?? p.peak_total],
        ["Burst", p.burst],
        ["Capacity per key", capacity(p) && count(capacity(p))],
        ["Concurrency per key", p.concurrency ? count(p.concurrency) : null],
        ["Partitions", p.partitions],
        ["Target", buckets && target(p)],
        ["From", source === "file" ? `the file of set “${set}”` : set ? `the API; it is not in the file of set “${set}”` : "the API"],
        ...(overridden ?? []).map((text) => ["Overridden", text, "warn"]),
        ["Last change", overridden ? null : news]),
      facts(["Counted", window >= 59_000 ? "in the last minute" : `for ${span(window)}: what was before is unknown`], ...buckets ? [
        ["Starts", [rate(stat?.rate), " ", spark(stat?.starts ?? [], perSecond(p.outflow_total), 200, 30)]],
        ["Accepted", count(stat?.accepted)],
        ["Refused", count(stat?.refused), stat?.refused ? "bad" : ""],
        ["Done", count(stat?.done)],
        ["Failed attempts", count(stat?.failed), stat?.failed ? "bad" : ""],
        ["Throttled", count(stat?.throttled), stat?.throttled ? "warn" : ""],
        ["Dead", count(stat?.dead), stat?.dead ? "bad" : ""],
        ["Wait p50, p99", stat?.wait_ms ? `${span(stat.wait_ms.p50)}, ${span(stat.wait_ms.p99)}` : "–"],
        ["Run p50, p99", stat?.duration_ms ? `${span(stat.duration_ms.p50)}, ${span(stat.duration_ms.p99)}` : "–"],
      ] : [["Allowed", count(stat?.checks_allowed)], ["Refused", count(stat?.checks_refused), stat?.checks_refused ? "warn" : ""]])),
    limits(deepest ? "Limits, in the bucket " + key(deepest.key) : "Limits", p, deepest?.limits),
    page.state.day ? h("section", null, h("h2", null, lasting(page.state.day)), day(page.state.day, Math.max(300, page.width))) : null,
    schedules.length ? h("section", null, h("h2", null, "Schedules"), scheduled("Schedules of " + name, schedules, page, name)) : null,
    buckets ? h("section", null,
      h("div", { class: "head" }, h("h2", null, "Deepest buckets"),
        h("p", { class: "quiet" }, `${plural(buckets.total, "bucket holds", "buckets hold")} jobs or calls`),
        search("Key", "key", (text) => { if (text) location.hash = to.bucket(name, text); })),
      buckets.unanswered ? h("p", { class: "bad" }, `No drainer answers for ` +
        plural(buckets.unanswered.length, "partition") + `: their buckets are missing here.`) : null,
      table("Deepest buckets of " + name, columns(name), buckets.buckets,
        "No bucket holds jobs or calls.", (b) => b.key),
      pages(page, buckets, held)) :
      h("p", { class: "quiet" }, "It only answers checks: see ", link("#/doors", "Checks"), "."),
  ];
}

const target = (p) => p.target?.http?.url ?? (p.target?.nats ? "NATS " + p.target.nats.subject : "workers");

const columns = (name) => [
  { head: "Key", cell: (b) => link(to.bucket(name, b.key), key(b.key)) },
  { head: "Depth", number: true, cell: (b) => count(b.depth) },
  { head: "Running", number: true, cell: (b) => count(b.running) },
  { head: "Delayed", number: true, cell: (b) => count(b.delayed) },
  { head: "Calls", number: true, cell: (b) => count((b.calls ?? 0) + (b.calls_running ?? 0)) },
  { head: "Starts", number: true, cell: (b) => rate(b.rate_1m ?? b.rate) },
  { head: "Outflow", number: true, cell: (b) => b.outflow ? rate(b.outflow) : "–" },
  { head: "Oldest", number: true, cell: (b) => b.head_age_ms ? span(b.head_age_ms) : "–" },
  { head: "A new job starts", number: true, cell: (b) => eta(b.eta_ms) },
  { head: "State", cell: (b) => {
    const is = state(b), lost = late(b.late_ms);
    return [h("span", { class: "state " + is.level }, is.text),
      lost && lost.ms >= 500 ? h("span", { class: "tag warn" }, span(lost.ms) + " late") : null];
  } },
];

function pages(page, buckets, held) {
  const at = Number(from(page));
  return pager(page, buckets.next_offset,
    buckets.total <= PAGE ? buckets.total > 1 && `They hold ${plural(held, "job")}.` :
      `${count(at + 1)} to ${count(at + buckets.buckets.length)} of ${count(buckets.total)}, with ${plural(held, "job")}`);
}

const probe = (page, name) => page.asks({ title: `Probe the target of ${name}?`, go: "Probe it", danger: false,
  text: "A job of each bucket whose target is down calls it now. Pauses that the target asked for end, too." },
() => ask("POST", path("resume", name)), ({ probes }) =>
  probes ? `${plural(probes, "job probes", "jobs probe")} the target of ${name}.` : `A job of ${name} is already probing the target.`);

/** change overrides the rate for a while, after the admitter has looked at it. */
async function change(page, { name, outflow }) {
  const patch = (form, dry_run) => ask("PATCH", withQuery(path("policies", name) + "/override",
    { for: form.for, because: form.because, dry_run }), { outflow: form.outflow });
  const given = await dialog({
    title: `The rate of ${name}`, go: "Change it",
    content: [h("p", null, "It applies at once, to waiting jobs too. Then the policy is again what its file, or the API, says."),
      h("div", { class: "fields" },
        field("Outflow", "outflow", { placeholder: outflow, required: true, autofocus: true }),
        field("For", "for", { value: "1h", placeholder: "until it is ended" }),
        field("Because", "because", { placeholder: "their incident" }))],
    check: (form) => patch(form, 1).then(() => null, (error) => error.message),
  });
  if (given) await page.does(() => patch(given), ({ changed }) => `${name}: ${changed?.join(", ") || "nothing changed"}.`);
}

const restore = (page, name, overridden) => page.asks({ title: `End the overrides of ${name}?`, go: "End them",
  text: "Its numbers are again what its file, or the API, says now: " + overridden.join("; ") },
() => ask("DELETE", path("policies", name) + "/override"), `${name} is as its file, or the API, says.`);

const pause = (page, name, buckets) => page.asks({ title: `Pause ${name}?`, go: "Pause",
  text: `No job of ${name} starts until it is resumed: ${plural(buckets.total, "bucket holds", "buckets hold")} jobs. ` +
    "New jobs are accepted until their buckets are full, and running jobs finish." },
() => ask("POST", path("pause", name)), `${name} is paused.`);
