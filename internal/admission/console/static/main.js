// The page: the current view, its refreshes, and the bar above it.

import { Refused, get, may, now, token } from "./api.js";
import { h, show } from "./dom.js";
import { clock, span } from "./format.js";
import { listen } from "./live.js";
import { dialog, field } from "./ui.js";
import * as audit from "./views/audit.js";
import * as bucket from "./views/bucket.js";
import * as dead from "./views/dead.js";
import * as doors from "./views/doors.js";
import * as drainers from "./views/drainers.js";
import * as history from "./views/history.js";
import * as job from "./views/job.js";
import * as jobs from "./views/jobs.js";
import * as overview from "./views/overview.js";
import * as policy from "./views/policy.js";
import * as schedules from "./views/schedules.js";

// A view has a title(params), load(params, page) for its data, and view(data, page). It may name events(params), which
// refresh it, and go to heard(event, page).
const views = { __proto__: null, "": overview, policy, bucket, jobs, job, history, dead, drainers, doors, audit, schedules };
const unreadable = {
  title: () => "Not found",
  load() { throw new Refused(404, { detail: "the address of this page is not valid UTF-8" }); },
};
const tabs = [["", "Overview", "o"], ["dead", "Dead letters", "d"], ["drainers", "Drainers", "r"], ["doors", "Checks", "l"], ["audit", "Changes", "c"]];

const SOONEST = 1000, OFTEN = 2000; // ms between two requests
const MODEST = 10; // times the duration of a request, before the next one

const page = {
  client: null, // the answer of /v1/client
  params: [],
  state: {}, // of the view, until another one is shown
  may: (right, policy, key) => may(page.client, right, policy, key),
  now,
  get width() { return document.getElementById("content").clientWidth; },
  /** turn changes the view's state, for which it loads anew. */
  turn(change) {
    Object.assign(page.state, change);
    soon(0);
  },
  draw,
  /** does makes a change, reports the result, and refreshes, or leads to another view. */
  async does(change, done, next) {
    try {
      const answer = await change();
      tell(typeof done === "function" ? done(answer) : done, "good");
      if (next) location.hash = next;
    } catch (error) {
      tell(describe(error), "bad");
    }
    soon(0);
  },
  /** asks is does, once the change is confirmed. */
  async asks({ title, text, go, danger = true }, ...change) {
    if (await dialog({ title, content: h("p", null, text), go, danger })) await page.does(...change);
  },
};

let shown = overview, data = null, failed = null, timer = 0, asking = false, asked = 0, read = 0, took = 0;
let hears = () => {}, connection = "", lostAt = 0, told = null, generation = 0;

function describe(error) {
  if (!(error instanceof Refused)) return String(error);
  return error.message + (error.retryAfter ? `; try again in ${error.retryAfter} s` : "");
}

/** soon refreshes within so many ms. */
function soon(ms) {
  const due = Date.now() + ms;
  if (timer && soon.due <= due) return;
  clearTimeout(timer);
  soon.due = due;
  timer = setTimeout(load, ms);
}

async function load() {
  timer = 0;
  if (asking) return soon(SOONEST / 4);
  if (document.hidden) return; // until somebody looks
  asking = true;
  const mine = generation, began = performance.now();
  try {
    page.client ??= await get("/v1/client");
    const found = await shown.load(page.params, page);
    if (mine === generation) [data, failed, read] = [found, null, now()];
  } catch (error) {
    if (mine === generation) failed = error;
    if (error.status === 401) page.client = null;
  }
  asking = false;
  if (mine !== generation) return soon(0);
  asked = Date.now();
  took = performance.now() - began;
  draw();
  if (failed?.status === 401) return login();
  soon(Math.max(OFTEN, MODEST * took));
}

function route() {
  let name = "", params = [];
  generation++;
  hears();
  try {
    [name, ...params] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
    shown = views[name] ?? overview;
  } catch {
    shown = unreadable;
  }
  Object.assign(page, { params, state: {}, name: views[name] ? name : "" });
  [data, failed, connection] = [null, null, ""];
  document.title = [...new Set([shown.title(params), "Penstock"])].join(" · ");
  draw();
  hear();
  soon(0);
}

/** hear listens to the view's events. */
function hear() {
  const query = shown.events?.(page.params);
  hears = () => {};
  if (!query) return;
  let redraw = 0;
  hears = listen(query, {
    event(event) {
      shown.heard?.(event, page);
      soon(Math.max(0, Math.max(SOONEST, MODEST * took) - (Date.now() - asked)));
      redraw ||= requestAnimationFrame(() => {
        redraw = 0;
        if (data) draw();
      });
    },
    state(state, lostFor, since) {
      connection = state;
      if (state === "lost") lostAt = now();
      if (state === "live" && lostFor) {
        tell(`Connected again. The connection was lost for ${span(lostFor)} from ${clock(since)} on; ` +
          "the view has been refreshed.");
        shown.lost?.(since, Date.now(), page);
        soon(0);
      }
      draw();
    },
    missed() {
      tell("Some events were missed; the view has been refreshed.");
    },
  });
}

