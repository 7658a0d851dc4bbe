import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "@hubspot/api-client";
import { emulate } from "./world.mjs";

// The sample's routes: portal main is Enterprise, with subscription 2239644020.
const subscriptionId = 2239644020;

async function world(t, ...args) {
  const { url, said } = await emulate(t, "hubspot", ...args);
  const accessToken = said.match(/portal main: bearer token (\S+)/)[1];
  return { client: new Client({ accessToken, basePath: url, numberOfApiCallRetries: 0 }), url };
}

const input = (key, email, properties = {}) => ({
  id: key, idProperty: "external_contact_id", objectWriteTraceId: key, properties: { email, ...properties },
});

test("batch upsert creates, then updates; read finds it by any address", async (t) => {
  const { client } = await world(t);
  const { batchApi } = client.crm.contacts;
  const made = await batchApi.upsert({ inputs: [input("k1", "Ada+News@Example.com", { newsletter_acme: "true" }), input("k2", "bob@example.com")] });
  assert.equal(made.status, "COMPLETE");
  assert.ok(made.results.every((r) => r._new));
  const again = await batchApi.upsert({ inputs: [input("k1", "ada+news@example.com", { newsletter_acme: "false" })] });
  assert.equal(again.results[0]._new, false);
  const read = await batchApi.read({ inputs: [{ id: "ada+news@example.com" }], idProperty: "email", properties: ["newsletter_acme"], propertiesWithHistory: [] });
  assert.equal(read.results[0].properties.newsletter_acme, "false");
  const updated = await batchApi.update({ inputs: [{ id: read.results[0].id, properties: { newsletter_acme: "true" } }] });
  assert.equal(updated.results[0].properties.newsletter_acme, "true");
  await batchApi.archive({ inputs: [{ id: read.results[0].id }] });
  const gone = await batchApi.read({ inputs: [{ id: "ada+news@example.com" }], idProperty: "email", properties: [], propertiesWithHistory: [] });
  assert.equal(gone.results.length, 0);
});

test("one bad row of three is named by its trace id, and the others are written", async (t) => {
  const { client } = await world(t);
  const answer = await client.crm.contacts.batchApi.upsert({
    inputs: [input("k1", "a@example.com"), input("k2", "b@example.com", { newsletter_acme: "maybe" }), input("k3", "c@example.com")],
  });
  assert.equal(answer.results.length, 2);
  assert.equal(answer.numErrors, 1);
  assert.deepEqual(answer.errors[0].context.objectWriteTraceId, ["k2"]);
  assert.match(answer.errors[0].message, /INVALID_OPTION/);
});

test("errors are as the client's types expect", async (t) => {
  const { client, url } = await world(t);
  const { batchApi, basicApi } = client.crm.contacts;
  await assert.rejects(batchApi.upsert({ inputs: [input("k1", "a@example.com"), input("k1", "b@example.com")] }), (e) => e.code === 400 && /Duplicate IDs/.test(e.body.message));
  await basicApi.create({ properties: { email: "owner@example.com" }, associations: [] });
  await assert.rejects(basicApi.create({ properties: { email: "owner@example.com" }, associations: [] }), (e) => e.code === 409 && /Existing ID: \d+/.test(e.body.message));
  await assert.rejects(basicApi.update("1", { properties: { firstname: "x" } }), (e) => e.code === 404 && e.body.category === "OBJECT_NOT_FOUND");
  const stranger = new Client({ accessToken: "other", basePath: url, numberOfApiCallRetries: 0 });
  await assert.rejects(stranger.crm.contacts.basicApi.getPage(1), (e) => e.code === 401);
});

for (const version of ["v4", "2026-03"]) {
  const path = (rest) => `/communication-preferences/${version}/statuses/${rest}`;
  const call = async (client, method, rest, body) => {
    const response = await client.apiRequest({ method, path: path(rest), body });
    return response.json();
  };

  test(`preferences ${version}: write, read, resubscribe, opt out of all`, async (t) => {
    const { client } = await world(t);
    const write = (statusState) => call(client, "POST", "batch/write", {
      inputs: [{ subscriberIdString: "ada@example.com", channel: "EMAIL", statusState, subscriptionId, legalBasis: "CONSENT_WITH_NOTICE", legalBasisExplanation: "form" }],
    });
    assert.equal((await write("SUBSCRIBED")).results[0].setStatusSuccessReason, "REQUESTED_CHANGE_OCCURRED");
    assert.equal((await write("SUBSCRIBED")).results[0].setStatusSuccessReason, "NO_STATUS_CHANGE");
    await write("UNSUBSCRIBED");
    assert.equal((await write("SUBSCRIBED")).results[0].setStatusSuccessReason, "RESUBSCRIBE_OCCURRED");
    const one = await call(client, "GET", `${encodeURIComponent("ada@example.com")}?channel=EMAIL`);
    assert.equal(one.status, "COMPLETE");
    assert.equal(one.results.find((s) => s.subscriptionId === subscriptionId).status, "SUBSCRIBED");
    const many = await call(client, "POST", "batch/read?channel=EMAIL", { inputs: ["ada@example.com"] });
    assert.ok(many.results.length > 0);
    assert.deepEqual((await call(client, "POST", "batch/unsubscribe-all/read?channel=EMAIL", { inputs: ["ada@example.com"] })).results, []);
    await call(client, "POST", `${encodeURIComponent("ada@example.com")}/unsubscribe-all?channel=EMAIL`);
    const wide = await call(client, "GET", `${encodeURIComponent("ada@example.com")}/unsubscribe-all?channel=EMAIL`);
    assert.equal(wide.results[0].wideStatusType, "PORTAL_WIDE");
  });
}

test("without Enterprise the batch endpoints are refused, single ones are not", async (t) => {
  const { client } = await world(t, "--plan", "professional");
  await assert.rejects(client.apiRequest({ method: "POST", path: "/communication-preferences/2026-03/statuses/batch/read?channel=EMAIL", body: { inputs: ["a@example.com"] } }).then((r) => { if (!r.ok) throw Object.assign(new Error("refused"), { code: r.status }); }), (e) => e.code === 403);
  const one = await client.apiRequest({ method: "GET", path: "/communication-preferences/2026-03/statuses/a%40example.com?channel=EMAIL" });
  assert.equal(one.status, 200);
});
