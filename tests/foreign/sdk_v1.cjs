// The TypeScript SDK v1 works a job: node sdk_v1.cjs URL TOKEN, or node sdk_v1.cjs - COMMAND ARGUMENT…
const assert = require("node:assert");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { work } = require("./story.cjs");

const [url, token, ...rest] = process.argv.slice(2);
const transport =
  url === "-"
    ? new StdioClientTransport({ command: token, args: rest, env: process.env })
    : new StreamableHTTPClientTransport(new URL(url), {
        requestInit: { headers: { Authorization: `Bearer ${token}` } },
      });

async function main() {
  const client = new Client({ name: "sdk-v1", version: "1" });
  await client.connect(transport);
  await work(client, assert);
  await client.close();
}

main().then(() => console.log("worked a job"));
