// The HTTP API, with this tab's token.

const KEEP = "penstock-token"; // in the session's storage: gone with the tab

export const token = {
  get: () => sessionStorage.getItem(KEEP) ?? "",
  set: (text) => (text ? sessionStorage.setItem(KEEP, text) : sessionStorage.removeItem(KEEP)),
};

export const credentials = () =>
  token.get() ? { Authorization: "Bearer " + token.get() } : {};

/** Refused is an unsuccessful answer; status 0: there was none. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? "the admitter answers " + status);
    this.status = status;
    this.retryAfter = problem.retryAfter;
  }
}

/** path escapes the parts behind /v1/; a key is one part. */
export function path(...parts) {
  const last = parts[parts.length - 1];
  if (last === "." || last === "..") {
    throw new Refused(0, { detail: `a browser cannot ask for the key ${last}; curl --path-as-is can` });
  }
  return "/v1/" + parts.map(encodeURIComponent).join("/");
}

/** withQuery adds parameters that are not empty. */
export function withQuery(path, parameters) {
  const query = new URLSearchParams(
    Object.entries(parameters).filter(([, v]) => v !== "" && v !== null && v !== undefined));
  return query.size ? path + "?" + query : path;
}

let skew = 0; // of this machine's clock, in ms

/** now is the time by the admitter's clock, in ms. */
export const now = () => Date.now() + skew;

/** ask sends a request and returns the document of the answer. */
export async function ask(method, path, body) {
  let response;
  try {
    response = await fetch(path, {
      method, body: body === undefined ? undefined : JSON.stringify(body),
      headers: { ...credentials(), ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      signal: AbortSignal.timeout(30_000),
    });
  } catch {
    throw new Refused(0, { detail: "the admitter does not answer" });
  }
  const ahead = Date.parse(response.headers.get("Date")) - Date.now();
  skew = Math.abs(ahead) > 2500 ? ahead : 0; // the header has whole seconds
  const text = await response.text().catch(() => "");
  let answer = {};
  try {
    answer = text ? JSON.parse(text) : {};
  } catch {
    if (response.ok) throw new Refused(0, { detail: "what answers is no admitter" });
  }
  if (response.ok) return answer;
  throw new Refused(response.status,
    { ...answer, retryAfter: response.headers.get("Retry-After") });
}

/** get reads a document, whose policies are those in force: with operators' overrides. */
export async function get(path) {
  const answer = await ask("GET", path);
  for (const p of [answer, ...answer.policies ?? []]) if (p.in_force) p.policy = p.in_force;
  return answer;
}

const matches = (patterns, text) => patterns.some((pattern) =>
  new RegExp("^" + pattern.split("*").map((part) =>
    part.replace(/[.?+^$()[\]{}|\\]/g, "\\$&")).join("[^]*") + "$").test(text));

/** may reports whether a client has a right for a key, without one for all keys, without a policy for everything. */
export function may(client, right, policy, key) {
  const of = (patterns, text) =>
    text === undefined ? patterns.includes("*") : matches(patterns, text);
  return client.rights.includes(right) && of(client.policies, policy) && of(client.keys, key);
}
