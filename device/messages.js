/** Messages of billing, as a device writes and reads them. */
import { attempt, concat, decode, demand, equal, hex, Reader, readMessage, refuse, unbase64, unhex, utf8, VERDICTS, Writer } from "./bytes.js";
import { checkSignature, openAnswer, seal, sha256 } from "./seals.js";
import { tokenNonce } from "./tokens.js";

const LANES = ["public", "personal"];
function within(value, least, most) {
  demand(value >= least && value <= most, `${least}..${most}`);
  return value;
}
const times = (length, make) => Array.from({ length }, make);

/** A context's one spelling. @param {{levels: number[], values: string[]}} node */
export function contextBytes({ levels, values }) {
  demand(levels.length === values.length, "a level per value");
  const writer = new Writer().u8(values.length);
  values.forEach((value, at) => writer.u8(levels[at]).text(value));
  return writer.done();
}

export function readContext(data) {
  const reader = new Reader(data), levels = [];
  const values = times(reader.u8(), () => levels.push(reader.u8()) && reader.text());
  reader.end();
  demand(values.length, "an attribute");
  return { levels, values };
}

/** As Python orders nodes: by levels, then by values. */
const orderOf = ({ levels, values }) => [levels, ...values.map(utf8)].map(hex).join(" ");

/** A menu, in its only spelling. */
export async function readMenu(data) {
  return { id: await sha256("tacit/menu/1", data), ...readMessage(data, parseMenu), data };
}

function parseMenu(reader) {
  const chance = () => within(reader.f64(), 0, 1);
  const menu = {
    epoch: reader.u32(),
    lane: demand(LANES[reader.u8()], "a lane"),
    node: readContext(reader.raw(within(reader.u16(), 0, 160))),
    rule: reader.text(),
    mechanism: reader.text(),
    epsilonMicros: reader.u32(),
    smallestCohort: within(reader.u32(), 1, 2 ** 32),
    reserveMicros: reader.u64(),
    ctrFloor: chance(),
    nothingRank: reader.u8(),
    nothingMicros: within(reader.f64(), 0, 2 ** 53),
    prior: attempt(() => JSON.parse(reader.text()), "JSON"),
    entries: times(within(reader.u8(), 1, 250), () => ({
      campaign: reader.u64(),
      priceMicros: within(reader.u64(), 0, 2 ** 40),
      bidMicros: reader.u64(),
      rate: chance(),
      setter: within(reader.i64(), -3, 2 ** 53),
    })),
  };
  const { length } = menu.entries;
  demand(new Set(menu.entries.map((entry) => entry.campaign)).size === length, "each campaign once");
  if (menu.nothingRank === 255) {
    demand(Object.is(menu.nothingMicros, 0), "a rank of nothing");
    menu.nothingRank = menu.nothingMicros = null;
  } else within(menu.nothingRank, 0, length);
  demand(menu.lane === "personal" || (length === 1 && !menu.epsilonMicros && menu.nothingRank === null), "a public lane");
  let before = "";
  menu.finer = times(reader.u16(), () => {
    const node = readContext(reader.blob16()), rates = new Map(), order = orderOf(node);
    demand(before < order, "nodes in order");
    before = order;
    let index = 0;
    times(reader.u8(), () => rates.set((index = within(reader.u8(), index + 1, length)), chance()));
    return { node, rates };
  });
  return menu;
}

/** The head of an epoch, which both parties signed. */
export async function readHead(data, { serverSigning, proxySigning }) {
  const { byServer, byProxy, ...head } = readMessage(data, (reader) => ({
    epoch: reader.u32(),
    opens: reader.u64(),
    closes: reader.u64(),
    expires: reader.u64(),
    menus: within(reader.u32(), 1, 2 ** 20),
    root: reader.raw(32),
    sealingKey: reader.raw(32),
    byServer: reader.raw(64),
    byProxy: reader.raw(64),
  }));
  demand(head.opens < head.closes && head.closes <= head.expires, "opens, closes, expires");
  const body = data.slice(0, 97);
  await checkSignature(serverSigning, "tacit/epoch/1", body, byServer);
  await checkSignature(proxySigning, "tacit/epoch/1/countersigned", data.slice(0, 161), byProxy);
  return { ...head, body, data };
}

/** A request for a menu and for signatures of `blinded`, sealed. */
export async function sealRequest({ epoch, lane, node, blinded, answerKey, known = new Uint8Array(32) }, serverKey, ephemeral) {
  const context = contextBytes(node), padding = new Uint8Array(160 - within(context.length, 0, 160));
  const writer = new Writer().u8(1).u32(epoch).u8(LANES.indexOf(lane)).raw(answerKey, 32).raw(known, 32);
  writer.u8(context.length).raw(context).raw(padding);
  within(blinded.length, 0, 16);
  for (const each of blinded) writer.raw(each, 256);
  return seal(writer.done(), serverKey, "tacit/request/1", ephemeral);
}

