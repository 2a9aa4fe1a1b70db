// ANTHROPIC_API_KEY=… node anthropic.mjs
import Anthropic from "@anthropic-ai/sdk";

const proxy = process.env.PENSTOCK_OUTBOUND ?? "127.0.0.1:8090";
const client = new Anthropic({ baseURL: `http://${proxy}/anthropic` });
const { content } = await client.messages.create({
  model: "claude-haiku-5-5", max_tokens: 100, messages: [{ role: "user", content: "Hello" }] });
console.log(content[0].text);
