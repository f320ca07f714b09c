/** A device's part in rounds of statistics. Rounds with proofs, noise by devices or another law than discrete Laplace and Gaussian are
 * UNSUPPORTED: it takes no part in them. */
import { Reader, concat, decode, demand, equal, hex, random } from "./bytes.js";
import { seal, sha256 } from "./seals.js";

const { subtle } = crypto;

/** msgpack's codes: how a number or size is read, and the least: a message has one spelling. */
const SIZED = {
  0xc4: ["u8", 0], 0xc5: ["u16", 256], 0xc6: ["u32", 65536], 0xcc: ["u8", 128], 0xcd: ["u16", 256], 0xce: ["u32", 65536],
  0xcf: ["u64", 2 ** 32], 0xd9: ["u8", 32], 0xda: ["u16", 256], 0xdc: ["u16", 16],
};

function readItem(reader, depth, most = 64) {
  const code = reader.u8();
  if (code < 0x80) return code;
  const [field, least] = SIZED[code] ?? [], size = field ? reader[field]() : code & (code < 0xa0 ? 15 : 31);
  demand(field ? size >= least : code > 0x8f && code < 0xc0, "the shortest spelling");
  if (code > 0xcb && code < 0xd0) return size;
  if (code > 0xbf && code < 0xcc) return reader.raw(size);
  if (code > 0x9f && code < 0xdc) return decode(reader.raw(size));
  demand(depth && size <= most, "fewer fields");
  return Array.from({ length: size }, () => readItem(reader, depth - 1));
}

function unpack(data, most) {
  const reader = new Reader(data), found = readItem(reader, 2, most);
  reader.end();
  return demand(Array.isArray(found) && found, "an array");
}

const isBytes = (each) => each instanceof Uint8Array;
const isWhole = ([number, least, most]) => Number.isInteger(number) && least <= number && number <= most;

const fraction = (text) => demand(/^(0|[1-9]\d{0,300})\/([1-9]\d{0,300})$/.exec(text), "a fraction").slice(1).map(BigInt);
const valueOf = ([above, below]) => Number(above) / Number(below);

/** The rounds that a proxy lists, each with its question. @returns {Uint8Array[][]} */
export const readRounds = (data) =>
  unpack(data, 1000).map((each) => demand(each.length === 2 && each.every(isBytes) && each, "rounds with questions"));

/** What the parties agreed on; what concerns them alone is theirs to check. */
export async function readRound(data) {
  const [kind, version, task, level, cells, question, group, opens, closes, skew, parties, smallestBatch, noise, bounds, scope, promise,
    check, proxyKey, serverKey, ...rest] = unpack(data), last = 2 ** 53, million = 2 ** 20, width = { ring32: 4, ring64: 8 }[group];
  demand(kind === 1 && version === 1 && !rest.length && [task, group, scope].every((each) => typeof each === "string") &&
    [noise, bounds, promise].every(Array.isArray) && [question, check, proxyKey, serverKey].every((each) => isBytes(each) && each.length === 32) &&
    !equal(proxyKey, serverKey), "a round");
  const [by, law, size, ...more] = noise, [events, each, levels, epsilon, delta, totals = "", ...others] = promise;
  demand(["", "totals"].includes(totals) && !others.length && [[events, 1, million], [each, 1, events], [levels, 1, 100], [level, 0, levels - 1],
    [cells, 1, million], [closes, 1, last], [opens, 0, closes - 1], [skew, 0, last], [parties, 1, last], [smallestBatch, 1, parties],
  ].every(isWhole), "a round that holds together");
  demand(by === "servers" && !more.length && ["discrete-laplace", "discrete-gaussian"].includes(law) && !bounds.length && width,
    "a kind of round that is supported", "UNSUPPORTED");
  return { task, cells, question, width, opens, closes, skew, law, size: fraction(size), events, each, levels, epsilon: fraction(epsilon),
    delta: fraction(delta), totals, inAll: totals ? events : 2 * events, proxyKey, serverKey, digest: await sha256(data) };
}

/** Whether the noise keeps the promise, and Python would say so; docs/statistics.md says why. */
export function isPromiseKept({ law, size, each, levels, epsilon, delta, inAll }) {
  const noise = valueOf(size), count = Math.ceil(inAll / each) * levels, all = count * noise, limit = 0.9998 * valueOf(epsilon);
  const chance = valueOf(delta), end = 12 * Math.sqrt(all), middle = (count * each) / 2;
  if (!(limit > 1e-7 && limit < 1e6 && count <= 2 ** 17)) return false;
  if (law === "discrete-laplace")
    return !chance && noise > 1e-6 && noise < 24e3 && BigInt(inAll * levels) * size[1] * epsilon[1] <= size[0] * epsilon[0];
  if (!(noise >= 9 && all <= 1e9 && count <= 4096 && limit < 50 && chance >= 1e-15 && chance < 1 && (each < 2 || noise < 1e6))) return false;
  let found = 0;
  for (let x = Math.ceil(Math.max(-end, (limit * noise) / each - middle)); x < end; x++)
    found -= Math.exp((-x * x) / 2 / all) * Math.expm1(limit - (each * (x + middle)) / noise);
  return found <= chance * Math.sqrt(2 * Math.PI * all);
}

const isRising = (list) => list.every((each, at) => !at || list[at - 1] < each);

