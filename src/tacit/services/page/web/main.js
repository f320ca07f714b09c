// The page: loads what the ad server says of itself, draws the panels, and asks servers on their behalf.

import { h } from "/console/dom.js";
import { cleanroom } from "./panels/cleanroom.js";
import { epsilon } from "./panels/epsilon.js";
import { frontier } from "./panels/frontier.js";
import { ledger } from "./panels/ledger.js";
import { phone } from "./panels/phone.js";
import { rounds } from "./panels/rounds.js";
import { wallet } from "./panels/wallet.js";

/**
 * @typedef {object} Env what a panel is drawn with
 * @property {any} parties keys, addresses and limits of both parties; null where the server did not tell
 * @property {(path: string) => Promise<any>} get JSON of this server, or of another by its whole address
 * @property {(path: string, body: any) => Promise<any>} post
 * @property {any} device the device client, once a panel has opened it and put it here
 * @property {EventTarget} bus what panels tell each other
 *
 * @typedef {object} Panel
 * @property {string} id its place in the address
 * @property {string} title
 * @property {string} lead one sentence below the title
 * @property {(root: HTMLElement, env: Env) => void | Promise<void>} draw done when its first picture stands
 * @property {boolean} [half] takes half of a wide page
 * @property {boolean} [live] needs a market that is made up, which this server then runs
 */

/** @type {Panel[]} in the order of the page; a further panel is one import and one line here */
const PANELS = [
  {
    id: "phone",
    title: "A phone",
    lead: "The device’s real client runs in this page, against the real parties. The person is made up: change what they like, and see what each party gets to see of it.",
    draw: phone,
    live: true,
  },
  {
    id: "wallet",
    title: "Its wallet",
    lead: "Each private choice gives a little away, and the phone counts it before anything leaves. When a period’s epsilon is spent, private choices end.",
    draw: wallet,
    live: true,
  },
  {
    id: "ledger",
    title: "The ledger",
    lead: "What was shown is charged exactly, and nobody is told who saw it. Both sides’ sums meet here.",
    draw: ledger,
    live: true,
  },
  {
    id: "frontier",
    title: "Privacy against use",
    lead: "What each epsilon costs, by our own studies on made-up data. Hollow diamonds are figures that papers printed for theirs.",
    draw: frontier,
  },
  {
    id: "rounds",
    title: "A round of statistics",
    lead: "Devices count what they saw, two parties add it up and neither sees a single count. Turn the dials and see how far the estimate is from the truth.",
    draw: rounds,
    live: true,
  },
  {
    id: "cleanroom",
    title: "A clean room",
    lead: "A platform tunes its model to purchases that an advertiser keeps to itself. Derivatives go in, sums come out, and labels never leave.",
    draw: cleanroom,
  },
];
const FIRST_PICTURE_MS = 3000;

/** What went wrong, in one line for people. */
class Trouble extends Error {}

/**
 * JSON of a server; every request of the page that is not the device's own is made here.
 * @param {string} path
 * @param {any} [body] to be posted
 */
async function ask(path, body) {
  const who = path.startsWith("/") ? "The ad server" : "The proxy";
  const sent = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(path, body === undefined ? {} : sent);
  } catch {
    throw new Trouble(`${who} does not answer: is it running?`);
  }
  const told = await answer.json().catch(() => null);
  if (answer.ok && told !== null) return told;
  const why = told?.detail ?? told?.title ?? `${path} gave ${answer.ok ? "no JSON" : answer.status}`;
  throw new Trouble(`${who} refused: ${why}`);
}

/** @param {Panel} panel @param {Env} env */
async function section(panel, env) {
  const body = h("div", { class: "body" });
  const whole = h(
    "section",
    { id: panel.id, class: panel.half ? "panel half" : "panel", "aria-labelledby": `${panel.id}-title` },
    h("h2", { id: `${panel.id}-title` }, panel.title),
    h("p", { class: "lead" }, panel.lead),
    body,
  );
  const drawn = attempt(() => panel.draw(body, env), body);
  await Promise.race([drawn, new Promise((done) => setTimeout(done, FIRST_PICTURE_MS))]);
  return whole;
}

/** @param {() => void | Promise<void>} work @param {Element} place where it is told if it fails */
async function attempt(work, place) {
  try {
    await work();
  } catch (problem) {
    const words = problem instanceof Error ? problem.message : String(problem);
    place.append(h("p", { class: "trouble", role: "alert" }, words));
    if (!(problem instanceof Trouble)) throw problem;
  }
}

/** @param {Panel[]} panels */
function navigation(panels) {
  const links = panels.map((each) => h("li", {}, h("a", { href: `#${each.id}` }, each.title)));
  return h("nav", { "aria-label": "Panels" }, h("ul", {}, links));
}

/** Mark the panel that is being looked at. @param {HTMLElement} nav @param {HTMLElement[]} sections */
function follow(nav, sections) {
  const seen = new IntersectionObserver(
    (changes) => {
      for (const { isIntersecting, target } of changes) {
        const link = nav.querySelector(`a[href="#${target.id}"]`);
        if (isIntersecting) link?.setAttribute("aria-current", "true");
        else link?.removeAttribute("aria-current");
      }
    },
    { rootMargin: "-40% 0px -60% 0px" },
  );
  for (const each of sections) seen.observe(each);
}

/** Say where a table is wider than its box, whenever it is drawn or the page's width changes. @param {Element} root */
function hintAtWidth(root) {
  const measure = () => {
    const all = [...root.querySelectorAll(".wide")];
    const isWider = (/** @type {Element} */ box) => box.scrollWidth > box.clientWidth + 1;
    for (const box of all) box.parentElement?.classList.remove("narrow", "overflows");
    // Where a narrow first column is enough, nothing is left to scroll to.
    const narrow = all.filter(isWider);
    for (const box of narrow) box.parentElement?.classList.add("narrow");
    for (const box of narrow.filter(isWider)) box.parentElement?.classList.add("overflows");
    drawn.takeRecords();
  };
  const drawn = new MutationObserver(measure);
  drawn.observe(root, { childList: true, characterData: true, subtree: true, attributeFilter: ["class"] });
  new ResizeObserver(measure).observe(root);
}

async function start() {
  const content = /** @type {HTMLElement} */ (document.getElementById("content"));
  const top = /** @type {HTMLElement} */ (document.getElementById("epsilon"));
  /** @type {Env} */
  const env = { parties: null, get: ask, post: ask, device: null, bus: new EventTarget() };
  const trouble = h("div", {});
  await attempt(async () => {
    env.parties = await ask("/device/parties.json");
  }, trouble);
  const panels = PANELS.filter((each) => !each.live || env.parties?.demonstration !== false);
  const nav = navigation(panels);
  const [, ...sections] = await Promise.all([
    attempt(() => epsilon(top, env), top),
    ...panels.map((each) => section(each, env)),
  ]);
  // All at once, below what stood there already: nothing that somebody reads moves.
  content.append(
    trouble,
    nav,
    h("div", { id: "panels", class: "panels", tabindex: -1 }, ...sections),
    footer(),
  );
  follow(nav, sections);
  hintAtWidth(content);
  if (location.hash.length > 1) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

function footer() {
  return h(
    "footer",
    {},
    h(
      "p",
      {},
      "Nothing on this page comes from anywhere else. The same server has a ",
      h("a", { href: "/console" }, "console"),
      " for who runs it.",
    ),
  );
}

start();
