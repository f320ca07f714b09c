/** The worker's side: a device behind messages {id, call, args}, answered by {id, ok, value | error}. Only these calls are taken.
 * Nonces and tokens stay here: the page knows an ad by a number. */
import { demand } from "./bytes.js";
import { deviceScores, pmf } from "./choice.js";
import { AdDevice, httpChannel } from "./device.js";
import { Journal, memoryRows, openJournal } from "./journal.js";
import { historyRates, loadModel, modelRates, withRequest } from "./models.js";

/** A device that is called by messages; `post` takes the answers, and {message} for each that leaves the device. */
export function serveDevice(post) {
  const ads = [];
  let device, passing, kept, make, open, rates, turn = Promise.resolve();
  const calls = {
    async open({ settings, profile = {}, journal }) {
      demand(!device, "a device that is not open yet");
      const said = settings.proxy ? settings : await (await fetch(settings, { credentials: "omit", referrerPolicy: "no-referrer" })).json();
      demand(said.version === 1, "settings of version 1");
      const channel = httpChannel(said.proxy.url, (message) => post({ message }));
      make = (rows) => new AdDevice(said, rows, channel, (menu, context) => rates(menu, context));
      open = () => openJournal(journal);
      device = passing = make(new Journal(memoryRows()));
      calls.setProfile(profile);
      return { vendor: said.vendor, demonstration: said.demonstration };
    },
    async show(context) {
      const { nonce, menuId, index, ...ad } = await device.choose(context);
      return { ...ad, ad: ads.push([device, { nonce }]) - 1 };
    },
    /** What was spent in the window that it is now. */
    async account() {
      const { localMicros, centralMicros, limits, choices } = (await (kept ?? device).account()).at(device.now());
      return { localMicros, centralMicros, limits, choices: choices.length };
    },
    /** Nothing is stored while the person does not agree: another device, whose journal is in memory, shows what everybody is shown. */
    setConsent: (consent) => (turn = turn.catch(() => {}).then(async () => {
      if (!consent) return (device = passing), kept?.setConsent(false);
      const isNew = !kept;
      device = kept ??= make(await open());
      await kept.setConsent(true);
      if (isNew) kept.recover().then(() => kept.forget()).catch(() => {});
    })),
    /** What the person's own rates come from, which stays here: a model of tacit's and what it reads of them, or what was clicked where:
     * [campaign or null, exact context], the oldest first. */
    setProfile({ model, row, clicks = [], levels = [], strength = 4, most = 1000 }) {
      const read = model && loadModel(new Uint8Array(model)), none = { levels, strength, most, requests: [] };
      const history = clicks.reduce((before, [campaign, context]) => withRequest(before, campaign, here(context)), none);
      rates = (menu, context) => (read ? modelRates(read, row, menu) : historyRates(history, menu, context));
    },
    erase: () => (calls.setProfile({}), both((each) => each.erase())),
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
  for (const name of ["confirmShown", "putBack", "noteClick"]) calls[name] = (ad) => ads[ad][0][name](ads[ad][1]);
  for (const name of ["prefetch", "answerRounds"]) calls[name] = (context) => device[name](context);
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
