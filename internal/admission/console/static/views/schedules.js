// Schedules: of all policies, and the table of them for other views.

import { ask, get, path, withQuery } from "../api.js";
import { h } from "../dom.js";
import { clock, count, key, span } from "../format.js";
import { action, link, noRight, table, to } from "../ui.js";

const OFTEN = 5_000; // ms between two readings

export const title = () => "Schedules";

export const events = () => null; // the next times are no events

export const load = (_, page) => recent(page, () => get(withQuery("/v1/schedules", { limit: 1000 })));

export const view = ({ schedules, total }, page) => [
  h("h1", null, "Schedules"),
  scheduled("Schedules of all policies", schedules, page),
  total > schedules.length ? h("p", { class: "quiet" }, `and ${count(total - schedules.length)} more, on the pages of their policies`) : null,
];

/** recent is the last reading of schedules; their actions cause the next one. */
export async function recent(page, read) {
  if (!(page.now() - page.state.schedulesRead < OFTEN)) {
    page.state.schedules = await read();
    page.state.schedulesRead = page.now();
  }
  return page.state.schedules;
}

/** scheduled is a table of schedules: of a policy, or of all. */
export const scheduled = (caption, schedules, page, policy) => table(caption, [
  { head: policy ? "Key" : "Bucket", cell: (s) => link(to.bucket(s.policy, s.key), policy ? key(s.key) : bucket(s)) },
  { head: "Name", cell: (s) => s.name },
  { head: "When", cell: (s) => [s.when, h("span", { class: "quiet" }, " " + (s.zone ?? (/^@(at|every) /.test(s.when) ? "" : "UTC")))] },
  { head: "Last run", cell: (s) => s.last ? clock(s.last.at) : "none known" },
  { head: "Outcome", wide: true, cell: (s) => s.last ? outcome(s.last) : "" },
  { head: "Next run", cell: (s) => s.paused ? h("span", { class: "state warn" }, "paused") : s.next_at ?
    [clock(s.next_at), h("span", { class: "quiet" }, ` in ${span(Math.max(0, Date.parse(s.next_at) - page.now()))}`)] : "unknown" },
  ...policy ? [{ head: "From", cell: (s) => s.set ? `the file of set “${s.set}”` : "the API" }] : [],
  { head: "Action", cell: (s) => actions(s, page) },
], schedules, "There are no schedules. POST /v1/schedules/POLICY/KEY makes one.", (s) => [s.policy, s.name, s.key].join("/"));

const bucket = (s) => `${s.policy} / ${key(s.key)}`;

const outcome = ({ outcome, job, reason }) => [
  h("span", { class: "state " + (["missed", "dead"].includes(outcome) ? "bad" : "") }, job ? link(to.job(job), outcome) : outcome),
  reason ? ": " + reason : ""];

function actions(s, page) {
  const why = noRight(page.may("operate", s.policy, s.key), "operate"), of = `${s.name} of ${bucket(s)}`;
  const change = (method, verb, paused) => () => {
    page.state.schedulesRead = 0;
    return ask(method, withQuery(path(verb, s.policy, s.key), { name: s.name, paused }));
  };
  return h("div", { class: "actions" },
    action("Run now", () => page.asks({ title: `Run ${of} now?`, go: "Run it", danger: false,
      text: "A job of the schedule is submitted, beside those of its times." },
    change("POST", "run"), ({ job }) => `The schedule ${of} has made ${job}.`), { why }),
    s.paused ? action("Resume", () => page.does(change("PATCH", "schedules", 0), `The schedule ${of} is resumed.`), { why }) :
      action("Pause", () => page.asks({ title: `Pause ${of}?`, go: "Pause",
        text: "It makes no jobs until it is resumed. Its times until then are not made up for." },
      change("PATCH", "schedules", 1), `The schedule ${of} is paused.`), { why }));
}
