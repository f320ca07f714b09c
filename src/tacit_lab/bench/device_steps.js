/** What the device suite does in a page, or where it is run as a worker, there: imported from the ad server's origin. */
const HERE = ["Northport", "Coffee"];
const MENU_ID = new Uint8Array(32);
const MOST_TOKENS = 16; // of one request
const PLENTY = { local: 1000, central: 1000 };
const PROFILE = { clicks: Array.from({ length: 12 }, (_, at) => [1 + (at % 4), HERE]), levels: [[1, 1]] };

/** What the parties tell devices, with limits by which every ad is a private choice. */
async function readSettings() {
  const parties = await (await fetch("/device/parties.json")).json();
  return { ...parties, prefetch: MOST_TOKENS, limits: { ...parties.limits, ...PLENTY } };
}

/** Opens the client and shows ads one after the other, between marks of the browser's trace. */
export async function showAds(count) {
  performance.mark("tacit-bench-open");
  const { openTacit } = await import("/device/tacit.js");
  const settings = await readSettings();
  const tacit = await openTacit({ settings, consent: true, context: HERE, profile: PROFILE });
  await tacit.setConsent(true);
  const { entries } = await tacit.plan(HERE), lanes = [];
  performance.mark("tacit-bench-show");
  for (let shown = 0; shown < count; shown++) lanes.push((await tacit.show(document.querySelector("#ad"))).lane);
  performance.mark("tacit-bench-end");
  return { candidates: entries.length, lanes };
}

/** A device of its own in this thread, its journal in the browser's database. */
async function openDevice(journal) {
  const [{ AdDevice, httpChannel }, { openJournal }, { historyRates, withRequest }, { generalise }] = await Promise.all(
    ["device", "journal", "models", "contexts"].map((name) => import(`/device/${name}.js`)),
  );
  const settings = await readSettings(), here = generalise(settings.hierarchy, HERE, settings.disclosure.levels);
  const { clicks, levels } = PROFILE, empty = { levels, strength: 4, most: 1000, requests: [] };
  const history = clicks.reduce((before, [campaign]) => withRequest(before, campaign, here), empty);
  const rates = (menu, context) => historyRates(history, menu, context);
  return new AdDevice(settings, await openJournal(journal), httpChannel(settings.proxy.url), rates, true);
}

/** Milliseconds of turns whose tokens are there: choose, confirm, make the report. Reports leave between them. */
async function takeTurns(count) {
  const device = await openDevice("bench-turns"), times = [], lanes = [];
  await device.show(HERE); // the menu and its ads are there from now on
  while (times.length < count) {
    for (let left = Math.min(await device.prefetch(HERE), count - times.length); left; left--) {
      performance.mark(`tacit-bench-turn-${times.length}`);
      const began = performance.now(), ad = await device.choose(HERE);
      await device.confirmShown(ad);
      times.push(performance.now() - began);
      performance.mark(`tacit-bench-turned-${times.length - 1}`);
      lanes.push(ad.lane);
    }
    await device.sendReports();
  }
  return { times, lanes, candidates: (await device.look(HERE)).menu.entries.length };
}

/** How often each candidate was chosen, and of how many of 2^64 words, in decimals. */
async function countChoices(count) {
  const { choose, deviceScores, pmf } = await import("/device/choice.js"), { generalise } = await import("/device/contexts.js");
  const device = await openDevice("bench-choices"), { menu, plan } = await device.look(HERE);
  const here = generalise(device.settings.hierarchy, HERE, device.settings.disclosure.levels);
  const scores = deviceScores(menu, device.rates(menu, here)), counts = scores.map(() => 0);
  for (let drawn = 0; drawn < count; drawn++) counts[choose(plan, scores)]++;
  return { counts, words: pmf(plan, scores).map(String) };
}

/** One of the two above, in a worker. */
export function inWorker(step, count) {
  const worker = new Worker(import.meta.url, { type: "module" });
  return new Promise((resolve, reject) => {
    worker.onerror = ({ message }) => reject(new Error(message || "the worker failed"));
    worker.onmessage = ({ data: { value, error } }) => (error ? reject(new Error(error)) : resolve(value));
    worker.postMessage([step, count]);
  }).finally(() => worker.terminate());
}

const numberOf = (bytes) => BigInt(`0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`);
const bytesOf = (number) => Uint8Array.from(number.toString(16).padStart(512, "0").match(/../g), (two) => parseInt(two, 16));
const unspell = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));

/** A signer's answer; nobody's time is measured here. */
function signBlinded(blinded, exponent, modulus) {
  let power = 1n, base = numberOf(blinded);
  for (let left = exponent; left; left >>= 1n) {
    if (left & 1n) power = (power * base) % modulus;
    base = (base * base) % modulus;
  }
  return bytesOf(power);
}

/** Milliseconds of drawing, blinding and finalizing a token, ours and the peer's in turns; both check what comes out. */
export async function takeTokenTurns(rounds) {
  const ours = await import("/device/tokens.js"), { RSABSSA } = await import("/bench/peer.js");
  const kind = { name: "RSA-PSS", hash: "SHA-384", modulusLength: 2048, publicExponent: Uint8Array.of(1, 0, 1) };
  const { publicKey, privateKey } = await crypto.subtle.generateKey(kind, true, ["sign", "verify"]);
  const { n, d } = await crypto.subtle.exportKey("jwk", privateKey), modulus = unspell(n), key = [numberOf(unspell(d)), numberOf(modulus)];
  const suite = RSABSSA.SHA384.PSS.Randomized(), times = { ours: [], theirs: [] };
  for (let round = -2; round < rounds; round++) {
    let began = performance.now();
    const token = await ours.drawToken(modulus, MENU_ID), drawn = performance.now() - began;
    const signature = signBlinded(token.blinded, ...key);
    began = performance.now();
    await ours.finalize(modulus, MENU_ID, token.nonce, signature, token.inverse);
    const own = drawn + performance.now() - began;

    began = performance.now();
    const message = suite.prepare(ours.tokenMessage(new Uint8Array(), MENU_ID)), { blindedMsg, inv } = await suite.blind(publicKey, message);
    const blinded = performance.now() - began, answer = signBlinded(blindedMsg, ...key);
    began = performance.now();
    await suite.finalize(publicKey, message, answer, inv);
    const peers = blinded + performance.now() - began;
    if (round < 0) continue; // not warm yet
    times.ours.push(own);
    times.theirs.push(peers);
  }
  return times;
}

if (globalThis.WorkerGlobalScope) {
  const steps = { takeTurns, countChoices };
  onmessage = ({ data: [step, count] }) =>
    steps[step](count).then((value) => postMessage({ value }), ({ message }) => postMessage({ error: message }));
}
