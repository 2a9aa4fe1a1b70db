// GITHUB_TOKEN=… node github.mjs
import { Octokit } from "@octokit/rest";

const proxy = process.env.PENSTOCK_OUTBOUND ?? "127.0.0.1:8090";
const client = new Octokit({ auth: process.env.GITHUB_TOKEN, baseUrl: `http://${proxy}/github` });
const issues = await client.paginate(client.rest.issues.listForRepo, { owner: "o", repo: "r" });
console.log(...issues.map((issue) => issue.number));
