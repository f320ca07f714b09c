import assert from "node:assert/strict";
import { test } from "node:test";

import { concat, hex, random, unhex, utf8 } from "../../device/bytes.js";
import {
  checkLeaf, checkListed, contextBytes, makeReport, readContext, readHead, readListed, readMenu, readOffer, readPack,
  readStatement, sealRequest,
} from "../../device/messages.js";
import { assertRefused, flipped, keyPair, readVectors } from "./support.mjs";

const VECTORS = readVectors("billing_v1");
const PACKS = readVectors("device_packs_v1");
const KEYS = {
  serverSigning: unhex(VECTORS.signing_keys.ad_server.public),
  proxySigning: unhex(VECTORS.signing_keys.proxy.public),
  serverKey: unhex(VECTORS.request_key.public),
};
const HEAD = unhex(VECTORS.directory.head.bytes);
const nodeOf = (said) => ({ levels: said.map(({ level }) => level), values: said.map(({ value }) => value) });

/** A menu's fields as the vectors spell them, whole numbers of 64 bits in texts. */
function fieldsOf(menu) {
  const context = ({ levels, values }) => levels.map((level, at) => ({ level, value: values[at] }));
  return {
    epoch: menu.epoch, lane: menu.lane, context: context(menu.node), rule: menu.rule, mechanism: menu.mechanism,
    epsilon_micros: menu.epsilonMicros, smallest_cohort: menu.smallestCohort, reserve_micros: `${menu.reserveMicros}`,
    ctr_floor: menu.ctrFloor, nothing_micros: menu.nothingMicros, nothing_rank: menu.nothingRank, prior: menu.prior,
    entries: menu.entries.map((entry) => ({
      campaign: `${entry.campaign}`, price_micros: `${entry.priceMicros}`, bid_micros: `${entry.bidMicros}`,
      rate: entry.rate, setter: `${entry.setter}`,
    })),
    finer: menu.finer.map(({ node, rates }) => ({
      context: context(node), rates: [...rates].map(([index, rate]) => ({ index, rate })),
    })),
    bytes: hex(menu.data), menu_id: hex(menu.id),
  };
}

for (const [name, said] of Object.entries(VECTORS.menus)) {
  if (name === "limits") continue;
  test(`menu: ${name}`, async () => {
    assert.deepEqual(fieldsOf(await readMenu(unhex(said.bytes))), { ...said, prior: JSON.parse(said.prior) });
  });
}

test("a menu at its limits is read, with campaigns and setters up to 2^53 and none beyond", async () => {
  const { bytes } = VECTORS.menus.limits;
  await assertRefused("MALFORMED", () => readMenu(unhex(bytes)));
  const far = "7fffffffffffffff", near = "0020000000000000", beyond = "0020000000000001";
  const menu = await readMenu(unhex(bytes.replaceAll(far, near)));
  assert.deepEqual(menu.entries[0], {
    campaign: 2 ** 53, priceMicros: 2 ** 40, bidMicros: 2 ** 53, rate: 1, setter: 2 ** 53,
  });
  assert.deepEqual(
    [menu.epsilonMicros, menu.smallestCohort, menu.reserveMicros, menu.ctrFloor, menu.nothingRank, menu.nothingMicros],
    [2 ** 32 - 1, 2 ** 32 - 1, 2 ** 53, 1, 0, 2 ** 53],
  );
  assert.deepEqual(menu.node, nodeOf(VECTORS.menus.limits.context));
  for (const [campaign, setter] of [[beyond, near], [near, beyond]]) {
    await assertRefused("MALFORMED", () => readMenu(unhex(bytes.replace(far, campaign).replace(far, setter))));
  }
});

for (const [name, said] of Object.entries(VECTORS.bad_menus)) {
  test(`no menu: ${name}`, () => assertRefused(said.verdict, () => readMenu(unhex(said.bytes))));
}

test("finer nodes stand in the order of Python, by code points and not by units of UTF-16", async () => {
  const { bytes } = VECTORS.menus.personal;
  const menuWith = (...values) => {
    const tables = values.map((value) => {
      const context = contextBytes({ levels: [0], values: [value] });
      return concat([0, context.length], context, [0]);
    });
    return readMenu(concat(unhex(bytes).slice(0, -2), [0, values.length], ...tables));
  };
  for (const [less, more] of [["\uffee", "😀"], ["a", "a\0"], ["", "\0"], ["Z", "a"], ["é", "中"]]) {
    assert.deepEqual((await menuWith(less, more)).finer.map(({ node }) => node.values[0]), [less, more]);
    await assertRefused("MALFORMED", () => menuWith(more, less));
  }
  await assertRefused("MALFORMED", () => menuWith("a", "a"));
});

