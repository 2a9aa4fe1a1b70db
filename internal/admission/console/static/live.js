// Events as they come. EventSource cannot send a token, so this reads the stream of a fetch.

import { credentials } from "./api.js";

const SILENT = 40_000; // the server sends a sign of life every 15 s
const SOON = 500, LATE = 5_000; // ms between two attempts

/**
 * listen receives events until the returned function is called. on.event gets each; on.state
 * "live", "lost" or "refused" (with the status), and for how many ms the connection was lost; with
 * on.missed, events in between are gone.
 */
export function listen(query, on) {
  let stopped = false, connection = null;
  const stop = () => {
    stopped = true;
    connection?.abort();
  };
  (async () => {
    let last = "", lostAt = 0, wait = SOON;
    while (!stopped) {
      connection = new AbortController();
      let silence = setTimeout(() => connection.abort(), SILENT);
      let again = false;
      try {
        const response = await fetch("/v1/events?" + query, {
          headers: { ...credentials(), ...(last ? { "Last-Event-ID": last } : {}) },
          signal: connection.signal, cache: "no-store",
        });
        if (!response.ok) {
          if (response.status < 500 && response.status !== 429) {
            on.state("refused", response.status);
            return;
          }
          throw new Error(response.status);
        }
        on.state("live", lostAt && Date.now() - lostAt, lostAt);
        lostAt = 0;
        wait = SOON;
        for await (const message of messages(response.body)) {
          clearTimeout(silence);
          silence = setTimeout(() => connection.abort(), SILENT);
          if (stopped) return;
          if (message.event === "end") again = message.data.reason === "ask again";
          else if (message.event === "missed") on.missed?.();
          else if (message.event) {
            last = message.id;
            on.event(message.data);
          }
        }
      } catch { // the connection broke: below
      } finally {
        clearTimeout(silence);
      }
      if (stopped) return;
      if (again) continue;
      if (!lostAt) {
        lostAt = Date.now();
        on.state("lost");
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 2, LATE);
    }
  })();
  return stop;
}

/** messages are those of a stream of server-sent events; a comment has no event. */
async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const message = {};
      for (const line of block.split("\n")) {
        const at = line.indexOf(": ");
        if (at > 0) message[line.slice(0, at)] = line.slice(at + 2);
      }
      if (message.data) message.data = JSON.parse(message.data);
      yield message;
    }
  }
}
