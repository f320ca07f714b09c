/** The worker's side: a device behind messages {id, call, args}, answered by {id, ok, value | error}. Only these calls are taken.
 * Nonces and tokens stay here: the page knows an ad by a number. */
import { demand } from "./bytes.js";
import { deviceScores, pmf } from "./choice.js";
import { AdDevice, httpChannel } from "./device.js";
import { hasJournal, Journal, memoryRows, openJournal } from "./journal.js";
import { historyRates, loadModel, modelRates, withRequest } from "./models.js";

/** A device that is called by messages; `post` takes the answers, and {message} for each that leaves the device. */
export function serveDevice(post) {
  const ads = [];
  let device, passing, kept, make, name, rates, recovered, turn = Promise.resolve();
  const calls = {
    async open({ settings, profile, journal }) {
      demand(!device && settings, "a device that is not open yet, and its settings");
      const load = async () => (await fetch(settings, { credentials: "omit", referrerPolicy: "no-referrer" })).json();
      const said = settings.proxy ? settings : await load().catch(() => {});
      demand(said?.version === 1 && said.server?.signing && said.proxy?.url, "settings of version 1");
      const channel = httpChannel(said.proxy.url, (message) => post({ message }));
      make = (rows) => new AdDevice(said, rows, channel, (menu, context) => rates(menu, context));
      name = journal ?? `tacit ${said.server.signing.slice(0, 16)}`; // of this ad server alone
      device = passing = make(new Journal(memoryRows()));
      calls.setProfile(profile);
      return { vendor: said.vendor, demonstration: said.demonstration };
    },
    async show(context) {
      const own = device, { nonce, menuId, index, ...ad } = await own.choose(context);
      return { ...ad, ad: ads.push([own, { nonce }]) - 1 };
    },
    /** What was spent in the window that it is now. */
    async account() {
      const { localMicros, centralMicros, limits, choices } = (await (kept ?? device).account()).at(device.now());
      return { localMicros, centralMicros, limits, choices: choices.length };
    },
    /** Nothing is stored while the person does not agree: another device, whose journal is in memory, shows what everybody is shown. What was
     * stored before is reported and forgotten all the same. NOT_STORED: the browser keeps no journal, so nothing is chosen by it. */
    setConsent: (consent) => (turn = turn.catch(() => {}).then(async () => {
      const before = device;
      device = passing;
      if (consent) {
        kept ??= make(await openJournal(name));
        await kept.setConsent(true);
        device = kept;
        recovered ??= kept.recover().then(() => kept.forget()).catch(() => {});
      } else if (before === kept) await kept.setConsent(false);
      else if (await stored().catch(() => {})) kept.sendReports().then(() => kept.forget()).catch(() => {});
    })),
    /** What the person's own rates come from, which stays here: a model of tacit's and what it reads of them, or what was clicked where:
     * [campaign or null, exact context], the oldest first. */
    setProfile({ model, row, clicks = [], levels = [], strength = 4, most = 1000 } = {}) {
      demand(Array.isArray(clicks) && Array.isArray(levels), "lists of clicks and levels");
      const read = model && loadModel(new Uint8Array(model)), none = { levels, strength, most, requests: [] };
      const history = clicks.reduce((before, [campaign, context]) => withRequest(before, campaign, here(context)), none);
      rates = (menu, context) => (read ? modelRates(read, row, menu) : historyRates(history, menu, context));
    },
    erase: async () => (calls.setProfile(), await stored(), both((each) => each.erase())),
    sendReports: () => both((each) => each.sendReports()),
    settle: () => both((each) => each.settle()),
    async plan(context) {
      const { menu, plan } = await device.look(context);
      return { entries: menu.entries, epsilonMicros: menu.epsilonMicros, plan };
    },
    /** The journal's rows of a kind, and how likely each candidate is: what tells of the person only a demonstration has. */
    async journal(kind) {
      demand(device.settings.demonstration, "a demonstration");
      return (await Promise.all([kept, passing].map((each) => each?.journal.all(kind)))).flatMap((rows) => rows ?? []);
    },
    async pmf(context) {
      demand(device.settings.demonstration, "a demonstration");
      const { menu, plan } = await device.look(context);
      return plan && pmf(plan, deviceScores(menu, device.rates(menu, here(context)))).map((words) => Number(words) / 2 ** 64);
    },
  };
  calls.choose = calls.show;
  for (const call of ["confirmShown", "putBack", "noteClick"]) {
    calls[call] = (ad) => {
      const [own, known] = demand(ads[ad], "an ad that was handed out");
      return own[call](known);
    };
  }
  calls.prefetch = (context) => device.prefetch(context);
  calls.answerRounds = (enrolled) => device.answerRounds(demand(enrolled?.id && enrolled.key && enrolled, "what the app was enrolled with"));
  /** The device whose journal was stored before, by this worker or another; none where none is. */
  const stored = async () => (kept ??= (await hasJournal(name)) ? make(await openJournal(name)) : undefined);
  /** Of both devices: numbers and lists of what they say, put together. */
  const both = async (act) => {
    const [one, other] = await Promise.all([kept ?? passing, kept && passing].filter(Boolean).map(act));
    const add = (a, b) => (b === undefined ? a : Array.isArray(a) ? [...a, ...b] : a + b);
    return one?.constructor === Object ? Object.fromEntries(Object.entries(one).map(([name, each]) => [name, add(each, other?.[name])])) : add(one, other);
  };
  const here = (context) => device.generalise(context);
  return async ({ id, call, args }) => {
    try {
      demand(Object.hasOwn(calls, call) && (device || call === "open"), "a call of an open device");
      if (call !== "setConsent") await turn.catch(() => {});
      post({ id, ok: true, value: await calls[call](...args) });
    } catch ({ reason = "FAILED", message }) {
      post({ id, ok: false, error: { reason, message } });
    }
  };
}

if (globalThis.WorkerGlobalScope) {
  const serve = serveDevice((answer) => postMessage(answer));
  onmessage = ({ data }) => serve(data);
}
