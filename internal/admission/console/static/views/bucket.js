// A bucket: its last starts, what holds it, and the possible actions.

import { ask, get, path } from "../api.js";
import { Starts, comb } from "../comb.js";
import { h } from "../dom.js";
import { state } from "../findings.js";
import { count, key as shownKey, plural, rate, span } from "../format.js";
import { action, dialog, facts, field, link, noRight, to } from "../ui.js";
import { capacity, eta, late } from "../words.js";
import { happenings } from "./job.js";
import { limits } from "./limits.js";

const KEPT = 12; // events that are listed

export const title = ([policy, key]) => `${policy}/${shownKey(key)}`;

export const events = ([policy, key]) => "recent=1024&policy=" + encodeURIComponent(policy) +
  "&key=" + encodeURIComponent(key);

export async function load([policy, key], page) {
  const [p, b] = await Promise.all([get(path("policies", policy)), get(path("buckets", policy, key))]);
  page.state.starts ??= new Starts(page.now());
  return { p: p.policy, news: p.news, b, override: b.override ?? {} };
}

export function heard(event, page) {
  const at = Date.parse(event.at), starts = page.state.starts ??= new Starts(page.now());
  starts.since = Math.min(starts.since, at); // the admitter recalls all events since then
  if (event.type === "started") starts.add(at);
  page.state.events = [event, ...page.state.events ?? []].slice(0, KEPT);
}

export function lost(from, until, page) {
  page.state.starts?.gaps.push([from, until]);
}

export function view({ p, news, b, override }, page) {
  const name = p.name, key = b.key, is = state(b), delay = late(b.late_ms);
  return [
    h("div", { class: "head" },
      h("h1", null, link(to.policy(name), name), h("span", { class: "slash" }, " / "), shownKey(key)),
      h("span", { class: "tag " + is.level }, is.text),
      h("div", { class: "actions" }, actions(name, key, b, override, page))),
    h("p", { class: "lead" }, `It ${b.why}.`),
    news ? h("p", { class: "quiet" }, `${name} ${news}.`) : null,
    comb(page.state.starts, { outflow: b.outflow, peak: b.peak, burst: b.burst }, page.now(),
      Math.max(300, page.width)),
    h("div", { class: "columns" },
      facts(
        ["Depth", `${plural(b.depth, "job")} of ${count(capacity(p))}`, b.depth >= capacity(p) ? "bad" : ""],
        ["Waiting", b.waiting === undefined ? null : count(b.waiting)],
        ["Delayed", b.delayed ? count(b.delayed) + ", backing off or not due" : null],
        ["Running", b.running === undefined ? null : count(b.running) + (p.concurrency || override.concurrency ?
          ` of ${override.concurrency ?? p.concurrency}` : "")],
        ["Calls", b.calls || b.calls_running ? calls(b) : null],
        ["Oldest waits for", b.head_age_ms ? span(b.head_age_ms) : null],
        ["A new job starts", b.waiting === undefined ? null : eta(b.eta_ms)]),
      facts(
        ["Starts (5 s)", b.rate === undefined ? null : rate(b.rate)],
        ["Starts (1 min)", b.rate_1m ? rate(b.rate_1m) : null],
        ["Outflow", b.outflow ? rate(b.outflow) + (override.outflow ? ", its own" : "") : "unpaced"],
        ["Late in the last minute", delay ? `${span(delay.ms)}: ${delay.why}` : null, "warn"],
        ["Last error", b.last_error, "bad"],
        ["Own limits", own(override)],
        ["Partition", p.partitions > 1 ? b.partition : null])),
    limits("Limits", p, b.limits),
    h("section", null,
      h("div", { class: "head" }, h("h2", null, "Last events"), b.depth ? link(to.jobs(name, key), `All ${plural(b.depth, "job")}`) : null,
        p.result_retention ? link(to.history(name, key), "Jobs that have ended") : null),
      happenings("Last events of the bucket", page.state.events ?? [], "No events since this page was opened.", true)),
  ];
}

