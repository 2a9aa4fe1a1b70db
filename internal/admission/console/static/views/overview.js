// Is anything refused, late, deep, failing, stuck, unowned? And each policy: its rate against its limit.

import { get, withQuery } from "../api.js";
import { spark } from "../comb.js";
import { h } from "../dom.js";
import { findings } from "../findings.js";
import { clock, count, key, perSecond, plural, rate, span } from "../format.js";
import { link, search, table, to } from "../ui.js";
import { capacity } from "../words.js";
import { fields } from "./audit.js";
import { recent, scheduled } from "./schedules.js";

const CHANGES = 5; // the last ones
const SCHEDULES = 10;
const ROWS = 50; // policies that are shown; the rest is found by name

export const title = () => "Overview";

export const events = () =>
  "type=failed,throttled,dead,cancelled,breaker_opened,breaker_closed,limit_broken";

export async function load(_, page) {
  const all = page.may("read");
  const [{ policies }, stats, deep, late, dead, changes, drainers, schedules] = await Promise.all([
    get("/v1/policies"), get("/v1/stats"), get(withQuery("/v1/buckets", { limit: 100 })),
    get(withQuery("/v1/buckets", { by: "late", limit: 20 })), all ? get("/v1/dead").then((d) => d.policies) : [],
    all ? get(withQuery("/v1/audit", { limit: CHANGES })).then((a) => a.changes) : [],
    all ? get("/v1/drainers").then((d) => d.drainers) : null,
    recent(page, () => get(withQuery("/v1/schedules", { limit: SCHEDULES }))),
  ]);
  return { policies, stats: stats.policies, window: stats.window_ms, buckets: both(deep.buckets, late.buckets),
    depths: { __proto__: null, ...deep.depths }, bytes: deep.bytes ?? {}, unanswered: deep.unanswered, drainers, dead, changes,
    schedules: schedules.schedules, scheduled: schedules.total };
}

/** both is the deepest buckets, and behind them those that stand out otherwise. */
function both(deep, late) {
  const known = new Set(deep.map((b) => b.policy + "/" + b.key));
  return [...deep, ...late.filter((b) => !known.has(b.policy + "/" + b.key))];
}

export function view(data, page) {
  const wanted = (page.state.filter ?? "").toLowerCase();
  const rows = data.policies.filter((p) => p.policy.name.includes(wanted))
    .map((p) => ({ p, queue: hasQueue(p.policy), depth: data.depths[p.policy.name] ?? 0,
      stat: data.stats.find((s) => s.policy === p.policy.name),
      deepest: data.buckets.find((b) => b.policy === p.policy.name) }))
    .sort((a, b) => weight(b) - weight(a) || (a.p.policy.name < b.p.policy.name ? -1 : 1));
  const queues = rows.filter((r) => r.queue), doors = rows.filter((r) => !r.queue);
  return [
    h("h1", { class: "out" }, "Overview"),
    h("section", { class: "findings", "aria-label": "What is wrong" },
      findings(data).map((q) => answer(q, page))),
    h("section", null,
      h("div", { class: "head" }, h("h2", null, "Policies"),
        h("p", { class: "quiet" }, data.window >= 59_000 ? "in the last minute" :
          `watching for ${span(data.window)}: what was before is unknown`),
        data.policies.length > 8 ? h("label", { class: "filter" }, h("span", { class: "out" }, "Filter policies"),
          h("input", { type: "search", placeholder: "filter", "data-search": true, oninput(event) {
            page.state.filter = event.target.value;
            page.draw();
          } })) : null),
      policies(queues.slice(0, ROWS)),
      queues.length > ROWS ? h("p", { class: "quiet" }, `and ${count(queues.length - ROWS)} more: filter by name`) : null),
    doors.length ? h("p", { class: "quiet" }, link("#/doors", plural(doors.length, "policy", "policies")),
      doors.length === 1 ? " only answers checks and holds no jobs." : " only answer checks and hold no jobs.") : null,
    data.schedules.length ? h("section", null,
      h("div", { class: "head" }, h("h2", null, "Schedules"),
        data.scheduled > SCHEDULES ? link("#/schedules", `All ${count(data.scheduled)} schedules`) : null),
      scheduled("Schedules", data.schedules, page)) : null,
    data.changes.length ? h("section", null,
      h("div", { class: "head" }, h("h2", null, "Last changes"), link("#/audit", "All changes")),
      table("Last changes", [
        { head: "When", cell: (c) => clock(c.at) },
        { head: "Policy", cell: (c) => link(to.policy(c.policy), c.policy) },
        { head: "Who", cell: (c) => [c.by, c.from].filter(Boolean).join(" at ") || "–" },
        { head: "What", wide: true, cell: (c) => [c.what, c.key === undefined ? "" : ` (${key(c.key)})`, brief(fields(c))] },
      ], data.changes, "", (c) => c.id)) : null,
  ];
}

