// The TypeScript SDK v2 works a job: node sdk_v2.cjs URL TOKEN legacy|auto
const assert = require("node:assert");
const { pathToFileURL } = require("node:url");
const { work } = require("./story.cjs");

const [url, token, mode] = process.argv.slice(2);

async function main() {
  const folder = `${process.env.NODE_PATH}/@modelcontextprotocol/client`;
  const entry = require(`${folder}/package.json`).exports["."].import.default;
  const { Client, StreamableHTTPClientTransport } = await import(pathToFileURL(`${folder}/${entry}`));
  const client = new Client({ name: "sdk-v2", version: "1" }, { versionNegotiation: { mode } });
  await client.connect(
    new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }),
  );
  await work(client, assert);
  const version = client.getNegotiatedProtocolVersion();
  await client.close();
  return version;
}

main().then((version) => console.log(`worked a job at ${version}`));
