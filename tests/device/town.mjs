/** An ad server and a proxy in this process, for tests of the device: real keys and the same bytes, by this file alone.
 *
 * const town = await Town.open();            // an epoch with menus of both lanes for both quarters
 * const device = town.device();
 * await device.show(["Cafe"]);
 * await device.sendReports();
 * town.bill();                               // whatever waits becomes batches
 */
import { concat, equal, hex, Reader, refuse, VERDICTS, Writer } from "../../device/bytes.js";
import { AdDevice } from "../../device/device.js";
import { Journal, memoryRows } from "../../device/journal.js";
import { contextBytes, readContext } from "../../device/messages.js";
import { sha256 } from "../../device/seals.js";
import { verifyToken, tokenMessage, tokenNonce } from "../../device/tokens.js";

const { subtle } = crypto;
const raw = async (key) => new Uint8Array(await subtle.exportKey("raw", key));
const PARENTS = { "*": null, Old: "*", New: "*", Cafe: "Old", Bakery: "Old", Gym: "New", Pool: "New" };
const HIERARCHY = { version: 1, attributes: [{ name: "place", kind: "tree", sizes: [2, 1], parents: PARENTS }], levels: [[0], [1], [2]] };
export const LIMITS = { local: 20, central: 20, perChoice: 2, delta: 1e-6, windowSeconds: 365 * 86_400 };
export const OLD = ["Cafe"], NEW = ["Gym"];
export const TWO = 2_000_000;
export const TIMES = { opens: 10_000, closes: 20_000, expires: 30_000 };

/** Somebody's own rates, the same everywhere, and how often they were asked. */
export function ratesOf(...rates) {
  const found = () => (found.asked++, rates);
  found.asked = 0;
  return found;
}

const big = (bytes) => BigInt("0x" + hex(bytes));
const fromBig = (number, size) => Uint8Array.from(number.toString(16).padStart(2 * size, "0").match(/../g), (pair) => parseInt(pair, 16));

function power(base, exponent, modulus) {
  let found = 1n;
  for (; exponent; exponent >>= 1n, base = (base * base) % modulus) if (exponent & 1n) found = (found * base) % modulus;
  return found;
}

async function tokenKey() {
  const drawn = { name: "RSA-PSS", modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]), hash: "SHA-384" };
  const { n, d } = await subtle.exportKey("jwk", (await subtle.generateKey(drawn, true, ["sign", "verify"])).privateKey);
  const [modulus, exponent] = [n, d].map((each) => new Uint8Array(Buffer.from(each, "base64url")));
  return { modulus, sign: (blinded) => fromBig(power(big(blinded), big(exponent), big(modulus)), 256) };
}

async function hmac(key, ...parts) {
  const own = await subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await subtle.sign("HMAC", own, concat(...parts)));
}

/** Open a seal (RFC 9180, base mode). */
async function open({ privateKey, publicKey }, sealed, info) {
  const enc = sealed.slice(0, 32), kem = concat("KEM", [0, 32]), suite = concat("HPKE", [0, 32, 0, 1, 0, 1]), zeros = new Uint8Array(32);
  const theirs = await subtle.importKey("raw", enc, "X25519", false, []);
  const shared = new Uint8Array(await subtle.deriveBits({ name: "X25519", public: theirs }, privateKey, 256));
  const extract = (salt, of, label, material) => hmac(salt, "HPKE-v1", of, label, material);
  const expand = async (key, of, label, more, size) => (await hmac(key, [0, size], "HPKE-v1", of, label, more, [1])).slice(0, size);
  const secret = await expand(await extract(zeros, kem, "eae_prk", shared), kem, "shared_secret", concat(enc, await raw(publicKey)), 32);
  const context = concat([0], await extract(zeros, suite, "psk_id_hash", ""), await extract(zeros, suite, "info_hash", info));
  const scheduled = await extract(secret, suite, "secret", "");
  const key = await subtle.importKey("raw", await expand(scheduled, suite, "key", context, 16), "AES-GCM", false, ["decrypt"]);
  const iv = await expand(scheduled, suite, "base_nonce", context, 12);
  return new Uint8Array(await subtle.decrypt({ name: "AES-GCM", iv }, key, sealed.slice(32)));
}

