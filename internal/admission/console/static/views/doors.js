// Door policies: what this admitter allowed and refused.

import { get } from "../api.js";
import { h } from "../dom.js";
import { count, key as shownKey, plural, span } from "../format.js";
import { link, table, to } from "../ui.js";

export const title = () => "Checks";

export const events = () => null; // checks cause no events

export async function load() {
  const [{ policies }, stats] = await Promise.all([get("/v1/policies"), get("/v1/stats?keys=5")]);
  return { policies: policies.filter(({ policy: p }) => p.algorithm !== "leaking_bucket" || p.queue === false),
    stats: stats.policies, window: stats.window_ms, watched: stats.watched_ms };
}

export function view({ policies, stats, window, watched }) {
  const rows = policies.map(({ policy: p }) => {
    const s = stats.find((s) => s.policy === p.name);
    return { p, policy: p.name, allowed: s?.checks_allowed ?? 0, refused: s?.checks_refused ?? 0, keys: s?.keys ?? [] };
  }).sort((a, b) => b.refused - a.refused || b.allowed - a.allowed || (a.policy < b.policy ? -1 : 1));
  return [
    h("h1", null, "Checks"),
    h("p", { class: "quiet" }, window >= 59_000 ? "Checks in the last minute, of all admitters." :
      `Checks of all admitters, watching for ${span(window)}: what was before is unknown.`),
    table("Checks by policy", [
      ofPolicy,
      { head: "Rule", wide: true, cell: ({ p }) => rule(p) },
      ...answered,
      { head: "Share refused", cell: (r) => share(r) },
    ], rows, "No policy answers checks.", (r) => r.policy),
    h("h2", null, "Busiest keys"),
    h("p", { class: "quiet" }, `Of the checks that this admitter answered in the last ${span(Math.max(watched, 1000))}.`),
    table("Busiest keys of each policy", [
      { head: "Key", cell: (k) => shownKey(k.key) },
      ofPolicy, ...answered,
    ], rows.flatMap((r) => r.keys.map((k) => ({ ...k, policy: r.policy }))),
    "It has answered none in this time.", (k) => k.policy + "/" + k.key),
  ];
}

const ofPolicy = { head: "Policy", cell: ({ policy }) => link(to.policy(policy), policy) };

const answered = [
  { head: "Allowed", number: true, cell: ({ allowed }) => count(allowed) },
  { head: "Refused", number: true, cell: ({ refused }) => refused ? h("strong", { class: "warn" }, count(refused)) : "0" },
];

export const rule = (p) => p.limits ? plural(p.limits.length, "limit") : {
  token_bucket: () => `token bucket: ${count(p.capacity)}, ${p.refill}`,
  fixed_window: () => `fixed window: ${count(p.limit)} in ${p.window}`,
  sliding_log: () => `sliding log: ${count(p.limit)} in ${p.window}`,
  sliding_counter: () => `sliding counter: ${count(p.limit)} in ${p.window}`,
  leaking_bucket: () => `meter: ${p.outflow}, ${count(p.capacity)} deep`,
}[p.algorithm]();

const share = ({ allowed, refused }) => allowed + refused ? h("meter", {
  min: 0, max: allowed + refused, value: refused, low: (allowed + refused) / 20,
  title: `${Math.round(refused / (allowed + refused) * 100)} % refused`,
}, `${Math.round(refused / (allowed + refused) * 100)} % refused`) : null;
