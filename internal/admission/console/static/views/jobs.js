// The jobs of a bucket, in order of acceptance.

import { get, path, withQuery } from "../api.js";
import { h } from "../dom.js";
import { bytes, clock, count, key as shownKey, plural } from "../format.js";
import { from, link, pager, table, to } from "../ui.js";
import { eta, held } from "../words.js";

const PAGE = 50;
const STATES = ["", "waiting", "delayed", "running", "finishing", "stored"];

export const title = ([policy, key]) => `Jobs of ${policy}/${shownKey(key)}`;

export const events = ([policy, key]) => "policy=" + encodeURIComponent(policy) + "&key=" + encodeURIComponent(key);

export const load = ([policy, key], page) =>
  get(withQuery(path("jobs", policy, key), { after: from(page), limit: PAGE, state: page.state.state }));

export function view({ jobs, next }, page) {
  const [policy, key] = page.params, { state = "" } = page.state;
  return [
    h("div", { class: "head" },
      h("h1", null, "Jobs of ", link(to.bucket(policy, key), `${policy} / ${shownKey(key)}`)),
      h("label", { class: "filter" }, h("span", null, "State "),
        h("select", { onchange: (e) => page.turn({ state: e.target.value, pages: [] }) },
          STATES.map((s) => h("option", { value: s, selected: s === state }, s || "all"))))),
    table("Jobs in order of acceptance", [
      { head: "Job", cell: (j) => link(to.job(j.job), j.job) },
      { head: "State", cell: (j) => h("span", { class: "state " + level(j) }, j.state) },
      { head: "Before it", number: true, cell: (j) => j.position === null ? "–" : count(j.position) },
      { head: "Starts", number: true, cell: (j) => j.state === "running" || j.state === "finishing" ? "started" : eta(j.eta_ms) },
      { head: "Blocked by", cell: (j) => held(j) || "–" },
      { head: "Accepted", cell: (j) => clock(j.accepted_at) },
      { head: "Failed", number: true, cell: (j) => count(j.attempts) },
      { head: "Last error", wide: true, cell: (j) => j.last_error ?? "" },
      { head: "Body", number: true, cell: (j) => bytes(j.size) },
    ], jobs, state ? next ? `No job on this page is ${state}; continue with the next one.` : `No job is ${state}.` : "The bucket holds no jobs.", (j) => j.job),
    pager(page, next, plural(jobs.length, "job") + " here"),
  ];
}

const level = (j) => j.attempts ? "bad" : j.state === "running" ? "good" : "";
