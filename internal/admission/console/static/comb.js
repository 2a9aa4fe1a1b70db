// The chart of a bucket: its last starts over time, below the bound of law 2.

import { s, h } from "./dom.js";
import { clock, count, plural, rate, span } from "./format.js";

const MOST = 4096; // starts that are kept

/** Starts of one bucket. */
export class Starts {
  at = []; // ms, ascending
  gaps = []; // [from, to] without a connection

  /** since is the time from which on all starts are known. */
  constructor(since) { this.since = since; }

  add(when) {
    let i = this.at.length;
    while (i > 0 && this.at[i - 1] > when) i--; // another drainer's may come late
    this.at.splice(i, 0, when);
    if (this.at.length > MOST) this.at.splice(0, this.at.length - MOST);
  }

  /** most is the largest number of starts in any window of so many ms since from. */
  most(window, from) {
    let best = 0, first = 0;
    this.at.forEach((t, i) => {
      while (this.at[first] <= t - window) first++;
      if (t >= from) best = Math.max(best, i - first + 1);
    });
    return best;
  }
}

/** frame returns the time that a comb shows, and the window in which it counts. */
export function frame(outflow) {
  if (!outflow) return { shown: 30_000, window: 1000 };
  return {
    shown: Math.min(Math.max(48 / outflow, 12), 3600) * 1000,
    window: outflow >= 2 ? 1000 : Math.min(Math.ceil(4 / outflow), 1800) * 1000,
  };
}

/** bound returns the starts that law 2 allows in a window (ms); null if they are not paced. */
export const bound = (pace, window) =>
  pace.peak ? pace.peak * (window / 1000 + 0.002) + pace.burst : null;

/** comb draws each start, and above it the number of starts in the window before it. */
export function comb(starts, pace, now, width) {
  const { shown, window } = frame(pace.outflow);
  const from = now - shown, limit = bound(pace, window);
  const most = starts.most(window, from);
  const height = 240, left = 40, right = 12, top = 30, floor = 176, teeth = 188, foot = 214;
  const x = (t) => left + (t - from) / shown * (width - left - right);
  const tallest = Math.max(limit ?? 0, most, 2) * 1.08;
  const y = (n) => floor - n / tallest * (floor - top);

  let dots = "", lines = "", first = 0;
  starts.at.forEach((t, i) => {
    while (starts.at[first] <= t - window) first++;
    if (t < from || t > now) return;
    const at = x(t).toFixed(1);
    dots += `M${at} ${y(i - first + 1).toFixed(1)}h0`;
    lines += `M${at} ${teeth}V${foot}`;
  });
  const here = starts.at.filter((t) => t >= from).length;
  const every = window === 1000 ? "second" : span(window);
  const heard = starts.since > from ? `since ${clock(starts.since)}, when recording began` : `in the last ${span(shown)}`;
  const said = `${plural(here, "start")} ${heard}: ` + (limit === null ? `unpaced, at most ${count(most)} in any ${every}.` :
    `at most ${count(most)} in any ${every}, where ${count(Math.floor(limit))} are allowed.`);
  const step = tick(shown, width);
  const ticks = [];
  for (let t = Math.ceil(from / step) * step; t <= now; t += step) ticks.push(t);
  const halves = limit ? [Math.round(tallest / 2.2)] : [Math.round(most / 2)];

  return h("figure", { class: "comb" },
    s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": said },
      starts.since > from ? s("rect", { class: "gap before", x: left, y: top, height: foot - top, width: x(starts.since) - left },
        s("title", null, "earlier starts were not recorded")) : null,
      starts.gaps.filter(([, to]) => to > from).map(([a, b]) =>
        s("rect", { class: "gap", x: x(Math.max(a, from)), y: top, height: foot - top,
          width: Math.max(2, x(Math.min(b, now)) - x(Math.max(a, from))) },
        s("title", null, "the connection was lost: starts in between were not recorded"))),
      ticks.map((t) => s("g", { class: "tick" },
        s("path", { d: `M${x(t).toFixed(1)} ${top}V${foot}` }),
        s("text", { x: Math.min(x(t), width - 28).toFixed(1), y: height - 8, "text-anchor": "middle" },
          clock(t).slice(0, step < 60_000 ? 8 : 5)))),
      halves.filter((n) => n > 0).map((n) => s("g", { class: "tick" },
        s("path", { d: `M${left} ${y(n)}H${width - right}` }),
        s("text", { x: left - 6, y: y(n) + 4, "text-anchor": "end" }, count(n)))),
      s("path", { class: "axis", d: `M${left} ${floor + .5}H${width - right}` }),
      s("path", { class: "teeth", d: lines || "M0 0" }),
      s("path", { class: "dots", d: dots || "M0 0" }),
      limit === null ? null : s("g", { class: "bound" },
        s("path", { d: `M${left} ${y(limit).toFixed(1)}H${width - right}` }),
        s("text", { x: left - 6, y: y(limit) + 4, "text-anchor": "end" },
          count(Math.floor(limit))),
        s("text", { x: width - right, y: y(limit) - 7, "text-anchor": "end" },
          `allowed: at most ${count(Math.floor(limit))} in any ${every}`)),
      s("text", { class: "what", x: left, y: 14 },
        `starts in the ${every} before each`)),
    h("figcaption", null, said,
      pace.outflow ? ` Its outflow is ${rate(pace.outflow)}, its peak ${rate(pace.peak)}, its burst ${count(pace.burst)}.` : ""));
}

/** tick returns the time between two of at most eight marks, whose labels fit a width. */
function tick(shown, width) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900].map((n) => n * 1000);
  return steps.find((step) => shown / step <= Math.min(7, width / 70)) ?? 1800_000;
}

/** spark draws the starts of each second, against a limit if there is one. */
export function spark(starts, limit, width = 132, height = 28) {
  const values = [...Array(Math.max(0, 60 - starts.length)).fill(0), ...starts].slice(0, -1);
  const tallest = Math.max(limit ?? 0, ...values, 1) * 1.1;
  const y = (n) => (height - 1 - n / tallest * (height - 2)).toFixed(1);
  const step = width / values.length;
  const area = values.map((n, i) => `L${(i * step).toFixed(1)} ${y(n)}H${((i + 1) * step).toFixed(1)}`).join("");
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `starts of each second of the last minute: at most ${Math.max(...values, 0)}` },
  s("path", { class: "area", d: `M0 ${height}${area}V${height}Z` }),
  limit ? s("path", { class: "limit", d: `M0 ${y(limit)}H${width}` }) : null);
}
