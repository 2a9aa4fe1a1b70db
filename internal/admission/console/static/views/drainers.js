// Drainers: their leases, partitions and busy workers.

import { get } from "../api.js";
import { h } from "../dom.js";
import { clock, count, plural, span } from "../format.js";
import { link, table, to } from "../ui.js";

import { hasQueue } from "./overview.js";

export const title = () => "Drainers";

export const events = () => null; // no events concern drainers

export async function load() {
  const [{ drainers }, { policies }] = await Promise.all([get("/v1/drainers"), get("/v1/policies")]);
  return { drainers, policies };
}

export function view({ drainers, policies }) {
  const rows = drainers.flatMap((d) => Object.entries(d.policies).sort()
    .map(([policy, is]) => ({ d, policy, ...is })).filter((r) => r.owned.length || r.workers));
  const owners = drainers.filter((d) => rows.some((r) => r.d === d));
  const owned = (name) => rows.reduce((n, r) => n + (r.policy === name ? r.owned.length : 0), 0);
  const nobodys = policies.filter(({ policy: p, state }) => state !== "draining" && hasQueue(p) &&
    owned(p.name) < p.partitions);
  return [
    h("h1", null, "Drainers"),
    nobodys.length ? h("ul", { class: "bare" }, nobodys.slice(0, 20).map(({ policy: p }) => h("li", { class: "bad" },
      link(to.policy(p.name), p.name), `: no drainer owns ${p.partitions - owned(p.name)} of ${plural(p.partitions, "partition")}.`))) : null,
    table("Drainers and their leases", [
      { head: "Drainer", cell: (d) => `${d.host}:${d.pid}` },
      { head: "State", cell: (d) => d.unreadable ? h("span", { class: "state warn" }, "of another version") :
        !d.alive ? h("span", { class: "state bad" }, "lease expired") :
          d.draining ? h("span", { class: "state warn" }, "draining") : h("span", { class: "state" }, "alive") },
      { head: "Lease renewed", number: true, cell: (d) => `${span(d.lease_age_ms)} ago, lasts ${span(d.lease_ms)}` },
      { head: "Partitions", number: true, cell: (d) => count(Object.values(d.policies).reduce((n, p) => n + p.owned.length, 0)) },
      ...(drainers.some((d) => d.shared_limits) ?
        [{ head: "Shared limits", cell: (d) => (d.shared_limits ?? []).join(", ") || "–" }] : []),
      { head: "Workers busy", number: true, cell: (d) => busy(Object.values(d.policies)) },
      { head: "Since", cell: (d) => clock(d.started_at) },
      { head: "Version", cell: (d) => d.version },
    ], drainers, "No drainer has a lease: jobs wait. Start admitter --drain, or a drainer.", (d) => d.id),
    h("p", { class: "quiet" }, "As of each lease's last renewal. Processes that only run jobs of others have no lease."),
    rows.length ? h("section", null, h("h2", null, "Ownership"),
      table("Partitions and workers by policy and drainer", [
        { head: "Policy", cell: (name) => link(to.policy(name), name) },
        ...owners.map((d) => ({ head: `${d.host}:${d.pid}`, wide: true, cell: (name) => {
          const is = d.policies[name];
          return is && (is.owned.length || is.workers) ? [
            { 0: "no partition", 1: "partition " }[is.owned.length] ?? "partitions ", is.owned.length ? ranges(is.owned) : "",
            h("span", { class: "quiet" }, is.workers ? `, ${busy([is])} workers busy` : ", remote workers")] : "–";
        } })),
      ], [...new Set(rows.map((r) => r.policy))].sort(), "", (name) => name)) : null,
  ];
}

function busy(all) {
  const sum = (field) => all.reduce((n, p) => n + p[field], 0);
  return `${count(sum("busy"))} of ${count(sum("workers"))}`;
}

/** ranges is 0–3, 5 for 0, 1, 2, 3, 5. */
function ranges(numbers) {
  const all = [];
  for (const n of numbers) {
    const last = all[all.length - 1];
    if (last && last[1] === n - 1) last[1] = n;
    else all.push([n, n]);
  }
  return all.map(([a, b]) => a === b ? a : `${a}–${b}`).join(", ") || "none";
}