const brief = (fields) => fields.length ? h("span", { class: "quiet" }, ": " + fields.slice(0, 3).join(", ") + (fields.length > 3 ? ", …" : "")) : "";

export const hasQueue = (p) => p.queue ? true : p.algorithm === "leaking_bucket" && p.queue !== false;

const weight = ({ depth, stat }) => depth + 60 * (stat?.rate ?? 0) + 1000 * (stat?.refused ?? 0);

const MOST = 3; // sentences to one question, at first

function answer({ question, none, found }, page) {
  const all = page.state.unfolded ??= new Set();
  const shown = all.has(question) ? found : found.slice(0, MOST), more = found.length - shown.length;
  return h("div", { class: "finding " + (found.some((f) => f.level === "bad") ? "bad" : found.length ? "warn" : "good") },
    h("h2", null, question),
    found.length ? h("ul", null,
      shown.map((f) => h("li", { class: f.level }, link(f.link, f.text))),
      more ? h("li", null, h("button", { type: "button", class: "more", onclick() {
        all.add(question);
        page.draw();
      } }, `and ${more} more`)) : null) : h("p", null, none));
}

const policies = (rows) => table("Policies with a queue", [
  { head: "Policy", cell: ({ p }) => [link(to.policy(p.policy.name), p.policy.name),
    p.paused ? h("span", { class: "tag warn" }, "paused") : null,
    p.overridden ? h("span", { class: "tag warn", title: p.overridden.join("; ") }, "overridden") : null,
    p.state === "draining" ? h("span", { class: "tag" }, "draining") : null] },
  { head: "Last minute", cell: ({ p, stat }) => spark(stat?.starts ?? [], perSecond(p.policy.outflow_total)) },
  { head: "Starts", number: true, cell: ({ stat }) => rate(stat?.rate) },
  { head: "Limit", number: true, cell: ({ p }) => limit(p.policy) },
  { head: "Depth", number: true, cell: ({ depth }) => count(depth) },
  { head: "Deepest bucket", wide: true, cell: ({ p, deepest }) => deepest ? [
    link(to.bucket(p.policy.name, deepest.key), key(deepest.key)), " ",
    h("span", { class: "quiet" }, `${count(deepest.depth)} of ${count(capacity(p.policy))}`)] : h("span", { class: "quiet" }, "none") },
  { head: "Wait p50", number: true, cell: ({ stat }) => stat?.wait_ms ? span(stat.wait_ms.p50) : "–" },
  { head: "p99", number: true, cell: ({ stat }) => stat?.wait_ms ? span(stat.wait_ms.p99) : "–" },
  { head: "In", number: true, title: "accepted in the last minute", cell: ({ stat }) => count(stat?.accepted) },
  { head: "Refused", number: true, cell: ({ stat }) => bad(stat?.refused) },
  { head: "Failed", number: true, cell: ({ stat }) => bad(stat?.failed) },
  { head: "Dead", number: true, cell: ({ p, stat }) => stat?.dead ? link(to.dead(p.policy.name), bad(stat.dead)) : "0" },
], rows, "No policy has a queue. Add one to the configuration file, or with PUT /v1/policies/NAME.",
({ p }) => p.policy.name, ({ p, stat, depth }) => p.overridden || p.state === "draining" || stat?.refused || stat?.failed || stat?.dead ? null : depth ? "calm" : stat?.rate ? "calm clear" : "calm clear idle");

const bad = (n) => n ? h("strong", { class: "bad" }, count(n)) : "0";

/** limit is what a policy's starts keep to, as it says it. */
export function limit(p) {
  const all = p.outflow_total && p.outflow_total + " in total", each = p.outflow && p.outflow + " per key";
  return [all, each].filter(Boolean).join(", ") ||
    (p.limits ? plural(p.limits.length, "limit") + " per key" : "unpaced");
}
