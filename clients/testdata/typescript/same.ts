// Submits what same.py does. Arguments: a URL, and a token.
import { batchJob, Penstock } from "@penstock-mq/client";
import type { Accepted } from "@penstock-mq/client";

const [url, token] = process.argv.slice(2);
const client = new Penstock(url!, { token });
const body = { to: "Zoë \"🐟\" \\ </a>\n\x00\x7f\u2028", half: "\ud83d", n: [1, -2.5, null, true, {}, []], "ü": 1e-3 };
const options = { idempotencyKey: "1" };
for (const answer of [await client.submit("mail", "acme", body, options),
  (await client.batch([batchJob("mail", "acme", body, options)]))[0] as Accepted]) {
  console.log(answer.job, answer.duplicate ? "True" : "False");
}
