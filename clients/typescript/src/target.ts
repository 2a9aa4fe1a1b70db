// Runs the jobs of a policy with an HTTP target.

import { createHmac, timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { encode, ending, type Handler, Job } from "./job.js";

const clocks = 300; // seconds: largest clock error of a signature

/** Of 4xx and 5xx, only 408 means a failed attempt without further effects. */
const STATUS: Record<string, number> = { permanent: 422, "retry-after": 429, returned: 204, unavailable: 503, fail: 408 };

/**
 * Returns a function for frameworks that serve requests by fetch's types. It runs a handler for each request of a policy's
 * HTTP target. With the secret of the target's `sign`, requests without a valid signature get 401.
 */
export function target(handler: Handler, options: { secret?: string | Uint8Array } = {}) {
  return async (request: Request): Promise<Response> => {
    const body = new Uint8Array(await request.arrayBuffer());
    if (options.secret !== undefined && !signed(request.headers.get("Penstock-Signature"), body, options.secret)) {
      return new Response("the signature is missing, wrong or old", { status: 401 });
    }
    const job = new Job((name) => request.headers.get(name) ?? "", body, request.signal);
    let [status, text, headers] = [204, null as string | Uint8Array | null, {} as Record<string, string>];
    try {
      await handler(job);
      if (job.reply !== undefined) [status, [text, headers]] = [200, encode(job.reply)];
    } catch (error) {
      const said = ending(error);
      [status, text] = [STATUS[said.status]!, said.error ?? null];
      if (said.again !== undefined) headers["Penstock-Again"] = said.again;
      if ((said.retry_after_ms ?? 0) > 0) headers["Retry-After"] = String(Math.ceil(said.retry_after_ms! / 1000));
    }
    for (const [name, cost] of Object.entries(job.used)) headers[`Penstock-Used-${name}`] = String(cost);
    return new Response(text as string | Uint8Array<ArrayBuffer> | null, { status, headers });
  };
}

/** Makes a target fit for http.createServer. */
export function listener(serve: (request: Request) => Promise<Response>) {
  return async (from: IncomingMessage, to: ServerResponse): Promise<void> => {
    const gone = new AbortController();
    to.on("close", () => gone.abort());
    const headers = new Headers();
    for (let i = 0; i < from.rawHeaders.length; i += 2) headers.append(from.rawHeaders[i]!, from.rawHeaders[i + 1]!);
    const parts: Buffer[] = [];
    for await (const part of from) parts.push(part);
    const method = from.method ?? "POST";
    const body = method === "GET" || method === "HEAD" ? undefined : Buffer.concat(parts);
    const url = `http://${from.headers.host ?? "localhost"}${from.url}`;
    const response = await serve(new Request(url, { method, headers, body, signal: gone.signal }));
    to.writeHead(response.status, Object.fromEntries(response.headers));
    to.end(Buffer.from(await response.arrayBuffer()));
  };
}

function signed(signature: string | null, body: Uint8Array, secret: string | Uint8Array): boolean {
  const parts = new Map((signature ?? "").split(",").map((part) => part.split("=", 2) as [string, string]));
  const [at, given] = [parts.get("t") ?? "", Buffer.from(parts.get("v1") ?? "", "hex")];
  if (!/^\d+$/.test(at) || Math.abs(Date.now() / 1000 - Number(at)) > clocks) return false;
  const want = createHmac("sha256", secret).update(`${at}.`).update(body).digest();
  return want.length === given.length && timingSafeEqual(want, given);
}