async function signer() {
  const pair = await subtle.generateKey("Ed25519", true, ["sign", "verify"]);
  const sign = async (label, body) => new Uint8Array(await subtle.sign("Ed25519", pair.privateKey, concat(label, [0], body)));
  return { public: await raw(pair.publicKey), sign };
}

/** A menu's bytes. */
function spellMenu({ epoch, lane, node, entries, epsilonMicros, smallestCohort, mechanism = "trunc" }) {
  const writer = new Writer().u8(1).u32(epoch).u8(lane === "personal" ? 1 : 0).blob16(contextBytes(node)).text("second price per impression");
  writer.text(lane === "personal" ? mechanism : "public").u32(epsilonMicros).u32(smallestCohort).u64(0).f64(0).u8(255).f64(0).text("{}").u8(entries.length);
  for (const [campaign, price, bid, rate] of entries) writer.u64(campaign).u64(price).u64(bid).f64(rate).i64(-1);
  return writer.u16(0).done();
}

let KEYS; // drawn once: token keys take long

export class Town {
  static async open(options = {}) {
    KEYS ??= {
      server: await signer(), proxy: await signer(), tokens: [await tokenKey(), await tokenKey()],
      requests: await subtle.generateKey("X25519", true, ["deriveBits"]), reports: await subtle.generateKey("X25519", true, ["deriveBits"]),
    };
    const town = new Town();
    Object.assign(town, {
      now: 11_000, menus: new Map(), heads: new Map(), reports: new Map(), batches: [], calls: [], sent: [], tokens: Infinity,
      signed: new Map(), caps: [], lose: () => false, statementsOf: new Map(), ...options,
    });
    await town.openEpoch(1, TIMES);
    const { server, proxy, requests } = KEYS;
    town.settings = {
      version: 1, proxy: { url: "http://localhost:1", signing: hex(proxy.public) },
      server: { signing: hex(server.public), sealing: hex(await raw(requests.publicKey)) },
      hierarchy: HIERARCHY, disclosure: { levels: [1] }, limits: LIMITS, vendor: null, demonstration: false, prefetch: 2,
    };
    return town;
  }

  async openEpoch(epoch, { opens, closes, expires }, change = {}) {
    const leaves = [];
    const entries = [[1, 45_000, 1_000_000, 0.05], [2, 44_000, 950_000, 0.05], [3, 0, 1_100_000, 0.04]];
    for (const name of ["New", "Old"]) {
      for (const lane of ["public", "personal"]) {
        const node = { levels: [1], values: [name] }, isPersonal = lane === "personal", key = KEYS.tokens[+isPersonal];
        const said = { epoch, lane, node, entries: isPersonal ? entries : entries.slice(0, 1), epsilonMicros: isPersonal ? TWO : 0, smallestCohort: 1 };
        const data = spellMenu({ ...said, ...(isPersonal ? change : {}) }), id = await sha256("tacit/menu/1", data);
        const leaf = new Writer().blob16(contextBytes(node)).u8(+isPersonal).raw(id).raw(key.modulus).u32(change.smallestCohort && isPersonal ? change.smallestCohort : 1).done();
        leaves.push({ ...said, data, id, key, hash: await sha256([0], leaf) });
      }
    }
    const [a, b, c, d] = leaves.map(({ hash }) => hash), left = await sha256([1], a, b), right = await sha256([1], c, d);
    const paths = [[b, right], [a, right], [d, left], [c, left]];
    leaves.forEach((leaf, place) => this.menus.set(hex(leaf.id), { ...leaf, place, path: paths[place] }));
    const body = new Writer().u8(1).u32(epoch).u64(opens).u64(closes).u64(expires).u32(4).raw(await sha256([1], left, right)).raw(await raw(KEYS.reports.publicKey)).done();
    const byServer = await KEYS.server.sign("tacit/epoch/1", body);
    const data = concat(body, byServer, await KEYS.proxy.sign("tacit/epoch/1/countersigned", concat(body, byServer)));
    this.heads.set(epoch, { epoch, opens, closes, expires, data });
    return data;
  }

