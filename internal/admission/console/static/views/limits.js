// The limits on starts of a policy, and what a bucket has used of them.

import { h } from "../dom.js";
import { count } from "../format.js";
import { table } from "../ui.js";
import { counted } from "../words.js";
import { rule } from "./doors.js";

/** limits lists a policy's limits on starts, with the units of a bucket, if a drainer tells them. */
export function limits(caption, p, units = []) {
  const rows = (p.limits ?? []).map((l) => ({ l, u: units.find((u) => u.name === l.name) }));
  const number = (head, title, of) => ({ head, title, number: true, cell: ({ u }) => u ? count(of(u)) : "–" });
  return p.algorithm !== "leaking_bucket" || !rows.length ? null : h("section", null,
    h("h2", null, caption),
    table(caption, [
      { head: "Limit", cell: ({ l }) => [l.name, l.shadow ? h("span", { class: "tag" }, "shadow") : null] },
      { head: "Keeps to", wide: true, cell: ({ l }) => (l.algorithm === "leaking_bucket" ? l.outflow : rule(l)) +
        (l.cost ? " " + l.cost : "") + (l.shared ? ", shared" : l.key === "global" ? ", all keys" : "") },
      { head: "Counts from", cell: ({ l }) => l.count_from ?? "start" },
      number("Unanswered", "open: held by requests without an answer", (u) => u.open ?? 0),
      number("Counted", "in the current window", counted),
      number("Left", "", (u) => u.left),
    ], rows, "", ({ l }) => l.name));
}
