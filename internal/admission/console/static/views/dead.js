// Dead letters: of a policy, and one of them.

import { Refused, ask, get, path, withQuery } from "../api.js";
import { h } from "../dom.js";
import { bytes, clock, count, key as shownKey, plural } from "../format.js";
import { action, facts, from, link, noRight, pager, search, table, to } from "../ui.js";
import { content } from "./job.js";

const PAGE = 100;
const SOUGHT = 20; // pages that a search looks through

export const title = ([policy, id]) => policy ? `Dead letters of ${policy}${id ? ` · ${id}` : ""}` : "Dead letters";

export const events = ([policy, id]) => policy && !id ? "type=dead&policy=" + encodeURIComponent(policy) : null;

export async function load([policy, id], page) {
  if (id) return { letter: await get(path("dead", policy, id)) };
  if (!policy) return get("/v1/dead");
  const { sought = "" } = page.state;
  const read = (after) => get(withQuery(path("dead", policy), { after, limit: PAGE })).catch((error) => {
    if (error instanceof Refused && error.status === 409) return { letters: [] };
    throw error;
  });
  const found = { letters: [] };
  for (let after = from(page), pages = 0; pages < (sought ? SOUGHT : 1) && found.letters.length < PAGE; pages++) {
    const { letters, next, discarded } = await read(after);
    found.letters.push(...letters.filter((l) => matches(l, sought)));
    Object.assign(found, { discarded, next });
    if (!next) break;
    after = next;
  }
  return found;
}

const matches = (l, text) => !text || [l.key, l.job, l.reason, l.error ?? ""].some((field) => field.includes(text));

export function view(data, page) {
  const [policy] = page.params;
  if (data.policies) return choice(data.policies);
  return data.letter ? one(policy, data.letter, page) : list(policy, data, page);
}

const choice = (policies) => [
  h("h1", null, "Dead letters"),
  h("p", { class: "quiet" }, "Jobs that will not be tried again, kept for 14 days by default."),
  table("Policies with dead letters", [
    { head: "Policy", cell: (p) => link(to.dead(p.policy), p.policy) },
    { head: "Letters", number: true, cell: (p) => count(p.letters) },
    { head: "Oldest", cell: (p) => clock(p.oldest_at) },
    { head: "Newest", wide: true, cell: (p) => clock(p.newest_at) },
  ], policies, "No policy has dead letters: every job that ended was done, cancelled or replayed.", (p) => p.policy),
];

function list(policy, { letters, next, discarded }, page) {
  const { sought = "" } = page.state, why = noRight(page.may("operate", policy), "operate");
  const all = why || (letters.length ? "" : "there are none");
  const last = letters.at(-1)?.id;
  return [
    h("div", { class: "head" },
      h("h1", null, "Dead letters of ", link(to.policy(policy), policy)),
      h("div", { class: "actions" },
        action("Replay all…", () => replayAll(policy, letters, next, page), { why: all || (sought ? "replays all, not only the letters found" : ""), id: "replay-all" }),
        action("Drop these…", () => dropThrough(policy, letters, last, page), { why: all || (sought || from(page) ? "drops the oldest letters: go to the first page, without a search" : ""), danger: true, id: "drop-all" }))),
    search("Search key, job, reason or error", "key, job, reason or error",
      (text) => page.turn({ sought: text.trim(), pages: [] })),
    sought ? h("p", { class: "quiet" }, `${plural(letters.length, "letter")} with “${sought}”`) : null,
    table("Dead letters of " + policy, [
      { head: "Letter", cell: (l) => link(to.letter(policy, l.id), String(l.id)) },
      { head: "Key", cell: (l) => link(to.bucket(policy, l.key), shownKey(l.key)) },
      { head: "Reason", cell: (l) => h("span", { class: "state bad" }, l.reason) },
      { head: "Error", wide: true, cell: (l) => l.error ?? "" },
      { head: "Attempts", number: true, cell: (l) => count(l.attempts) },
      { head: "Died", cell: (l) => clock(l.dead_at) },
      { head: "Body", number: true, cell: (l) => bytes(l.size) },
      { head: "Action", cell: (l) => action("Replay", () => replay(policy, l, page), { why }) },
    ], letters, sought ? "Nothing was found." : "There are no dead letters: every job that ended was done.", (l) => l.id),
    pager(page, next, plural(letters.length, "letter") + " here, the oldest first"),
    discarded ? h("p", { class: "warn" }, `${plural(discarded, "older letter")} dropped to make room.`) : null,
  ];
}

function one(policy, l, page) {
  const why = noRight(page.may("operate", policy), "operate");
  return [
    h("div", { class: "head" },
      h("h1", null, link(to.dead(policy), "Dead letters of " + policy), h("span", { class: "slash" }, " / "), String(l.id)),
      h("span", { class: "tag bad" }, l.reason),
      h("div", { class: "actions" },
        action("Replay…", () => replay(policy, l, page), { why, id: "replay" }),
        action("Drop…", () => page.asks({ title: `Drop letter ${l.id}?`, go: "Drop it",
          text: "The job will be dropped permanently and can no longer be replayed." },
        () => ask("DELETE", path("dead", policy, String(l.id))), `Letter ${l.id} is dropped.`, to.dead(policy)),
        { why, danger: true, id: "drop" }))),
    h("p", { class: "lead" }, `It was ${l.attempts === 0 ? "never tried" : `tried ${plural(l.attempts, "time")}`}, and ended with: ${l.error || l.reason}.`),
    facts(["Job", link(to.job(l.job), l.job)], ["Bucket", link(to.bucket(policy, l.key), `${policy} / ${shownKey(l.key)}`)],
      ["Accepted", clock(l.accepted_at)], ["Died", clock(l.dead_at)], ["Body", bytes(l.size)]),
    content(l),
  ];
}

const replay = (policy, l, page) => page.asks({ title: `Replay letter ${l.id}?`, go: "Replay it", danger: false,
  text: `It becomes a new job at the end of ${policy}/${shownKey(l.key)}.` },
() => ask("POST", path("dead", policy, String(l.id), "replay")), ({ job }) => `Letter ${l.id} was replayed as ${job}.`,
page.params[1] && to.dead(policy));

const replayAll = (policy, letters, next, page) => page.asks({ title: `Replay all of ${policy}?`, go: "Replay all", danger: false,
  text: (next ? "More than " : "") + plural(letters.length, "letter becomes a new job", "letters become new jobs") +
    ", each at the end of its bucket. Letters of full buckets stay." },
() => ask("POST", path("dead", policy, "replay")), (r) => `${plural(r.replayed, "job")} replayed` +
  (r.full ? `, ${count(r.full)} kept because their buckets are full` : "") +
  (r.unfit ? `, ${count(r.unfit)} cannot be replayed` : "") + (r.complete ? "." : "; there are more, so replay again."));

const dropThrough = (policy, letters, last, page) => page.asks({ title: `Drop ${plural(letters.length, "letter")} of ${policy}?`,
  go: `Drop ${plural(letters.length, "letter")}`,
  text: `${plural(letters.length, "job")}, up to letter ${last}, will be dropped permanently and can no longer be replayed.` },
() => ask("DELETE", withQuery(path("dead", policy), { through: last })), ({ discarded }) => `${plural(discarded, "letter")} dropped.`);