/** tell shows a notice for some seconds. */
function tell(text, level = "") {
  clearTimeout(told?.timer);
  told = { text, level, timer: setTimeout(() => { told = null; draw(); }, 12_000) };
  draw();
}

function draw() {
  document.documentElement.dataset.theme = theme();
  show(document.getElementById("bar"),
    h("a", { class: "name", href: "#/" }, h("img", { src: "mark.svg", alt: "", width: 20, height: 20 }), "Penstock"),
    h("nav", { "aria-label": "views" }, tabs.map(([name, label, key]) => h("a", {
      href: "#/" + name, "aria-current": name === page.name ? "page" : null, title: `g ${key}`,
    }, label))),
    h("div", { class: "side" }, live(),
      page.client?.name ? h("span", { class: "who", title: "rights: " + page.client.rights.join(", ") },
        page.client.name) : null,
      token.get() ? h("button", { type: "button", onclick: () => identify("") }, "Forget token") : null,
      h("button", { type: "button", onclick: turnTheme, "aria-label": "Theme: " + theme(), title: "t" },
        { light: "☀", dark: "☾", "system": "◐" }[theme()])));
  show(document.getElementById("notice"), !told ? null :
    h("p", { class: told.level || null }, told.text,
      h("button", { type: "button", "aria-label": "Dismiss", onclick: () => { told = null; draw(); } }, "×")));
  const stale = failed && data ? h("p", { class: "bad banner" },
    `${describe(failed)}. This is the state at ${clock(read)}.`) : null;
  const main = document.getElementById("content");
  if (data) show(main, stale, shown.view(data, page));
  else if (failed) show(main, problem(failed));
  else show(main, h("p", { class: "quiet" }, "Loading…"));
}

function problem(error) {
  const text = {
    401: "This admitter requires a token.",
    403: "Your token does not permit this.",
    404: "Not found.",
  }[error.status] ?? "This cannot be shown now.";
  return h("section", { class: "problem" }, h("h1", null, text), h("p", null, describe(error)),
    error.status === 401 ? h("button", { type: "button", onclick: login }, "Enter a token") : null);
}

function live() {
  const text = { live: "live", lost: `lost at ${clock(lostAt)}, reconnecting`, refused: "no events" }[connection];
  return !text ? null : h("span", { class: "live " + connection, role: "status" }, text);
}

async function login() {
  if (document.querySelector("dialog")) return;
  const wrong = token.get() !== "";
  const given = await dialog({
    title: "Enter a token", go: "Continue",
    content: [
      h("p", null, wrong ? "The token belongs to no known client. " : "", "This admitter answers only known clients. The token ",
        "is kept until this tab is closed, and sent only to this admitter."),
      field("Token", "token", { type: "password", required: true, autofocus: true, placeholder: "pst_…" }),
    ],
  });
  if (!given) return;
  identify(given.token.trim());
}

/** identify begins anew with another token, or none. */
function identify(text) {
  token.set(text);
  page.client = null;
  route();
}

const themes = ["system", "light", "dark"];
const theme = () => localStorage.getItem("penstock-theme") ?? themes[0];

function turnTheme() {
  localStorage.setItem("penstock-theme", themes[(themes.indexOf(theme()) + 1) % themes.length]);
  draw();
}

const help = () => dialog({
  title: "Keyboard shortcuts", go: "Close", cancel: false, content: h("dl", { class: "keys" }, [
    ...tabs.map(([, label, key]) => [`g ${key}`, label]),
    ["/", "Search"], ["r", "Refresh now"], ["t", "Theme: light, dark or system"], ["?", "This help"],
  ].map(([key, what]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, what)))),
});

let goes = false; // g was pressed
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog") ||
    event.target.matches("input, textarea, select")) return;
  const tab = goes && tabs.find(([, , key]) => key === event.key);
  const was = goes;
  goes = event.key === "g" && !was;
  if (tab) location.hash = "#/" + tab[0];
  else if (event.key === "/" && document.querySelector("[data-search]")) {
    event.preventDefault();
    document.querySelector("[data-search]").focus();
  } else if (!was && event.key === "r") soon(0);
  else if (!was && event.key === "t") turnTheme();
  else if (event.key === "?") help();
});
document.addEventListener("visibilitychange", () => document.hidden || soon(0));
addEventListener("hashchange", () => {
  document.querySelector("dialog")?.close(); // it belongs to the former page
  route();
  document.getElementById("content").focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("resize", () => data && draw());
route();