/** The answer to a request: signatures, and a listed menu or null. */
export async function readOffer(data, answerKey) {
  const padded = new Reader(await openAnswer(data, answerKey));
  const body = padded.blob32();
  demand(!padded.rest().some(Boolean), "padding");
  const [signatures, kept] = readMessage(body, (reader) => {
    const verdict = reader.u8();
    if (verdict) refuse(VERDICTS[verdict] ?? "MALFORMED", "by the ad server");
    const signatures = times(within(reader.u8(), 0, 16), () => reader.raw(256));
    return [signatures, within(reader.u8(), 0, 1) && concat([1], reader.rest())];
  });
  return { signatures, listed: kept ? await readListed(kept) : null };
}

/** A menu with its token key and its place in the directory, from `data` as kept. */
export async function readListed(data) {
  const listed = readMessage(data, (reader) => ({
    menu: reader.blob32(),
    tokenKey: reader.raw(256),
    place: reader.u32(),
    path: times(within(reader.u8(), 0, 32), () => reader.raw(32)),
  }));
  demand(listed.tokenKey[0] & 128 && listed.tokenKey[255] & 1, "an odd modulus of 2048 bits");
  return { ...listed, menu: await readMenu(listed.menu), data };
}

/** Refuse a menu that was not asked for, or that others do not see. */
export async function checkListed({ menu, tokenKey, place, path }, head, node, lane) {
  const context = contextBytes(menu.node);
  const asked = menu.epoch === head.epoch && menu.lane === lane && equal(context, contextBytes(node));
  demand(asked, "the menu that was asked for", "NOT_LISTED");
  const leaf = new Writer().blob16(context).u8(LANES.indexOf(lane)).raw(menu.id).raw(tokenKey).u32(menu.smallestCohort);
  await checkLeaf(leaf.done(), place, path, head);
}

/** Refuse a leaf that does not stand at this place of the epoch's tree (RFC 9162, 2.1). */
export async function checkLeaf(leaf, place, path, { menus, root }) {
  let hash = await sha256([0], leaf), step = 0;
  for (let at = place, width = menus; width > 1; at >>= 1, width = (width + 1) >> 1) {
    if ((at ^ 1) >= width) continue;
    const beside = path[step++] ?? [];
    hash = await sha256([1], ...(at & 1 ? [beside, hash] : [hash, beside]));
  }
  demand(place < menus && step === path.length && equal(hash, root), "a leaf of the directory", "NOT_LISTED");
}

/** The report of an impression, 434 bytes. Sealing draws: keep it, and send the same again. */
export async function makeReport(menuId, secret, token, index, sealingKey, ephemeral) {
  const nonce = await tokenNonce(secret), opening = new Writer().raw(secret, 32).u8(index).done();
  const sealed = await seal(opening, sealingKey, concat("tacit/report/1", menuId, nonce), ephemeral);
  const report = new Writer().u8(1).raw(menuId, 32).raw(nonce).raw(token, 256);
  return report.raw(await sha256("tacit/choice/1", opening)).raw(sealed).done();
}

/** How many reports of a batch were accepted, as the proxy signed it. */
export async function readStatement(data, { proxySigning }) {
  const { signature, ...statement } = readMessage(data, (reader) => ({
    batchId: reader.raw(16),
    menuId: reader.raw(32),
    epoch: reader.u32(),
    reports: within(reader.u32(), 0, 1e5),
    signature: reader.raw(64),
  }));
  await checkSignature(proxySigning, "tacit/cohort/1", data.slice(0, 57), signature);
  return statement;
}

/** The ads of a menu with caps and categories, as the ad server signed them. */
export async function readPack(data, { serverSigning }, menuId) {
  const [said, signature] = attempt(() => {
    within(data.length, 0, 8e6);
    const { pack, signature } = JSON.parse(decode(data));
    return [utf8(pack), unhex(signature)];
  }, "a pack of ads");
  await checkSignature(serverSigning, "tacit/pack/1", said, signature);
  const [menu, campaigns] = attempt(() => {
    const { menu, campaigns } = JSON.parse(decode(said));
    return [unhex(menu), campaigns.map(checkCampaign)];
  }, "campaigns with their ads");
  demand(equal(menu, menuId), "the pack of this menu", "UNKNOWN_MENU");
  return { menuId, campaigns };
}

const whole = (value) => demand(Number.isSafeInteger(value), "a whole number");

function checkCampaign(campaign) {
  whole(campaign.number);
  for (const { impressions, seconds } of campaign.caps) {
    whole(within(impressions, 1, 65535));
    whole(within(seconds, 1, 2 ** 32 - 1));
  }
  campaign.categories.forEach(utf8);
  for (const ad of campaign.creatives) {
    whole(ad.number);
    [ad.media, ad.title, ad.text, ad.address].forEach(utf8);
    const { protocol, username, password } = attempt(() => new URL(ad.address), "an address");
    demand(protocol === "https:" && ad.address.startsWith("https://") && !username && !password, "https, and nobody's name");
    ad.content = ad.content === null ? null : unbase64(ad.content);
  }
  return campaign;
}
