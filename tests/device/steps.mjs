/** What a page does in test_browser.py: each export is a step, called by its name. */

/** Open this origin's device in a worker. */
export async function openDevice(options) {
  const { openTacit } = await import("/device/tacit.js");
  window.told = [];
  const onMessage = (message) => told.push(message);
  window.tacit = await openTacit({ settings: "/device/parties.json", onMessage, ...options });
}

/** Show an ad in an element of the page; what is known of it here. */
export async function show(id, context) {
  return { ...(await tacit.show(document.getElementById(id), context)), creatives: null };
}

/** Try to show one where nobody sees it; what is said, and what was spent before and after. */
export async function showDetached(context) {
  const before = await tacit.account();
  const said = await tacit.show(document.createElement("div"), context).catch(({ message }) => message);
  return [said, before.localMicros, (await tacit.account()).localMicros];
}

/** Begin to show two at once. */
export function showTwo(context) {
  window.shown = Promise.all(["ad", "other"].map((id) => show(id, context)));
}

/** What the journal says of this origin's impressions. */
export async function records() {
  const { openJournal } = await import("/device/journal.js"), [{ name }] = await indexedDB.databases();
  const found = await (await openJournal(name)).all("i");
  return found.map(({ state, epsilonMicros = 0, key }) => ({ state, epsilon: epsilonMicros, key }));
}

/** A script of the page that wants more than one choice is: it spoils what the page has, listens, and asks whatever it can. */
export async function attack(context) {
  const heard = [], asked = new Map();
  let worker;
  const { Worker: Own } = window;
  window.Worker = class extends Own {
    constructor(...given) {
      super(...given);
      worker = this;
      this.addEventListener("message", ({ data }) => (heard.push(data), asked.get(data.id)?.(data)));
    }
  };
  crypto.getRandomValues = (array) => array.fill(0);
  Math.random = () => 0;
  window.fetch = () => Promise.reject(new Error("nothing leaves by the page"));
  Object.prototype.demonstration = Object.prototype.consent = Object.prototype.message = true;
  await openDevice({ consent: true });
  const raw = (call, ...args) => new Promise((done) => {
    const id = `raw ${asked.size}`;
    asked.set(id, done);
    worker.postMessage({ id, call, args });
  });
  const refused = [];
  for (const call of ["pmf", "journal", "constructor", "__proto__", "toString"]) refused.push((await raw(call, context)).error?.reason);
  const limits = { local: 600, central: 600, perChoice: 60, delta: 1e-6, windowSeconds: 1 };
  refused.push((await raw("open", { settings: { version: 1, limits, demonstration: true } })).error?.reason);

  const drawn = new Set();
  for (let times = 20; times; times--) {
    const { ad, campaign } = await tacit.choose(context);
    drawn.add(campaign);
    await tacit.putBack(ad);
  }
  const again = { drawn: drawn.size, spent: (await tacit.account()).localMicros };
  const { ad } = await tacit.choose(context), counted = [];
  for (let times = 5; times; times--) counted.push(await tacit.confirmShown(ad).then(() => true, () => false));
  await tacit.sendReports();

  const lanes = [];
  for (let times = 10; times; times--) {
    lanes.push((await tacit.choose(context)).lane);
    await tacit.setConsent(false);
    await tacit.setConsent(true);
  }
  delete Object.prototype.demonstration;
  delete Object.prototype.consent;
  delete Object.prototype.message;
  const { localMicros } = await tacit.account(), words = JSON.stringify(heard.filter((each) => !Object.hasOwn(each, "message")));
  return { refused, again, counted: counted.every(Boolean), lanes, spent: localMicros, words };
}

/** Three devices at once on one journal, without locks. */
export async function showWithoutLocks(context) {
  Object.defineProperty(navigator, "locks", { value: undefined });
  const modules = ["device", "journal", "choice"].map((name) => import(`/device/${name}.js`));
  const [{ AdDevice, httpChannel }, { openJournal }, { candidates }] = await Promise.all(modules);
  const settings = await (await fetch("/device/parties.json")).json(), channel = httpChannel(settings.proxy.url);
  const rates = (menu) => candidates(menu).map((_, rank) => 0.01 * (rank + 1));
  const devices = await Promise.all([1, 2, 3].map(async () => new AdDevice(settings, await openJournal("three"), channel, rates, true)));
  const shown = await Promise.all(devices.map((device) => device.show(context)));
  await Promise.all(devices.map((device) => device.sendReports()));
  const drawn = (await devices[0].journal.all("i")).filter(({ index }) => index !== undefined);
  const name = ({ nonce }) => [...nonce].join();
  return {
    drawn: drawn.length,
    spent: (await devices[0].account()).localMicros,
    states: drawn.map(({ state }) => state),
    same: shown.every((ad) => drawn.find((each) => name(each) === name(ad)).index === ad.index),
  };
}

/** Two tabs' journals on one database. */
export async function tryJournal() {
  const { openJournal } = await import("/device/journal.js");
  const [first, second] = [await openJournal("test"), await openJournal("test")];
  const nonce = new Uint8Array(32), other = nonce.map(() => 1), reasonOf = (call) => call.then(() => null, ({ reason }) => reason);
  const record = (state, more) => ({ state, nonce, menuId: nonce, epoch: 1, expires: 9, secret: nonce, blinded: nonce, ...more });
  const head = { epoch: 1, expires: 9, body: nonce, data: nonce };
  await first.commit([record("NEW")]);
  const reasons = await Promise.all([first, second].map((each, index) => reasonOf(each.commit([record("ISSUED", { index })]))));
  const half = await reasonOf(first.commit([record("CHOSEN"), record("SHOWN", { nonce: other })], null, [{ key: "m1" }]));
  const [kept, ...others] = await second.all("i");
  await first.keepHead(head);
  const conflict = await reasonOf(second.keepHead({ ...head, body: other }));
  const gone = await second.erase(), left = await Promise.all(["i", "m", "h"].map(async (kind) => (await first.all(kind)).length));
  return { reasons, half, conflict, gone, left, others: others.length, kept: [kept.state, kept.index, "blinded" in kept, kept.secret instanceof Uint8Array] };
}
