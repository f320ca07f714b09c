import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { hex, random, unhex, utf8 } from "../../device/bytes.js";
import { checkSignature, openAnswer, seal, sha256 } from "../../device/seals.js";
import { assertRefused, flipped, keyPair, readVectors } from "./support.mjs";

const VECTORS = readVectors("billing_v1");
const SMALL_ORDER = [
  "0000000000000000000000000000000000000000000000000000000000000000",
  "0100000000000000000000000000000000000000000000000000000000000000",
  "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
  "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
  "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
];

test("digests are over all parts", async () => {
  const expected = createHash("sha256").update("tacit/menu/1").update(Buffer.of(1, 2)).digest("hex");
  assert.equal(hex(await sha256("tacit/menu/1", Uint8Array.of(1, 2))), expected);
});

test("seals come out as the vectors have them, by their ephemeral keys", async () => {
  const [requests, epoch] = [VECTORS.request_key, VECTORS.epoch_key].map((key) => unhex(key.public));
  for (const said of VECTORS.requests) {
    const own = await keyPair(unhex(said.ephemeral_private_key));
    assert.equal(hex(await seal(unhex(said.plain), requests, unhex(said.seal_info), own)), said.sealed);
  }
  for (const said of VECTORS.reports) {
    const own = await keyPair(unhex(said.ephemeral_private_key));
    assert.equal(hex(await seal(unhex(said.sealed_plain), epoch, unhex(said.seal_info), own)), said.sealed);
  }
});

test("a seal is 48 bytes longer, and another one each time", async () => {
  const to = unhex(VECTORS.epoch_key.public);
  const [one, two] = [await seal(random(33), to, utf8("a")), await seal(random(33), to, utf8("a"))];
  assert.equal(one.length, 81);
  assert.notEqual(hex(one.slice(0, 32)), hex(two.slice(0, 32)));
});

test("public keys of small order are refused", async () => {
  for (const key of SMALL_ORDER) await assertRefused("MALFORMED", () => seal(random(4), unhex(key), utf8("a")));
  for (const size of [0, 31, 33]) await assert.rejects(seal(random(4), random(size), utf8("a")));
});

test("signatures are of one key, one purpose and one body", async () => {
  const { head } = VECTORS.directory;
  const server = unhex(VECTORS.signing_keys.ad_server.public), proxy = unhex(VECTORS.signing_keys.proxy.public);
  const body = unhex(head.body), signature = unhex(head.by_server);
  await checkSignature(server, "tacit/epoch/1", body, signature);
  for (const wrong of [
    [proxy, "tacit/epoch/1", body, signature],
    [server, "tacit/epoch/2", body, signature],
    [server, "tacit/epoch/1", flipped(body, 9), signature],
    [server, "tacit/epoch/1", body, flipped(signature, 63)],
    [server, "tacit/epoch/1", body, signature.slice(1)],
    [server, "tacit/epoch/1", body, new Uint8Array(0)],
    [new Uint8Array(32).fill(255), "tacit/epoch/1", body, signature],
  ]) {
    await assertRefused("UNAUTHENTICATED", () => checkSignature(...wrong));
  }
});

test("answers open under their own key, and as they were sent", async () => {
  for (const said of VECTORS.offers) {
    const data = unhex(said.encrypted), key = unhex(said.answer_key);
    assert.equal((await openAnswer(data, key)).length, data.length - 28);
    for (const at of [0, 12, data.length - 1]) await assertRefused("UNOPENABLE", () => openAnswer(flipped(data, at), key));
    await assertRefused("UNOPENABLE", () => openAnswer(data, flipped(key, 0)));
    await assertRefused("UNOPENABLE", () => openAnswer(data.slice(0, 27), key));
  }
});