  device({ journal = new Journal(memoryRows()), rates = ratesOf(0.01, 0.09, 0.02), consent = true, channel = this.channel(), ...settings } = {}) {
    const device = new AdDevice({ ...this.settings, ...settings }, journal, channel, rates, consent);
    device.now = () => this.now;
    return device;
  }

  /** A device's way to both parties. `town.lose(kind, count)` says "before" or "after" where a call, or its answer, is lost. */
  channel() {
    const call = (kind, act) => async (...args) => {
      const fate = this.lose(kind, this.calls.push(kind) - 1);
      if (fate === "before") refuse("UNREACHABLE", "lost");
      const found = await act(...args);
      if (fate === "after") refuse("UNREACHABLE", "lost");
      return found;
    };
    return {
      head: call("head", async () => {
        const found = [...this.heads.values()].filter(({ opens, closes }) => opens <= this.now && this.now < closes).at(-1);
        return (this.otherHead ?? found ?? refuse("STALE_EPOCH", "no epoch is open")).data;
      }),
      offer: call("offer", (sealed) => this.#offer(sealed)),
      report: call("report", (report, nonce) => this.#report(report, nonce)),
      statement: call("statement", async (nonce) => {
        if (!this.reports.has(hex(nonce))) refuse("UNKNOWN_MENU", "no such report");
        return this.statementsOf.get(hex(nonce)) ?? null;
      }),
      statements: call("statements", async (epoch) => concat(...this.batches.filter((each) => each.epoch === epoch).map(({ data }) => data))),
      pack: call("pack", (menuId) => this.#pack(menuId)),
    };
  }

  async #offer(sealed) {
    const reader = new Reader(await open(KEYS.requests, sealed, "tacit/request/1"));
    reader.u8();
    const epoch = reader.u32(), lane = ["public", "personal"][reader.u8()], answerKey = reader.raw(32), known = reader.raw(32);
    const length = reader.u8(), node = readContext(reader.raw(160).slice(0, length)), rest = reader.rest();
    const blinded = Array.from({ length: rest.length / 256 }, (_, at) => rest.slice(256 * at, 256 * at + 256));
    this.asked = [...(this.asked ?? []), { epoch, lane, node, blinded: blinded.map(hex) }];
    const body = this.#answer(epoch, lane, node, blinded, known);
    const iv = crypto.getRandomValues(new Uint8Array(12)), key = await subtle.importKey("raw", answerKey, "AES-GCM", false, ["encrypt"]);
    const plain = new Writer().blob32(body).done(), padded = concat(plain, new Uint8Array(-(plain.length + 28) & 255));
    return concat(iv, new Uint8Array(await subtle.encrypt({ name: "AES-GCM", iv, additionalData: concat("tacit/request/1") }, key, padded)));
  }

  #answer(epoch, lane, node, blinded, known) {
    const refusal = (name) => new Writer().u8(1).u8(VERDICTS.indexOf(name)).done();
    const head = this.heads.get(epoch);
    if (!head || this.now < head.opens - 60 || this.now >= head.closes + 60 || this.stale === epoch) return refusal("STALE_EPOCH");
    const menu = [...this.menus.values()].find((each) => each.epoch === epoch && each.lane === lane && equal(contextBytes(each.node), contextBytes(node)));
    if (!menu || (lane === "personal" && this.publicOnly)) return refusal("UNKNOWN_CONTEXT");
    const fresh = blinded.filter((each) => !this.signed.has(hex(each)));
    const left = typeof this.tokens === "number" ? this.tokens : this.tokens[lane];
    if (fresh.length > left) return refusal("NONE_LEFT");
    if (typeof this.tokens !== "number") this.tokens[lane] -= fresh.length;
    for (const each of fresh) this.signed.set(hex(each), menu.key.sign(each));
    const signatures = blinded.map((each) => this.signed.get(hex(each)));
    const writer = new Writer().u8(1).u8(0).u8(signatures.length);
    for (const each of signatures) writer.raw(this.badSignatures ? each.map((byte) => byte ^ 1) : each);
    if (equal(known, menu.id)) return writer.u8(0).done();
    writer.u8(1).blob32(this.otherMenu?.(menu) ?? menu.data).raw(menu.key.modulus).u32(menu.place).u8(menu.path.length);
    for (const each of menu.path) writer.raw(each);
    return writer.done();
  }

  /** As the proxy takes a report, and the ad server redeems it. */
  async #report(report, nonce) {
    this.sent.push(hex(report));
    if (this.verdict) refuse(this.verdict, "as told");
    const reader = new Reader(report);
    reader.u8();
    const menuId = reader.raw(32), said = reader.raw(32), token = reader.raw(256), commitment = reader.raw(32), menu = this.menus.get(hex(menuId));
    if (!equal(said, nonce) || report.length !== 434) refuse("MALFORMED", "another report");
    if (!(await verifyToken(menu.key.modulus, tokenMessage(nonce, menuId), token))) refuse("FORGED", "no token");
    const before = this.reports.get(hex(nonce));
    if (before && !equal(before.report, report)) refuse("CONFLICT", "another report");
    if (!before && this.now >= this.heads.get(menu.epoch).expires) refuse("EXPIRED", "too late");
    const opened = new Reader(await open(KEYS.reports, reader.rest(), concat("tacit/report/1", menuId, nonce)));
    const secret = opened.raw(32), index = opened.u8();
    if (!equal(await tokenNonce(secret), nonce) || !equal(await sha256("tacit/choice/1", secret, [index]), commitment)) refuse("WRONG_OPENING", "");
    this.reports.set(hex(nonce), { report, menuId, index, epoch: menu.epoch, price: index ? menu.entries[index - 1][1] : 0 });
    return null;
  }

