/** The page's side: asks the worker, and shows what it says. The page is not trusted: by these calls its scripts cannot read what a choice
 * went by (but in a demonstration), draw an ad again, or spend more than the account has. But storage is by origin, and the journal can be
 * read by whoever shares this one: where that is too much, put it in a frame of an origin of its own.
 *
 * const tacit = await openTacit({ settings: "/device/parties.json", consent: true, context: ["Northport", "Coffee"] });
 * await tacit.show(document.querySelector("#ad")); */
import { decideConsent, watchConsent } from "./consent.js";

const CALLS = "account choose confirmShown putBack noteClick prefetch sendReports settle answerRounds setProfile erase plan pmf journal".split(" ");

// A frame's document: it loads nothing, runs nothing, and links open tabs of their own.
const FRAME = `<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer"><base target="_blank">`;

/** Calls of a device in a worker, or in this process where there are no workers. */
async function connect(workerUrl, onMessage) {
  const waiting = new Map();
  const hear = ({ data }) => {
    if (Object.hasOwn(data, "message")) return onMessage?.(data.message);
    const { id, ok, value, error } = data, [resolve, reject] = waiting.get(id);
    waiting.delete(id);
    ok ? resolve(value) : reject(Object.assign(new Error(error.message), error));
  };
  let post, last = 0;
  if (globalThis.Worker) {
    const worker = new Worker(workerUrl ?? new URL("./worker.js", import.meta.url), { type: "module" });
    worker.onmessage = hear;
    const fail = ([, reject]) => reject(new Error("the worker failed"));
    worker.onerror = () => {
      waiting.forEach(fail);
      waiting.clear();
      post = ({ id }) => (fail(waiting.get(id)), waiting.delete(id));
    };
    post = (asked) => worker.postMessage(asked);
  } else {
    const { serveDevice } = await import("./worker.js");
    post = serveDevice((data) => hear({ data }));
  }
  return (call, ...args) =>
    new Promise((...ends) => {
      waiting.set(++last, ends);
      post({ id: last, call, args });
    });
}

const make = (name, properties) => Object.assign(document.createElement(name), properties);

/** Show a creative in an element, labelled as an ad; nothing of it runs here. */
function render(element, { campaign, creatives }, label, onclick) {
  element.replaceChildren();
  if (campaign === null) return;
  const creative = creatives.findLast((each) => each.width <= element.clientWidth) ?? creatives[0];
  if (!creative) throw new Error("expected an ad to show");
  const { media, title, text, address, content, width, height } = creative;
  if (new URL(address).protocol !== "https:") throw new Error("expected an address of https");
  let shown = make("a", { href: address, target: "_blank", rel: "noopener noreferrer", referrerPolicy: "no-referrer", onclick });
  if (content && media === "text/html") {
    shown = make("iframe", { title, sandbox: "allow-popups allow-popups-to-escape-sandbox", referrerPolicy: "no-referrer" });
    shown.srcdoc = FRAME + new TextDecoder().decode(content);
  } else if (content && /^image\/(png|jpeg|gif|webp|avif)$/.test(media)) {
    const src = URL.createObjectURL(new Blob([content], { type: media }));
    const done = () => URL.revokeObjectURL(src);
    shown.append(make("img", { src, alt: title, width, height, onload: done, onerror: done }));
  } else shown.append(make("strong", { textContent: title }), " ", text);
  element.append(make("small", { textContent: label }), " ", shown);
}

/** Open this origin's device. `consent` is the person's own, off by default; a signal of the page (TCF, GPP, GPC) that says no wins.
 * @param {{settings: string|object, consent?: boolean, workerUrl?: string|URL, context?: any[], profile?: object, journal?: string,
 * label?: string, onMessage?: (message: object) => void}} options */
export async function openTacit(options) {
  const { settings, consent, workerUrl, context, profile, journal, label = "Ad", onMessage } = { __proto__: null, ...options };
  const call = await connect(workerUrl, onMessage), opened = await call("open", { settings, profile, journal });
  let agreed = consent === true, signals = {};
  const apply = () => {
    const { personal, why } = decideConsent({ ...signals, vendor: opened.vendor });
    return call("setConsent", agreed && (personal || why === "UNSAID"));
  };
  if (globalThis.document) watchConsent(window, (found) => (signals = found) && apply().catch(() => {}));
  else await apply();
  const tacit = {
    ...opened,
    setConsent: (on) => (agreed = on === true, apply()),
    /** One ad in an element; counted as shown only where the element is in the page. A click stays on the device. */
    async show(element, at = context) {
      const ad = await call("show", at);
      try {
        render(element, ad, label, () => void call("noteClick", ad.ad).catch(() => {}));
        if (!element.isConnected) throw new Error("expected an element in the page");
      } catch (error) {
        await call("putBack", ad.ad);
        throw error;
      }
      await call("confirmShown", ad.ad).catch((error) => {
        element.replaceChildren(); // what does not count is not shown
        throw error;
      });
      call("sendReports").catch(() => {});
      return ad;
    },
  };
  for (const name of CALLS) tacit[name] = (...args) => call(name, ...args);
  return tacit;
}
