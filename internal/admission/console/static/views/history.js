// Jobs that have ended, of a bucket or of a whole policy, the last one first.

import { get, path, withQuery } from "../api.js";
import { h } from "../dom.js";
import { clock, count, key as shownKey, plural, span } from "../format.js";
import { from, link, pager, table, to } from "../ui.js";

const PAGE = 50;

export const title = ([policy, key]) => `History of ${policy}${key === undefined ? "" : "/" + shownKey(key)}`;

export const events = ([policy, key]) => "type=done,dead,cancelled&policy=" + encodeURIComponent(policy) +
  (key === undefined ? "" : "&key=" + encodeURIComponent(key));

export async function load([policy, key], page) {
  const at = key === undefined ? [policy] : [policy, key];
  const [p, found] = await Promise.all([get(path("policies", policy)),
    get(withQuery(path("history", ...at), { before: from(page), limit: PAGE }))]);
  return { keep: p.policy.result_retention, ...found };
}

export function view({ keep, jobs, next }, page) {
  const [policy, key] = page.params;
  return [
    h("h1", null, "History of ", key === undefined ? link(to.policy(policy), policy) :
      link(to.bucket(policy, key), `${policy} / ${shownKey(key)}`)),
    h("p", { class: "quiet" }, keep ? `Jobs that ended in the last ${keep}, most recent first, at most 100,000.` :
      "The policy keeps no ended jobs; with result_retention: 1h it would keep them for an hour."),
    table("Ended jobs, most recent first", [
      { head: "Job", cell: (j) => link(to.job(j.job), j.job) },
      { head: "Ended", cell: (j) => clock(j.ended_at) },
      { head: "Outcome", cell: (j) => h("span", { class: "event " + j.state }, j.state) },
      ...key === undefined ? [{ head: "Key", cell: (j) => link(to.bucket(policy, j.key), shownKey(j.key)) }] : [],
      { head: "After", number: true, title: "since it was accepted", cell: (j) => span(Date.parse(j.ended_at) - Date.parse(j.accepted_at)) },
      { head: "Ran", number: true, cell: (j) => j.duration_ms === undefined ? "–" : span(j.duration_ms) },
      { head: "Failed", number: true, cell: (j) => j.attempts === undefined ? "–" : count(j.attempts) },
      { head: "Answer", wide: true, cell: said },
    ], jobs, next ? "None on this page; continue with the next one." : "No job has ended.", (j) => j.id),
    pager(page, next, plural(jobs.length, "job") + " here"),
  ];
}

const said = (j) => [j.status, j.answer?.slice(0, 120), j.reason, j.last_error].filter(Boolean).join(" ");
