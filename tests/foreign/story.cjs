const crypto = require("node:crypto");

// One job from creation to its end, through any client of the TypeScript SDKs. Structured content that does not fit the
// schema of a result is an exception there.
async function work(client, assert) {
  const { tools } = await client.listTools();
  assert.strictEqual(tools.length, 9);
  const call = (name, args, meta) =>
    client.callTool({ name, arguments: args, ...(meta ? { _meta: meta } : {}) });

  const payload = '"null"';
  const id = { "shampoo/request_id": crypto.randomUUID() };
  const made = await call("job_create", { kind: "k", payload }, id);
  const again = await call("job_create", { kind: "k", payload }, id);
  assert.deepStrictEqual(again.structuredContent, made.structuredContent);
  assert.strictEqual(again._meta["shampoo/replayed"], true);

  const claim = await call("job_claim", { kind: "k" });
  assert.strictEqual(claim.structuredContent.payload, payload);
  assert.deepStrictEqual(JSON.parse(claim.content[0].text), claim.structuredContent);
  const fence = claim._meta["shampoo/fence"];
  const end = { job_id: claim.structuredContent.job_id, outcome: "completed" };

  const late = await call("job_complete", end, { "shampoo/fence": fence - 1 });
  assert.strictEqual(late.isError, true);
  assert.strictEqual(JSON.parse(late.content[0].text).error.code, "lease_expired");
  const wrong = await call("job_claim", { lease_seconds: "60" });
  assert.strictEqual(JSON.parse(wrong.content[0].text).error.code, "invalid_argument");

  const done = await call("job_complete", end, { "shampoo/fence": fence });
  assert.strictEqual(done.structuredContent.state, "completed");
  const nothing = await call("job_claim", {});
  assert.deepStrictEqual(nothing.structuredContent, { claimed: false });
  await assert.rejects(call("job_steal", {}), (error) => error.code === -32602);
}

module.exports = { work };
