// The console: signing in, views by the address's fragment, and refreshing what is shown while somebody looks.

import { changeCampaign } from "./changes.js";
import { h, update } from "./dom.js";
import { NotSignedIn, Refused, Session, Unreachable } from "./session.js";
import { campaigns, pacing } from "./views/campaigns.js";
import { invoices } from "./views/invoices.js";
import { menus } from "./views/menus.js";
import { alerts, overview } from "./views/overview.js";
import { cohorts, ledger, rounds, versions } from "./views/privacy.js";

/**
 * @typedef {object} Shown what a view is drawn with
 * @property {string} find what was typed to narrow a list down
 * @property {string} rest of the path, behind the view's own name
 * @property {number} width of the content, in pixels
 * @property {boolean} mayChange
 * @property {import("./session.js").Who} who
 *
 * @typedef {object} View
 * @property {string} path
 * @property {string} title
 * @property {(who: import("./session.js").Who) => boolean} seenBy
 * @property {boolean} [finds]
 * @property {(session: Session, shown: { find: string, rest: string }) => Promise<any>} load
 * @property {(data: any, shown: Shown) => (Node | null | false)[]} draw
 */

const REFRESH_MS = 10_000;
const OVER = "Your key no longer holds: it expired or was revoked. Sign in with another.";
const TYPING_MS = 250;
/** @type {View[]} */
const VIEWS = [overview, campaigns, pacing, menus, cohorts, ledger, rounds, versions, invoices, alerts];

const session = new Session();
const app = /** @type {HTMLElement} */ (document.getElementById("app"));
const state = {
  /** @type {any} */ data: null,
  /** @type {string} */ shownAt: "",
  /** @type {Date | null} */ asOf: null,
  /** @type {string} */ trouble: "",
  /** @type {string} */ note: "",
  /** @type {string} */ find: "",
  /** @type {boolean} */ allows: false,
  alerts: 0,
};
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let turn = 0;

