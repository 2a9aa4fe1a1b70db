// Uses the SDKs as programs do: node sdks.js PART PROXY FAKE, where PROXY and FAKE are host:port. It prints what it got.
// PART many has OpenAI's base URL instead of PROXY.
import Anthropic from "@anthropic-ai/sdk";
import { Octokit } from "@octokit/rest";
import OpenAI from "openai";
import Stripe from "stripe";

const [part, proxy, fake] = process.argv.slice(2);
const openai = new OpenAI({ apiKey: "sk-openai", baseURL: part === "many" ? proxy : `http://${proxy}/openai/v1` });
const anthropic = new Anthropic({ apiKey: "sk-anthropic", baseURL: `http://${proxy}/anthropic` });
const github = new Octokit({ auth: "ghp_x", baseUrl: `http://${proxy}/github`, log: { warn() {}, error() {} } });
const stripe = new Stripe("sk_test_stripe", { protocol: "http", host: "localhost", port: proxy.split(":")[1] });

const chat = { model: "gpt-x", max_tokens: 100, messages: [{ role: "user", content: "hello" }] };
const times = (n, f) => Promise.all(Array.from({ length: n }, (_, i) => f(i)));
const customer = (i) => stripe.customers.create({ name: `customer ${i}` });

const parts = {
  async work() {
    const [chats, customers, issues, message] = await Promise.all([
      times(15, () => openai.chat.completions.create(chat)),
      times(8, customer),
      github.paginate(github.rest.issues.listForRepo, { owner: "o", repo: "r", per_page: 2 }),
      anthropic.messages.create({ ...chat, model: "claude-x" }),
    ]);
    const file = await stripe.files.create({
      purpose: "dispute_evidence",
      file: { data: Buffer.from("\0binary\xff", "latin1"), name: "a.bin", type: "application/octet-stream" },
    });
    return { chats: chats.map((c) => c.choices[0].message.content), customers: customers.map((c) => c.name),
      issues: issues.map((i) => i.number), message: message.content[0].text, file: file.id };
  },

  async many() {
    const calls = await Promise.allSettled(Array.from({ length: 100 }, () => openai.chat.completions.create(chat)));
    const lost = calls.filter((call) => call.status === "rejected").map(({ reason }) => reason.message);
    return { done: calls.length - lost.length, lost: [...new Set(lost)] };
  },

  // The fake sends the rest of a stream when it hears that the first chunk has arrived.
  async streams() {
    const got = { openai: "", anthropic: "" };
    const arrived = (api) => fetch(`http://${fake}/arrived/${api}`);
    for await (const chunk of await openai.chat.completions.create({ ...chat, stream: true })) {
      if (got.openai === "") await arrived("openai");
      got.openai += chunk.choices[0]?.delta.content ?? "";
    }
    for await (const event of anthropic.messages.stream({ ...chat, model: "claude-x" })) {
      if (event.type !== "content_block_delta") continue;
      if (got.anthropic === "") await arrived("anthropic");
      got.anthropic += event.delta.text;
    }
    return got;
  },

  async pages() {
    const ids = async (list) => { const all = []; for await (const { id } of list) all.push(id); return all; };
    return { openai: await ids(openai.files.list()), anthropic: await ids(anthropic.models.list()),
      stripe: await ids(stripe.customers.list()) };
  },

  // Stripe's SDK cannot cancel: its request ends with the process.
  async cancel() {
    const held = (api) => fetch(`http://${fake}/held/${api}`);
    for await (const _ of await openai.chat.completions.create({ ...chat, stream: true })) break;
    for await (const _ of await anthropic.messages.create({ ...chat, model: "claude-x", stream: true })) break;
    const abort = new AbortController();
    const issues = github.rest.issues.listForRepo({ owner: "o", repo: "hold", request: { signal: abort.signal } });
    await held("github");
    abort.abort();
    await issues.catch(() => {});
    stripe.customers.retrieve("hold").catch(() => {});
    await held("stripe");
    return {};
  },

  // Each policy refuses until it has done so once.
  async refused() {
    const [chat1, customer1, message, issues] = await Promise.all([
      openai.chat.completions.create(chat),
      customer(1),
      anthropic.messages.create({ ...chat, model: "claude-x" }),
      github.rest.issues.listForRepo({ owner: "o", repo: "r" }).catch((error) => error),
    ]);
    return { chat: chat1.choices[0].message.content, customer: customer1.name, message: message.content[0].text,
      status: issues.status, retryAfter: issues.response.headers["retry-after"],
      by: issues.response.headers["penstock-error"] };
  },
};
console.log(JSON.stringify(await parts[part]()));
process.exit();
