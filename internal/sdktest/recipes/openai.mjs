// OPENAI_API_KEY=… node openai.mjs
import OpenAI from "openai";

const proxy = process.env.PENSTOCK_OUTBOUND ?? "127.0.0.1:8090";
const client = new OpenAI({ baseURL: `http://${proxy}/openai/v1` });
const { choices } = await client.chat.completions.create({
  model: "gpt-5", messages: [{ role: "user", content: "Hello" }] });
console.log(choices[0].message.content);
