// Numbers, times and names for people.

const whole = new Intl.NumberFormat("en");

export const count = (n) => whole.format(n ?? 0);

/** plural is "1 job" or "2 jobs". */
export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

/** rate is that many a second, in the unit in which it reads best. */
export function rate(perSecond) {
  if (!perSecond) return "0/s";
  for (const [unit, seconds] of [["s", 1], ["m", 60], ["h", 3600]]) {
    const n = perSecond * seconds;
    if (n >= 0.995) return `${n < 9.95 ? trim(n.toFixed(2)) : n < 99.5 ? trim(n.toFixed(1)) : count(Math.round(n))}/${unit}`;
  }
  return trim((perSecond * 86400).toFixed(1)) + "/d";
}

const trim = (text) => text.replace(/\.?0+$/, "");

/** perSecond reads a rate as policies write it: 96/s, 10/m, 3/10s. */
export function perSecond(text) {
  const [, n, times, unit] = /^(\d+)\/(\d*)(ms|s|m|h|d|w)$/.exec(text ?? "") ?? [];
  const seconds = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400, w: 604800 }[unit];
  return n ? Number(n) / ((Number(times) || 1) * seconds) : 0;
}

/** span is how long so many milliseconds are: 340 ms, 2.2 s, 5 m 3 s. */
export function span(ms) {
  if (ms < 1000) return Math.round(ms) + " ms";
  const units = [["d", 86400e3], ["h", 3600e3], ["m", 60e3], ["s", 1e3]];
  const at = units.findIndex(([, size]) => ms >= size);
  const [unit, size] = units[at];
  if (unit === "s") return (ms < 9950 ? trim((ms / 1000).toFixed(1)) : Math.round(ms / 1000)) + " s";
  const n = Math.floor(ms / size), less = units[at + 1];
  const rest = Math.floor((ms - n * size) / less[1]);
  return `${n} ${unit}` + (rest && n < 20 ? ` ${rest} ${less[0]}` : "");
}

/** clock is the time of day, with the date where it is another day's. */
export function clock(when) {
  const d = new Date(when);
  const day = d.toDateString() === new Date().toDateString() ? "" :
    d.toLocaleDateString("en-CA") + " ";
  return day + d.toLocaleTimeString("en-GB");
}

/** bytes are so many bytes. */
export const bytes = (n) => n < 1024 ? plural(n, "byte") :
  n < 1 << 20 ? trim((n / 1024).toFixed(1)) + " KiB" : n < 1 << 30 ? trim((n / (1 << 20)).toFixed(1)) + " MiB" :
    trim((n / (1 << 30)).toFixed(1)) + " GiB";

/** key is how a key is shown: the empty one has no letters of its own. */
export const key = (text) => text === "" ? "(no key)" : text;