/** Contexts and, at each, campaigns. Counted are contexts, then clicks of campaigns, then impressions without one. */
export async function readQuestion(data, round) {
  const [kind, version, levels, ...columns] = unpack(data);
  demand(kind === 2 && version === 1 && columns.length === 3 && columns.every((each) => isBytes(each) && each.length % 8 === 0) &&
    Array.isArray(levels) && levels.length && levels.every((level) => isWhole([level, 0, 2 ** 31 - 1])), "a question");
  const [nodes, offsets, ads] = columns.map(({ buffer }) => Array.from(new BigUint64Array(buffer), Number));
  demand(nodes.length && isRising(nodes) && offsets.length === nodes.length + 1 && offsets[0] === 0 && offsets.at(-1) === ads.length &&
    nodes.every((_, at) => offsets[at] <= offsets[at + 1] && isRising(ads.slice(offsets[at], offsets[at + 1]))) &&
    [...nodes, ...ads].every(Number.isSafeInteger), "contexts and campaigns that rise");
  demand(equal(await sha256(data), round.question) && nodes.length + 2 * ads.length === round.cells && !(round.totals && ads.length),
    "the question that the round names", "CONFLICT");
  return { levels, nodes, offsets, ads };
}

/** At most so many events, in their order: those with the smallest words drawn for them. */
export function chooseEvents(events, most) {
  const noted = events.slice(-8192), words = crypto.getRandomValues(new BigUint64Array(noted.length));
  const last = words.slice().sort()[most - 1];
  return noted.filter((_, at) => !(words[at] > last)).slice(0, most);
}

/** Counts, none above `each`. @param {(levels: number[], context: any[]) => Promise<number>} nodeOf */
export async function answerQuestion({ levels, nodes, offsets, ads }, events, nodeOf, each) {
  const counts = Array(nodes.length + 2 * ads.length).fill(0);
  for (const { context, campaign, clicked } of events) {
    const place = nodes.indexOf(await nodeOf(levels, context)), entry = ads.slice(offsets[place], offsets[place + 1]).indexOf(campaign);
    if (place >= 0) counts[place]++;
    if (entry >= 0) counts[nodes.length + offsets[place] + entry + (clicked ? 0 : ads.length)]++;
  }
  return counts.map((count) => Math.min(count, each));
}

function bin(bytes) {
  const { length } = bytes, long = (length > 255) + (length > 65535);
  return concat([0xc4 + long, ...[length >> 24, length >> 16, length >> 8, length].slice(-(2 ** long))], bytes);
}

/** A report: the proxy can open the counts less a mask, the server the mask's seed.
 * @param {{id, key, proxyKey, serverKey}} device as it was enrolled, and whom it knows @returns {Promise<{id, data}>} */
export async function makeUpload(round, values, device) {
  demand(equal(round.proxyKey, device.proxyKey) && equal(round.serverKey, device.serverKey), "the known parties", "UNAUTHENTICATED");
  demand(isPromiseKept(round), "noise that keeps the promise", "PROMISE_NOT_KEPT");
  demand(values.length === round.cells && values.every((each) => isWhole([each, 0, round.each])) &&
    values.reduce((sum, each) => sum + each, 0) <= round.inAll, "counts within the promise");
  const id = random(16), seed = random(32), binding = concat(round.digest, id), wide = round.width > 4;
  const key = await subtle.importKey("raw", await sha256("tacit gather mask 1", [6], "counts", seed, binding), "AES-CTR", false, ["encrypt"]);
  const stream = { name: "AES-CTR", counter: new Uint8Array(16), length: 128 };
  const mask = await subtle.encrypt(stream, key, new Uint8Array(round.cells * round.width)), words = new (wide ? BigUint64Array : Uint32Array)(mask);
  values.forEach((each, at) => (words[at] = (wide ? BigInt(each) : each) - words[at]));
  const sealed = (plain, role) => seal(plain, round[role + "Key"], concat(`tacit gather seal 1 ${role} `, binding));
  const parts = [round.digest, id, device.id, await sealed(new Uint8Array(mask), "proxy"), await sealed(seed, "server")];
  const signed = concat([0x98, 3, 1], ...parts.map(bin), [0xc4, 32]);
  const signing = await subtle.importKey("raw", device.key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return { id, data: concat(signed, new Uint8Array(await subtle.sign("HMAC", signing, concat("tacit gather report 1 ", signed)))) };
}

/** Answer a scheduled round from the journal's events; whether the proxy took it. What counts is drawn once and leaves the log before
 * anything is sent, and is deleted when that has arrived. @param {{id, key, proxyKey, serverKey, most, mostDelta, levels, nodeOf}} device
 * `most`: the largest epsilon @param {(path: string, data: Uint8Array) => Promise<string>} send gives the refusal's name, or "" */
export async function answerRound([data, asked], device, journal, send) {
  const round = await readRound(data), question = await readQuestion(asked, round), { digest } = round, key = "r" + round.task;
  const known = device.levels.some((each) => `${each}` === `${question.levels}`);
  const allowed = valueOf(round.epsilon) <= device.most && valueOf(round.delta) <= (device.mostDelta ?? 1e-6);
  if (!known || !allowed || !/^menu-rates-\d+$/.test(round.task) || !isPromiseKept(round)) return false;
  const keep = (upload) => journal.transact(async (rows) => {
    const before = await rows.get(key), noted = before ? [] : await rows.all("e");
    const row = before ?? { key, digest, events: chooseEvents(noted, round.events) };
    if (row.events) row.upload ??= upload;
    await rows.put(row);
    for (const each of noted) await rows.delete(each.key);
    return row;
  });
  let kept = await keep();
  if (!kept.events || !equal(kept.digest, digest)) return false;
  kept = await keep(await makeUpload(round, await answerQuestion(question, kept.events, device.nodeOf, round.each), device));
  if (!kept.upload) return false;
  const refused = await send(`/rounds/${hex(digest)}/reports/${hex(kept.upload.id)}`, kept.upload.data);
  if (refused !== "TOO_EARLY") await journal.transact((rows) => rows.put({ key }));
  return !refused;
}