function place() {
  const [path, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const seen = VIEWS.filter((view) => session.who && view.seenBy(session.who));
  const view = seen.find((each) => each.path === path) ?? overview;
  return { view, seen, rest: decodeURIComponent(view.path === path ? rest.join("/") : "") };
}

/** Told to who listens instead of looking. @param {string} words */
function say(words) {
  const place = /** @type {HTMLElement} */ (document.getElementById("said"));
  if (place.textContent !== words) place.textContent = words;
}

async function refresh() {
  clearTimeout(timer);
  if (!session.who || document.hidden) return;
  const { view, rest } = place();
  const mine = ++turn;
  const at = `${view.path}/${rest}`;
  try {
    const data = await view.load(session, { find: view.finds ? state.find : "", rest });
    if (mine !== turn) return;
    const isNew = state.shownAt !== at;
    if (state.trouble) say("The console is up to date again.");
    else if (isNew) say(`${view.title} is shown.`);
    Object.assign(state, { data, shownAt: at, asOf: new Date(), trouble: "" });
  } catch (problem) {
    if (mine !== turn) return;
    if (problem instanceof NotSignedIn) {
      leave(OVER);
      return;
    }
    if (!(problem instanceof Unreachable || problem instanceof Refused)) throw problem;
    if (state.shownAt !== at) state.data = null;
    if (problem instanceof Refused) Object.assign(state, { data: null, shownAt: at });
    state.trouble = problem.message;
    say(problem.message);
  }
  draw();
  timer = setTimeout(refresh, REFRESH_MS);
}

function draw() {
  const { who } = session;
  if (!who) return;
  const { view, seen, rest } = place();
  document.title = `${view.title} · tacit`;
  if (!document.getElementById("content")) app.replaceChildren();
  const width = contentWidth();
  const data = state.shownAt === `${view.path}/${rest}` ? state.data : null; // never another view's
  const shown = { find: state.find, rest, width, mayChange: state.allows && who.changes, who };
  update(app, [
    h(
      "div",
      { class: "shell" },
      navigation(view, seen, who),
      h(
        "main",
        { id: "content", tabindex: -1 },
        h("header", {}, h("h1", {}, view.title), status()),
        who.synthetic &&
          h(
            "p",
            { class: "synthetic" },
            "A made-up market: campaigns, devices and all figures here are synthetic.",
          ),
        state.note && h("p", { class: "noted" }, state.note),
        data
          ? h("div", { class: "view", "data-key": view.path + rest }, view.draw(data, shown))
          : h("p", { class: "empty" }, state.trouble || "Loading…"),
      ),
    ),
  ]);
  hintAtWidth();
}

/** As wide as content may be: asked of the page where it stands, else worked out as the stylesheet does. */
function contentWidth() {
  const there = document.querySelector("#content > header");
  return Math.floor(there ? there.getBoundingClientRect().width : Math.min(1120, innerWidth - 40));
}

function hintAtWidth() {
  for (const box of document.querySelectorAll(".wide")) {
    box.parentElement?.classList.toggle("overflows", box.scrollWidth > box.clientWidth + 1);
  }
}

function status() {
  const at = state.asOf ? `${state.asOf.toISOString().slice(11, 19)} UTC` : "";
  if (state.trouble && state.data)
    return h("p", { class: "asof stale" }, `${state.trouble} What you see is from ${at}; trying again.`);
  return h("p", { class: "asof" }, at && `as of ${at}`);
}

/** @param {View} view @param {View[]} seen @param {import("./session.js").Who} who */
function navigation(view, seen, who) {
  if (state.data?.alerts) state.alerts = state.data.alerts.length;
  const whose = who.advertiser ?? { operator: "Operator", viewer: "Viewer" }[who.role] ?? who.role;
  return h(
    "nav",
    { "aria-label": "Views" },
    h(
      "div",
      { class: "rail" },
      h("p", { class: "brand" }, "tacit"),
      h(
        "ul",
        {},
        seen.map((each) =>
          h(
            "li",
            {},
            h(
              "a",
              { href: `#/${each.path}`, "aria-current": each === view ? "page" : null },
              each.title,
              each === alerts && state.alerts > 0 && h("span", { class: "badge" }, state.alerts),
            ),
          ),
        ),
      ),
      h(
        "p",
        { class: "picker" },
        h("label", { for: "view", class: "unseen" }, "View"),
        h(
          "select",
          { id: "view", "data-input": "view", "data-value": view.path },
          seen.map((each) => h("option", { value: each.path, selected: each === view }, each.title)),
        ),
      ),
      h(
        "div",
        { class: "account" },
        h(
          "p",
          {},
          h("strong", {}, whose),
          h("span", {}, "key ", h("code", { title: who.key_id }, who.key_id.slice(0, 8))),
        ),
        who.changes &&
          h(
            "p",
            { class: "switch" },
            h("input", {
              id: "allow",
              type: "checkbox",
              role: "switch",
              "data-input": "allow",
              checked: state.allows,
            }),
            h("label", { for: "allow" }, "Allow changes"),
          ),
        h("button", { type: "button", "data-action": "leave" }, "Sign out"),
      ),
    ),
  );
}

/** @param {string} words */
function leave(words) {
  turn += 1;
  clearTimeout(timer);
  session.forget();
  Object.assign(state, {
    data: null,
    shownAt: "",
    asOf: null,
    trouble: "",
    note: "",
    find: "",
    allows: false,
    alerts: 0,
  });
  signIn(words);
}

/** @param {string} words */
function signIn(words) {
  document.title = "Sign in · tacit";
  app.replaceChildren(
    h(
      "main",
      { id: "content", class: "gate", tabindex: -1 },
      h("p", { class: "brand" }, "tacit"),
      h("h1", {}, "Console"),
      h(
        "form",
        { id: "sign-in", autocomplete: "off" },
        h("label", { for: "key" }, "Access key"),
        h("input", {
          id: "key",
          type: "password",
          required: true,
          autocomplete: "off",
          spellcheck: "false",
          placeholder: "tacit_…",
          "aria-describedby": "key-words key-trouble",
        }),
        h("p", { id: "key-trouble", class: "trouble", role: "alert" }, words),
        h("button", { type: "submit", class: "main" }, "Sign in"),
      ),
      h(
        "p",
        { id: "key-words", class: "muted" },
        "An operator's key sees all, an advertiser's its own. Who runs the ad server gives them out; a demonstration has one in its folder, in ",
        h("code", {}, "operator.key"),
        ". The key stays in this tab until you sign out or close it.",
      ),
    ),
  );
  document.getElementById("key")?.focus();
}

/** @param {string} key */
async function enter(key) {
  try {
    await session.signIn(key);
  } catch (problem) {
    const words =
      problem instanceof NotSignedIn
        ? "This key does not hold: it is misspelled, expired or revoked."
        : problem instanceof Error
          ? problem.message
          : "";
    const place = document.getElementById("key-trouble");
    if (place) place.textContent = words;
    document.getElementById("key")?.focus();
    return;
  }
  draw();
  document.getElementById("content")?.focus();
  await refresh();
}

/** @param {HTMLElement} button */
async function act(button) {
  const { action, campaign } = button.dataset;
  if (action === "leave") return leave("");
  if (action === "skip") return document.getElementById("content")?.focus();
  try {
    if (action === "verify") {
      await session.send("POST", "/ads/console/verification");
      state.note = "";
    } else if (action === "pause" || action === "resume" || action === "budget") {
      const row = state.data.campaigns.find((/** @type {any} */ each) => String(each.campaign) === campaign);
      state.note = (await changeCampaign(session, action, row)) ?? state.note;
    }
  } catch (problem) {
    if (problem instanceof NotSignedIn) return leave(OVER);
    state.note = problem instanceof Error ? problem.message : "It could not be done.";
  }
  if (state.note) say(state.note);
  await refresh();
}

document.addEventListener("submit", (event) => {
  if (!(event.target instanceof HTMLFormElement) || event.target.id !== "sign-in") return;
  event.preventDefault();
  const input = /** @type {HTMLInputElement} */ (document.getElementById("key"));
  if (input.value.trim()) enter(input.value);
});
document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("[data-action]") : null;
  if (!(button instanceof HTMLElement)) return;
  event.preventDefault();
  act(button);
});
/** @type {ReturnType<typeof setTimeout> | undefined} */
let typing;
document.addEventListener("input", (event) => {
  const input = event.target;
  if (!(input instanceof HTMLInputElement || input instanceof HTMLSelectElement)) return;
  if (input.dataset.input === "view") location.hash = `#/${input.value}`;
  if (input.dataset.input === "allow" && input instanceof HTMLInputElement) {
    state.allows = input.checked;
    say(input.checked ? "Changes are allowed until you switch them off or leave." : "Changes are off.");
    draw();
  }
  if (input.dataset.input === "find") {
    state.find = input.value.trim();
    clearTimeout(typing);
    typing = setTimeout(refresh, TYPING_MS);
  }
});
addEventListener("hashchange", () => {
  if (!session.who) return;
  Object.assign(state, { data: null, shownAt: "", find: "", note: "" });
  draw();
  scrollTo(0, 0);
  refresh();
});
addEventListener("resize", () => session.who && draw());
document.addEventListener("visibilitychange", () => session.who && !document.hidden && refresh());

/** Go on with the key that a reload found, as soon as the server answers. */
async function resume() {
  try {
    await session.resume();
  } catch (problem) {
    if (problem instanceof NotSignedIn) return leave(OVER);
    if (!(problem instanceof Error)) throw problem;
    app.replaceChildren(
      h(
        "main",
        { id: "content", class: "gate" },
        h("h1", {}, "Console"),
        h("p", {}, `${problem.message} Trying again.`),
      ),
    );
    setTimeout(resume, REFRESH_MS);
    return;
  }
  draw();
  await refresh();
}

if (session.hasKey) resume();
else signIn("");