const calls = (b) => `${count(b.calls)} waiting` + (b.calls_running ? `, ${count(b.calls_running)} running` : "");

const own = (o) => Object.entries(o).filter(([name]) => name !== "paused")
  .map(([name, value]) => `${name} ${value}`).join(", ");

function actions(name, key, b, override, page) {
  const why = noRight(page.may("operate", name, key), "operate"), shown = `${name}/${shownKey(key)}`;
  const waits = b.depth - (b.running ?? 0);
  return [
    ...override.paused || !b.throttled_ms ? [] : [
      action("End the target's pause", () => page.does(() => ask("POST", path("resume", name, key)),
        `The pause of ${shown} has ended.`), { why, id: "end-pause" })],
    ...b.blocked_by !== "breaker" ? [] : [
      action("Probe the target now", () => page.does(() => ask("POST", path("resume", name, key)),
        `A job of ${shown} probes the target.`), { why, id: "probe" })],
    override.paused ?
      action("Resume", () => page.does(() => ask("POST", path("resume", name, key)), `${shown} is resumed.`), { why, id: "resume" }) :
      action("Pause", () => page.asks({ title: `Pause ${shown}?`, go: "Pause", text: `${plural(waits, "job")} will wait until it is ` +
        "resumed. Running jobs finish, and new jobs are accepted until the bucket is full." },
      () => ask("POST", path("pause", name, key)), `${shown} is paused.`), { why, id: "pause" }),
    action("Own limits…", () => pace(name, key, override, page), { why, id: "pace" }),
    action("Purge…", () => page.asks({ title: `Purge ${shown}?`, go: `Drop ${plural(waits, "job")}`,
      text: `${plural(waits, "waiting job")} will be dropped permanently, without dead letters. ` +
        `${b.running ? plural(b.running, "running job") + " will finish. " : ""}This cannot be undone.` }, async () => {
      for (let removed = 0; ;) {
        const some = await ask("POST", path("purge", name, key));
        removed += some.removed;
        if (!some.more) return removed;
      }
    }, (removed) => `${plural(removed, "job")} of ${shown} dropped.`),
    { why: why || (waits > 0 ? "" : "no job waits"), danger: true, id: "purge" }),
  ];
}

/** pace gives the key limits of its own, after the admitter has looked at them. */
async function pace(name, key, override, page) {
  const at = path("policies", name, "keys", key);
  const wanted = (form) => ({
    outflow: form.outflow || null, peak: form.peak || null, burst: form.burst ? Number(form.burst) : null,
    concurrency: form.concurrency === "" ? null : Number(form.concurrency),
    weight: form.weight ? Number(form.weight) : null,
  });
  const number = { type: "number", min: 0, step: 1 };
  const given = await dialog({
    title: `Limits of its own for ${shownKey(key)}`, go: "Save",
    content: [h("p", null, "Empty fields follow the policy. Changes apply within a second, to waiting jobs too."),
      h("div", { class: "fields" },
        field("Outflow", "outflow", { value: override.outflow ?? "", placeholder: "20/s", autofocus: true }),
        field("Peak", "peak", { value: override.peak ?? "", placeholder: "1.25 % above" }),
        field("Burst", "burst", { ...number, value: override.burst ?? "" }),
        field("Concurrency", "concurrency", { ...number, value: override.concurrency ?? "" }),
        field("Weight", "weight", { ...number, value: override.weight ?? "" }))],
    check: (form) => ask("PATCH", at + "?dry_run=1", wanted(form)).then(() => null, (error) => error.message),
  });
  if (given) {
    await page.does(() => ask("PATCH", at, wanted(given)),
      ({ changed }) => `${name}/${shownKey(key)}: ${changed?.join(", ") || "nothing changed"}.`);
  }
}