test("menus with any one byte changed, left out or added are read or refused, and fail in no other way", async () => {
  for (const name of ["personal", "public", "nothing", "finer"]) {
    const good = unhex(VECTORS.menus[name].bytes), id = VECTORS.menus[name].menu_id;
    for (let at = 0; at < good.length; at++) {
      const [byte] = random(1);
      for (const other of [
        good.with(at, good[at] ^ (byte || 1)), concat(good.slice(0, at), good.slice(at + 1)),
        concat(good.slice(0, at), [byte], good.slice(at)),
      ]) {
        const menu = await readMenu(other).catch((fault) => assert.equal(fault.reason, "MALFORMED", `${fault.stack}`));
        if (menu) assert.notEqual(hex(menu.id), id);
      }
    }
  }
});

test("a prior is JSON", async () => {
  const { bytes, prior } = VECTORS.menus.finer, length = (text) => concat([0, utf8(text).length], text);
  const other = bytes.replace(hex(length(prior)), hex(length("{1}")));
  assert.notEqual(other, bytes);
  await assertRefused("MALFORMED", () => readMenu(unhex(other)));
});

test("contexts have one spelling", async () => {
  const node = { levels: [1, 255], values: ["Food>ü", ""] };
  assert.deepEqual(readContext(contextBytes(node)), node);
  assert.equal(hex(contextBytes(node)), "02010007" + "466f6f643ec3bc" + "ff0000");
  await assertRefused("MALFORMED", () => contextBytes({ levels: [1], values: ["a", "b"] }));
  await assertRefused("MALFORMED", () => contextBytes({ levels: [1, 2], values: ["a"] }));
  await assertRefused("MALFORMED", () => contextBytes({ levels: [256], values: ["a"] }));
  await assertRefused("MALFORMED", () => contextBytes({ levels: [0], values: ["\ud800"] }));
  await assertRefused("MALFORMED", () => readContext(Uint8Array.of(0)));
});

test("the head is read as it was signed", async () => {
  const said = VECTORS.directory.head, head = await readHead(HEAD, KEYS);
  for (const name of ["epoch", "opens", "closes", "expires", "menus"]) assert.equal(head[name], said[name]);
  assert.deepEqual(
    [hex(head.root), hex(head.sealingKey), hex(head.body), hex(head.data)],
    [said.root, said.sealing_key, said.body, said.bytes],
  );
});

for (const [name, said] of Object.entries(VECTORS.bad_heads)) {
  test(`no head: ${name}`, () => assertRefused(said.verdict, () => readHead(unhex(said.bytes), KEYS)));
}

test("every leaf of the directory is found by its path", async () => {
  const head = await readHead(HEAD, KEYS);
  for (const [place, leaf] of VECTORS.directory.leaves.entries()) {
    await checkLeaf(unhex(leaf.bytes), place, leaf.path.map(unhex), head);
  }
});

for (const [name, said] of Object.entries(VECTORS.bad_proofs)) {
  test(`no proof: ${name}`, async () => {
    const head = await readHead(HEAD, KEYS);
    await assertRefused(said.verdict, () => checkLeaf(unhex(said.leaf), said.place, said.path.map(unhex), head));
  });
}

test("requests are sealed as the vectors have them, whatever they ask for in one length", async () => {
  for (const said of VECTORS.requests) {
    const request = {
      epoch: said.epoch, lane: said.lane, node: nodeOf(said.context), blinded: said.blinded.map(unhex),
      answerKey: unhex(said.answer_key), known: unhex(said.known_menu),
    };
    const own = await keyPair(unhex(said.ephemeral_private_key));
    assert.equal(hex(await sealRequest(request, KEYS.serverKey, own)), said.sealed);
    const { known, ...first } = request;
    assert.equal((await sealRequest(first, KEYS.serverKey)).length, said.sealed.length / 2);
    for (const wrong of [
      { epoch: 2 ** 32 }, { epoch: -1 }, { lane: "other" }, { answerKey: random(31) }, { known: random(33) },
      { node: { levels: [0], values: ["x".repeat(157)] } }, { blinded: [random(255)] },
      { blinded: Array(17).fill(random(256)) },
    ]) {
      await assertRefused("MALFORMED", async () => sealRequest({ ...request, ...wrong }, KEYS.serverKey));
    }
  }
});

test("offers are read, and refusals with the server's reason", async () => {
  for (const said of VECTORS.offers) {
    const data = unhex(said.encrypted), key = unhex(said.answer_key);
    if (said.refused) {
      await assertRefused(said.refused, () => readOffer(data, key));
      continue;
    }
    const { signatures, listed } = await readOffer(data, key);
    assert.deepEqual(signatures.map(hex), said.signatures);
    assert.equal(listed === null, said.menu === null);
    if (!listed) continue;
    assert.equal(hex(listed.menu.id), VECTORS.menus[said.menu].menu_id);
    assert.deepEqual([hex(listed.tokenKey), listed.place, listed.path.map(hex)], [said.token_key, said.place, said.path]);
    assert.deepEqual(await readListed(listed.data), listed);
    await assertRefused("MALFORMED", () => readListed(concat(listed.data, [0])));
  }
});

