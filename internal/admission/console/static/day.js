// The last day of a policy, minute by minute.

import { s, h } from "./dom.js";
import { clock, count, plural, span } from "./format.js";

const LEFT = 64, RIGHT = 12, HEIGHT = 54, GAP = 22;
const DAY = 24 * 60; // minutes

const rows = [
  { name: "started", text: "starts per minute", shown: count },
  { name: "depth", text: "jobs held", shown: count },
  { name: "refused", text: "refused per minute", shown: count, level: "bad" },
  { name: "dead", text: "dead letters per minute", shown: count, level: "bad" },
  { name: "late_ms", text: "behind the outflow, sum of all buckets", shown: span, level: "warn" },
];

/** lasting names the time of an answer of /v1/minutes. */
export const lasting = ({ counts: { started } }) => started.length >= DAY - 1 ? "The last day" :
  started.length <= 60 ? "The last hour" : `The last ${span(started.length * 60_000)}`;

/** day draws an answer of /v1/minutes, without empty rows. */
export function day({ from, counts }, width) {
  const began = Date.parse(from), minutes = counts.started.length;
  const there = rows.filter(({ name }) => counts[name].some((n) => n > 0));
  if (!there.length) return h("p", { class: "quiet" }, "Nothing happened, up to a minute ago.");
  const shown = Math.min(DAY, Math.max(60, minutes)), first = minutes - shown; // the last ones, an hour at least
  const x = (minute) => (LEFT + (minute - first) / shown * (width - LEFT - RIGHT)).toFixed(1);
  const height = there.length * (HEIGHT + GAP) + 18, foot = height - 18;
  const step = [10, 60, 180, 240].find((n) => shown / n <= 8);
  const ticks = [];
  for (let t = Math.ceil((began / 60_000 + first) / step) * step - began / 60_000; t < minutes; t += step) ticks.push(t);
  const total = (name) => counts[name].reduce((sum, n) => sum + n, 0);
  const said = `Since ${clock(Math.max(began, began + first * 60_000))}: ${plural(total("started"), "start")}, ` +
    `${count(total("refused"))} refused, ${plural(total("dead"), "dead letter")}, at most ${plural(Math.max(...counts.depth), "job")} held.`;
  return h("figure", { class: "comb" },
    s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": said },
      ticks.map((t) => s("g", { class: "tick" }, s("path", { d: `M${x(t)} ${GAP}V${foot}` }),
        s("text", { x: Math.min(x(t), width - 20), y: height - 4, "text-anchor": "middle" }, clock(began + t * 60_000).slice(-8, -3)))),
      there.map(({ name, text, shown, level }, i) => {
        const floor = (i + 1) * (HEIGHT + GAP), most = Math.max(...counts[name]);
        const area = counts[name].map((n, at) => n ? `M${x(at)} ${floor}V${(floor - n / most * HEIGHT).toFixed(1)}H${x(at + 1)}V${floor}Z` : "");
        return s("g", { class: "minutes " + (level ?? "") },
          s("path", { class: "axis", d: `M${LEFT} ${floor + .5}H${width - RIGHT}` }), s("path", { class: "bars", d: area.join("") }),
          s("text", { x: LEFT - 6, y: floor - HEIGHT + 8, "text-anchor": "end" }, shown(most)),
          s("text", { class: "what", x: LEFT, y: floor - HEIGHT - 4 }, text));
      })),
    h("figcaption", null, said));
}
