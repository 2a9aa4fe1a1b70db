// Changes by operators and files, of a policy or of all, the last one first.

import { get, path, withQuery } from "../api.js";
import { h } from "../dom.js";
import { clock, key as shownKey, plural } from "../format.js";
import { from, link, pager, table, to } from "../ui.js";

const PAGE = 50;

export const title = ([policy]) => policy ? `Changes of ${policy}` : "Changes";

export const events = () => null; // changes are no events

export function load([policy], page) {
  return get(withQuery(policy ? path("audit", policy) : "/v1/audit", { before: from(page), limit: PAGE }));
}

export function view({ changes, next }, page) {
  const [policy] = page.params;
  return [
    h("h1", null, "Changes", policy ? [" of ", link(to.policy(policy), policy)] : null),
    table("Changes, most recent first", [
      { head: "When", cell: (c) => clock(c.at) },
      { head: "Who", title: "the client's name and address", cell: (c) => [c.by, c.from].filter(Boolean).join(" at ") || "–" },
      { head: "What", cell: (c) => c.what },
      ...policy ? [] : [{ head: "Policy", cell: (c) => link(to.policy(c.policy), c.policy) }],
      { head: "Key", cell: (c) => c.key === undefined ? "–" : link(to.bucket(c.policy, c.key), shownKey(c.key)) },
      { head: "Before → after", wide: true, cell: said },
    ], changes, "There are no changes.", (c) => c.id),
    pager(page, next, plural(changes.length, "change") + " here"),
  ];
}

const MOST = 4; // fields that are shown at first: a new policy has all, with its defaults

/** fields are the values before and after a change. */
export const fields = (c) => [c.job, ...c.changed ?? [], ...c.details ?? []].filter((field) => field && field !== "name " + c.policy);

function said(c) {
  const all = fields(c), rest = all.splice(MOST);
  return [all.join(", "), rest.length ? h("details", null, h("summary", null, `and ${rest.length} more`), rest.join(", ")) : null];
}