for (const [name, said] of Object.entries(VECTORS.bad_offers)) {
  test(`no offer: ${name}`, () =>
    assertRefused(said.verdict, () => readOffer(unhex(said.bytes), unhex(VECTORS.offers[0].answer_key))));
}

test("a listed menu is of the epoch, context, lane and key that all devices see", async () => {
  const head = await readHead(HEAD, KEYS), said = VECTORS.offers[0];
  const { listed } = await readOffer(unhex(said.encrypted), unhex(said.answer_key));
  const { node, lane } = listed.menu, other = { levels: [0, 2], values: ["Sport>Yoga", "anything"] };
  await checkListed(listed, head, node, lane);
  const refused = (...changed) => assertRefused("NOT_LISTED", () => checkListed(...changed));
  await refused(listed, { ...head, epoch: 8 }, node, lane);
  await refused(listed, { ...head, root: random(32) }, node, lane);
  await refused(listed, { ...head, menus: 1 }, node, lane);
  await refused(listed, head, other, lane);
  await refused(listed, head, node, "public");
  await refused({ ...listed, tokenKey: unhex(VECTORS.token_keys[1].n) }, head, node, lane);
  await refused({ ...listed, place: listed.place ^ 1 }, head, node, lane);
  await refused({ ...listed, path: [...listed.path, random(32)] }, head, node, lane);
  await refused({ ...listed, menu: { ...listed.menu, id: random(32) } }, head, node, lane);
  await refused({ ...listed, menu: { ...listed.menu, smallestCohort: 1 } }, head, node, lane);
  const after = listed.data.length - 4 - 1 - 32 * listed.path.length;
  const short = listed.data.with(after - 256, listed.data[after - 256] & 127);
  for (const key of [flipped(listed.data, after - 1), short]) await assertRefused("MALFORMED", () => readListed(key));
});

test("reports come out as the vectors have them, always 434 bytes", async () => {
  const epoch = unhex(VECTORS.epoch_key.public);
  for (const [at, said] of VECTORS.reports.entries()) {
    const menuId = unhex(VECTORS.menus[said.menu].menu_id), token = unhex(VECTORS.tokens[at].token);
    const own = await keyPair(unhex(said.ephemeral_private_key));
    assert.equal(hex(await makeReport(menuId, unhex(said.secret), token, said.index, epoch, own)), said.bytes);
  }
  const [menuId, secret, token] = [random(32), random(32), random(256)];
  for (const index of [0, 1, 255]) {
    assert.equal((await makeReport(menuId, secret, token, index, epoch)).length, 434);
  }
  for (const wrong of [
    [random(31), secret, token, 1], [menuId, random(33), token, 1], [menuId, secret, random(255), 1],
    [menuId, secret, token, 256], [menuId, secret, token, -1], [menuId, secret, token, 0.5], [menuId, secret, token],
  ]) {
    const [a, b, c, d] = wrong;
    await assertRefused("MALFORMED", () => makeReport(a, b, c, d, epoch));
  }
});

test("a cohort's size is read as the proxy signed it", async () => {
  const said = VECTORS.cohort, found = await readStatement(unhex(said.bytes), KEYS);
  assert.deepEqual([found.epoch, found.reports], [said.epoch, said.reports]);
  assert.deepEqual([hex(found.batchId), hex(found.menuId)], [said.batch_id, said.menu_id]);
});

for (const [name, said] of Object.entries(VECTORS.bad_cohorts)) {
  test(`no cohort: ${name}`, () => assertRefused(said.verdict, () => readStatement(unhex(said.bytes), KEYS)));
}

for (const [name, said] of Object.entries(PACKS.packs)) {
  test(`pack: ${name}`, async () => {
    const { campaigns, menuId } = await readPack(unhex(said.bytes), KEYS, unhex(PACKS.menu_id));
    assert.equal(hex(menuId), PACKS.menu_id);
    const base64 = (content) => (content === null ? null : Buffer.from(content).toString("base64"));
    const spelled = campaigns.map((campaign) => ({
      ...campaign,
      creatives: campaign.creatives.map((ad) => ({ ...ad, content: base64(ad.content) })),
    }));
    assert.deepEqual(spelled, said.campaigns);
  });
}

for (const [name, said] of Object.entries(PACKS.bad_packs)) {
  test(`no pack: ${name}`, () =>
    assertRefused(said.verdict, () => readPack(unhex(said.bytes), KEYS, unhex(PACKS.menu_id))));
}

test("a pack that is too long is not read", () =>
  assertRefused("MALFORMED", () => {
    const good = unhex(PACKS.packs.of_ads.bytes);
    return readPack(concat(good, new Uint8Array(PACKS.longest + 1 - good.length).fill(32)), KEYS, unhex(PACKS.menu_id));
  }));
