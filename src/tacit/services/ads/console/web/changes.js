// Changes: only after somebody switched them on, and each after a sentence that says what will happen.

import { h } from "./dom.js";
import { money } from "./format.js";

const MICROS = 1_000_000;

/**
 * Ask before something is changed; null where it was not confirmed.
 * @param {{ title: string, words: string, does: string, field?: { label: string, value: string } }} question
 * @returns {Promise<string | null>}
 */
export function confirm({ title, words, does, field }) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("dialog"));
  const input =
    field &&
    h("input", {
      id: "dialog-field",
      type: "text",
      inputmode: "decimal",
      value: field.value,
      autocomplete: "off",
    });
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "dialog-title" }, title),
    h("p", {}, words),
    field && h("p", { class: "finder" }, h("label", { for: "dialog-field" }, field.label), input),
    h(
      "p",
      { class: "buttons" },
      h("button", { type: "submit", value: "yes", class: "main" }, does),
      h("button", { type: "button", value: "no" }, "Leave it as it is"),
    ),
  );
  dialog.replaceChildren(form);
  return new Promise((resolve) => {
    const close = (/** @type {string | null} */ said) => {
      dialog.close();
      dialog.replaceChildren();
      resolve(said);
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      close(input ? /** @type {HTMLInputElement} */ (input).value : "yes");
    });
    form.querySelector("button[value=no]")?.addEventListener("click", () => close(null));
    dialog.oncancel = (event) => {
      event.preventDefault();
      close(null);
    };
    dialog.showModal();
  });
}

/** Micros of an amount as people write it; null where it is none. @param {string} text */
export function readAmount(text) {
  const spelled = text.trim().replaceAll(",", "");
  if (!/^\d{1,9}(\.\d{1,6})?$/.test(spelled)) return null;
  const [units, rest = ""] = spelled.split(".");
  return Number(units) * MICROS + Number(rest.padEnd(6, "0"));
}

/**
 * Pause, resume, or give another budget; what was done, in words, or null where nobody confirmed it.
 * @param {import("./session.js").Session} session
 * @param {"pause" | "resume" | "budget"} action
 * @param {any} row of the campaigns
 */
export async function changeCampaign(session, action, row) {
  const name = row.title ? `campaign ${row.campaign}, “${row.title}”` : `campaign ${row.campaign}`;
  const body = action === "budget" ? await askBudget(name, row) : await askStatus(name, action);
  if (body === null) return null;
  await session.send("PATCH", `/ads/campaigns/${row.campaign}`, body, { "if-match": `"${row.version}"` });
  if (action === "budget") return `The budget of ${name} was changed.`;
  return action === "pause" ? `Paused ${name}.` : `${name} runs again.`;
}

/** @param {string} name @param {"pause" | "resume"} action */
async function askStatus(name, action) {
  const pauses = action === "pause";
  const words = pauses
    ? "It is left out of menus from the next epoch on. What is out in menus now can still be shown and is charged."
    : "It takes part in menus again from the next epoch on, as long as it has money.";
  const said = await confirm({
    title: `${pauses ? "Pause" : "Resume"} ${name}?`,
    words,
    does: pauses ? "Pause it" : "Resume it",
  });
  return said === null ? null : { status: pauses ? "paused" : "active" };
}

/** @param {string} name @param {any} row */
async function askBudget(name, row) {
  const held = row.held_micros
    ? ` ${money(row.held_micros)} that is held is charged at once, as far as the new budget goes.`
    : "";
  const said = await confirm({
    title: `Another budget for ${name}?`,
    words: `What it may be charged in all, in currency units. It was charged ${money(row.charged_micros)} so far.${held}`,
    does: "Change the budget",
    field: { label: "Budget", value: row.budget_micros === null ? "" : String(row.budget_micros / MICROS) },
  });
  if (said === null) return null;
  const micros = readAmount(said);
  if (micros === null) throw new Error("Expected an amount such as 250 or 99.50: nothing was changed.");
  return { budget_micros: micros };
}
