import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, Receiver } from "@upstash/qstash";
import { emulate, endpoint, until } from "./world.mjs";

const token = "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=";
const keys = { currentSigningKey: "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r", nextSigningKey: "sig_5ZB6DVzB1wjE8S6rZ7eenA8Pdnhs" };

async function world(t, answer) {
  const { url } = await emulate(t, "qstash");
  return { client: new Client({ baseUrl: url, token, retry: false, enableTelemetry: false }), to: await endpoint(t, answer) };
}

test("publishJSON is delivered, and Receiver.verify accepts it", async (t) => {
  const { client, to } = await world(t);
  const { messageId } = await client.publishJSON({ url: to.url, body: { a: 1 }, headers: { "X-Own": "yes" } });
  await until(() => to.got.length === 1, "delivery");
  const [got] = to.got;
  assert.equal(got.headers["upstash-message-id"], messageId);
  assert.equal(got.headers["upstash-retried"], "0");
  assert.equal(got.headers["x-own"], "yes");
  assert.deepEqual(JSON.parse(got.body), { a: 1 });
  const receiver = new Receiver(keys);
  assert.ok(await receiver.verify({ signature: got.headers["upstash-signature"], body: got.body, url: to.url }));
  await assert.rejects(receiver.verify({ signature: got.headers["upstash-signature"], body: got.body + " ", url: to.url }));
  await assert.rejects(receiver.verify({ signature: got.headers["upstash-signature"], body: got.body, url: to.url + "/" }));
});

test("batchJSON answers in order, and twins are deduplicated", async (t) => {
  const { client, to } = await world(t);
  const answers = await client.batchJSON([
    { url: to.url, body: { n: 1 }, deduplicationId: "d1" },
    { url: to.url, body: { n: 2 }, deduplicationId: "d2" },
    { url: to.url, body: { n: 1 }, deduplicationId: "d1" },
  ]);
  assert.equal(answers.length, 3);
  assert.equal(answers[2].messageId, answers[0].messageId);
  assert.equal(answers[2].deduplicated, true);
  await until(() => to.got.length === 2, "two deliveries");
});

test("flow control is kept per key and can be read, paused, pinned", async (t) => {
  const { client, to } = await world(t);
  await client.flowControl.pause("hubsync-test");
  for (let n = 0; n < 3; n++) {
    await client.publishJSON({ url: to.url, body: { n }, flowControl: { key: "hubsync-test", rate: 150, period: "10s", parallelism: 12 } });
  }
  await until(async () => (await client.flowControl.get("hubsync-test")).waitListSize === 3, "wait list");
  const held = await client.flowControl.get("hubsync-test");
  assert.deepEqual([held.isPaused, held.parallelismMax, held.rateMax, held.ratePeriod], [true, 12, 150, 10]);
  assert.equal(to.got.length, 0);
  await client.flowControl.pin("hubsync-test", { parallelism: 1, rate: 100 });
  assert.equal((await client.flowControl.get("hubsync-test")).parallelismMax, 1);
  await client.flowControl.resume("hubsync-test");
  await until(() => to.got.length === 3, "deliveries after the pause");
  assert.ok((await client.flowControl.getGlobalParallelism()).parallelismMax > 0);
});

test("logs, messages and the dead-letter queue", async (t) => {
  let broken = true;
  const { client, to } = await world(t, () => ({ status: broken ? 500 : 200 }));
  const { messageId } = await client.publishJSON({ url: to.url, body: {}, retries: 0 });
  await until(async () => (await client.dlq.listMessages()).messages.length === 1, "dead letter");
  const [dead] = (await client.dlq.listMessages()).messages;
  assert.equal(dead.messageId, messageId);
  assert.equal(dead.responseStatus, 500);
  broken = false;
  const { responses } = await client.dlq.retry(dead.dlqId);
  assert.ok(responses[0].messageId);
  await until(() => to.got.length === 2, "the retried delivery");
  assert.equal((await client.dlq.listMessages()).messages.length, 0);
  const { logs } = await client.logs();
  assert.ok(logs.some((l) => l.messageId === messageId && l.state === "FAILED"));
  const later = await client.publishJSON({ url: to.url, body: {}, delay: 3600 });
  assert.equal((await client.messages.get(later.messageId)).messageId, later.messageId);
  await client.messages.cancel(later.messageId);
  await assert.rejects(client.messages.get(later.messageId));
});

test("dead letters are deleted once", async (t) => {
  const { client, to } = await world(t, () => ({ status: 489, headers: { "Upstash-NonRetryable-Error": "true" } }));
  await client.publishJSON({ url: to.url, body: {}, retries: 3 });
  await until(async () => (await client.dlq.listMessages()).messages.length === 1, "dead letter");
  assert.equal(to.got.length, 1, "489 is not retried");
  const [dead] = (await client.dlq.listMessages()).messages;
  await client.dlq.delete(dead.dlqId);
  await assert.rejects(client.dlq.delete(dead.dlqId));
});

test("bad requests are refused as QStash refuses them", async (t) => {
  const { client, to } = await world(t);
  await assert.rejects(client.publishJSON({ url: to.url, body: {}, deduplicationId: "a:b" }), /400|deduplication/i);
  const stranger = new Client({ baseUrl: client.http.baseUrl, token: "other", retry: false });
  await assert.rejects(stranger.publishJSON({ url: to.url, body: {} }), /unauthorized|401/i);
});
