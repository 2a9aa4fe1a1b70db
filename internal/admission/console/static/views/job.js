// A job: its state, content and history, or its end.

import { ask, get, path, withQuery } from "../api.js";
import { h } from "../dom.js";
import { bytes, clock, count, key as shownKey, plural, span } from "../format.js";
import { action, dialog, facts, field, link, noRight, table, to } from "../ui.js";
import { eta } from "../words.js";

export const title = ([id]) => id;

const policyOf = (id) => id.slice(0, id.lastIndexOf(":"));

export const events = ([id]) => "recent=1024&policy=" + encodeURIComponent(policyOf(id));

export async function load([id], page) {
  const whole = page.state.whole; // bodies do not change: asked for once
  const j = await get(path("jobs", id) + (whole ? "" : "?body=1"));
  if (j.header || j.body !== undefined || j.body_base64 !== undefined) page.state.whole = j;
  return { ...page.state.whole && { header: page.state.whole.header, body: page.state.whole.body,
    body_base64: page.state.whole.body_base64 }, ...j };
}

export function heard(event, page) {
  if (event.job === page.params[0]) page.state.events = [...page.state.events ?? [], event].slice(-50);
}

export function view(j, page) {
  const policy = policyOf(j.job), waits = ["waiting", "delayed", "stored"].includes(j.state);
  const why = noRight(page.may("operate", policy), "operate");
  return [
    h("div", { class: "head" },
      h("h1", null, j.job),
      h("span", { class: "tag " + ({ dead: "bad", delayed: "warn" }[j.state] ?? "") }, j.state),
      h("div", { class: "actions" },
        waits ? action("Run now", () => change(j, page, { run: 1 }), { why: why || (j.state === "delayed" ? "" : "it only waits for its turn"), id: "run" }) : null,
        waits ? action("Move to front", () => change(j, page, { front: 1 }), { why, id: "front" }) : null,
        waits ? action("Change…", () => set(j, page), { why, id: "change" }) : null,
        waits ? action("Cancel…", () => cancel(j, page), { why, danger: true, id: "cancel" }) : null,
        j.letter ? link(to.letter(policy, j.letter), "Its dead letter") : null,
        j.replayed_as ? link(to.job(j.replayed_as), "Replayed as " + j.replayed_as) : null)),
    h("p", { class: "lead" }, `It ${j.why}.`),
    h("div", { class: "columns" },
      facts(
        ["Bucket", j.key === undefined ? null : link(to.bucket(policy, j.key), `${policy} / ${shownKey(j.key)}`)],
        ["Accepted", clock(j.accepted_at)],
        ["Before it", j.position === null || j.position === undefined ? null : count(j.position)],
        ["Calls in its bucket", j.calls && count(j.calls)],
        ["Starts", j.eta_ms === undefined || !waits ? null : eta(j.eta_ms)],
        ["Failed attempts", j.attempts ? count(j.attempts) : null, "bad"],
        ["Progress", j.progress], ["Last error", j.last_error, "bad"]),
      facts(
        ["Deadline", j.deadline && clock(j.deadline)], ["Not before", j.not_before && clock(j.not_before)],
        ["Cost", j.cost], ["Priority", j.priority || null], ["Changed", j.changed ? "by an operator" : null], ["Body", j.size === undefined ? null : bytes(j.size)],
        ["Reason", j.reason, "bad"], ["Died", j.dead_at && clock(j.dead_at)],
        ["Ended", j.ended_at && clock(j.ended_at)],
        ["Took", j.duration_ms === undefined ? null : span(j.duration_ms)],
        ["Answer", j.status])),
    answer(j),
    history(page.state.events ?? []),
    content(j),
  ];
}

/** answer is the first KiB of the reply of an ended job's target or worker. */
const answer = (j) => j.answer === undefined && j.answer_base64 === undefined ? null :
  h("section", null, h("h2", null, "Reply"),
    h("pre", { class: "body", tabindex: 0, "aria-label": "answer" }, j.answer ?? "base64: " + j.answer_base64));

/** history is what was heard of a job, in the order of time. */
const history = (events) => events.length ? h("section", null, h("h2", null, "History"),
  happenings("Recent events of the job", events)) : null;

/** happenings lists events of a job, or with `ofJobs` of several. */
export const happenings = (caption, events, empty, ofJobs) => table(caption, [
  { head: "At", cell: (e) => clock(e.at) },
  { head: "Event", cell: (e) => h("span", { class: "event " + e.type }, e.type.replace("_", " ")) },
  ...ofJobs ? [{ head: "Job", cell: (e) => link(to.job(e.job), e.job) }] : [],
  { head: "What", wide: true, cell: (e) => [e.attempt > (ofJobs ? 1 : 0) && `attempt ${e.attempt}`,
    e.type === "started" && `waited ${span(e.wait_ms ?? 0)}`, e.duration_ms && `took ${span(e.duration_ms)}`, e.progress, e.reason,
    e.error].filter(Boolean).join(", ") },
], events, empty, (e) => e.at + e.type + e.job);

/** content is the headers and the body of a job or a dead letter, as text and nothing else. */
export function content(j) {
  const headers = Object.entries(j.header ?? {}).sort();
  if (!headers.length && j.body === undefined && j.body_base64 === undefined) return null;
  return h("section", null, h("h2", null, "Contents"),
    headers.length ? facts(...headers.map(([name, values]) => [name, h("span", { class: "mono" }, values.join(", "))])) : null,
    h("pre", { class: "body", tabindex: 0, "aria-label": "body" }, j.body !== undefined ? indented(j.body) :
      j.body_base64 !== undefined ? "base64: " + j.body_base64 : "(no body)"));
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text || "(an empty body)";
  }
}

const change = (j, page, wanted) => page.does(() => ask("PATCH", withQuery(path("jobs", j.job), wanted)), `${j.job} is changed.`);

/** set gives a job another priority or deadline. */
async function set(j, page) {
  const given = await dialog({
    title: `Change ${j.job}`, go: "Change it",
    content: [h("p", null, "Empty fields stay as they are. The change survives restarts of drainers."),
      h("div", { class: "fields" },
        field("Priority", "priority", { type: "number", min: -9, max: 9, step: 1, placeholder: String(j.priority), autofocus: true }),
        field("Deadline", "deadline", { placeholder: "90m, a time, or none" }))],
    check: (form) => form.priority || form.deadline ? null : "Enter a priority or a deadline.",
  });
  if (given) await change(j, page, given);
}

const cancel = (j, page) => page.asks({ title: `Cancel ${j.job}?`, go: "Cancel the job",
  text: "The job will be dropped permanently, without a dead letter." },
() => ask("DELETE", path("jobs", j.job)), `${j.job} is cancelled.`, to.bucket(policyOf(j.job), j.key));
