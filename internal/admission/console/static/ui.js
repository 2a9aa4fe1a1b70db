// What views are made of: tables, actions, dialogs.

import { h, show } from "./dom.js";

/** link leads to a view. */
export const link = (hash, ...text) => h("a", { href: hash }, ...text);

export const to = {
  policy: (name) => "#/policy/" + encodeURIComponent(name),
  bucket: (policy, key) => `#/bucket/${encodeURIComponent(policy)}/${encodeURIComponent(key)}`,
  jobs: (policy, key) => `#/jobs/${encodeURIComponent(policy)}/${encodeURIComponent(key)}`,
  history: (policy, key) => "#/history/" + encodeURIComponent(policy) +
    (key === undefined ? "" : "/" + encodeURIComponent(key)),
  audit: (policy) => "#/audit/" + encodeURIComponent(policy),
  job: (id) => "#/job/" + encodeURIComponent(id),
  dead: (policy) => "#/dead/" + encodeURIComponent(policy),
  letter: (policy, id) => `#/dead/${encodeURIComponent(policy)}/${id}`,
};

/**
 * table shows rows, or the reason for an empty table. Columns are {head, cell(row), number, wide}. On a phone a row is a card, for
 * which browsers need the roles.
 */
export function table(caption, columns, rows, empty, keyOf, classOf) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { role: "table" },
      h("caption", { class: "out" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map((c) =>
        h("th", { role: "columnheader", scope: "col", class: c.number ? "number" : null, title: c.title }, c.head)))),
      h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row", key: keyOf?.(row), class: classOf?.(row) }, columns.map((c, i) =>
        h(i ? "td" : "th", { role: i ? "cell" : "rowheader", scope: i ? null : "row", "data-head": i ? c.head : null,
          class: [c.number && "number", c.wide && "wide"].filter(Boolean).join(" ") || null },
        c.cell(row))))))));
}

/** facts are names with their values; null values are left out, and a card without any. */
export function facts(...pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return known.length ? h("dl", { class: "facts" }, known.map(([name, value, level]) =>
    h("div", { class: level || null }, h("dt", null, name), h("dd", null, value)))) : null;
}

/** action is a button; why says why it is disabled, if it is. */
export const action = (label, run, { why = "", danger = false, id = null } = {}) =>
  h("button", { type: "button", id, class: danger ? "danger" : null, disabled: why !== "",
    title: why || null, onclick: run }, label, why && h("span", { class: "out" }, ` (${why})`));

/** noRight says why a client may not do something, if so. */
export const noRight = (may, right) =>
  may ? "" : `your token does not have the right “${right}” for it`;

/** dialog returns the values of its form once the button go is pressed and check finds no problem; otherwise null. */
export function dialog({ title, content, go, danger, check, cancel = true }) {
  return new Promise((resolve) => {
    const wrong = h("p", { class: "bad", role: "alert" });
    const form = h("form", { method: "dialog" },
      h("h2", { id: "asked" }, title), content, wrong,
      h("div", { class: "actions" },
        cancel && h("button", { type: "button", onclick: () => box.close(), autofocus: danger }, "Cancel"),
        h("button", { type: "submit", class: danger ? "danger go" : "go" }, go)));
    form.onsubmit = async (event) => {
      event.preventDefault();
      const values = Object.fromEntries(new FormData(form));
      const problem = await check?.(values);
      if (problem) {
        show(wrong, problem);
        form.querySelector("input")?.focus();
        return;
      }
      box.result = values;
      box.close();
    };
    const box = h("dialog", { "aria-labelledby": "asked" }, form);
    box.onclose = () => {
      box.remove();
      resolve(box.result ?? null);
    };
    document.body.append(box);
    box.showModal();
  });
}

/** field is a labelled input of a form. */
export const field = (label, name, props = {}, hint = "") =>
  h("label", null, h("span", null, label), h("input", { name, autocomplete: "off", ...props }),
    hint && h("small", null, hint));

export function search(label, placeholder, found) {
  const input = h("input", { type: "search", "aria-label": label, placeholder, "data-search": true,
    autocomplete: "off", spellcheck: "false" });
  return h("form", { class: "search", role: "search", onsubmit(event) {
    event.preventDefault();
    found(event.target.querySelector("input").value);
  } }, input, h("button", null, "Go"));
}

/** from is where the shown page of a list begins, by the answer with the page before; "" is the first one. */
export const from = (page) => page.state.pages?.at(-1) ?? "";

/** pager leads to the next page of a list, if there is one, and back. */
export function pager(page, next, at) {
  const { pages = [] } = page.state;
  const to = (label, disabled, pages) =>
    h("button", { type: "button", disabled, onclick: () => page.turn({ pages }) }, label);
  if (!pages.length && !next) return at ? h("p", { class: "quiet" }, at) : null;
  return h("nav", { class: "pager", "aria-label": "pages" }, to("‹ Back", !pages.length, pages.slice(0, -1)),
    h("span", null, at), to("Next ›", !next, [...pages, next]));
}