  /** Let reports that wait leave, each menu's in a batch; `others` reports of others are in each. */
  async bill(others = 0) {
    const waiting = [...this.reports].filter(([nonce]) => !this.statementsOf.has(nonce));
    for (const id of new Set(waiting.map(([, { menuId }]) => hex(menuId)))) {
      const own = waiting.filter(([, { menuId }]) => hex(menuId) === id), { menuId, epoch } = own[0][1];
      const data = await this.statement(menuId, epoch, own.length + others);
      this.batches.push({ epoch, data });
      for (const [nonce] of own) this.statementsOf.set(nonce, data);
    }
  }

  async statement(menuId, epoch, reports) {
    const body = new Writer().u8(1).raw(crypto.getRandomValues(new Uint8Array(16))).raw(menuId).u32(epoch).u32(reports).done();
    return concat(body, await KEYS.proxy.sign("tacit/cohort/1", body));
  }

  async #pack(menuId) {
    const creative = (number) => ({ number, media: "text/plain", title: `ad ${number}`, text: "", address: "https://shop.example/", width: null, height: null, content: null });
    const campaigns = [1, 2, 3].map((number) => ({ number, caps: this.caps, categories: [`IAB${number}`], creatives: [creative(number)] }));
    const pack = JSON.stringify({ menu: hex(menuId), campaigns });
    return concat(JSON.stringify({ pack, signature: hex(await KEYS.server.sign("tacit/pack/1", concat(pack))) }));
  }

  /** What was charged: by menu and index. */
  charges() {
    const found = {};
    for (const { menuId, index } of this.reports.values()) found[`${hex(menuId)} ${index}`] = (found[`${hex(menuId)} ${index}`] ?? 0) + 1;
    return found;
  }
}
