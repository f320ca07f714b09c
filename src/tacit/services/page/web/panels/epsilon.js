// What epsilon buys, on a dial: how far one look can move a guess, and what is left of the gain.

import { h, s } from "/console/dom.js";
import { percent } from "/console/format.js";

const START = 1;

/** @param {HTMLElement} root @param {import("../main.js").Env} env */
export async function epsilon(root, env) {
  const { charts } = await env.get("/page/data/frontier.json");
  const choice = charts.find((/** @type {any} */ each) => each.id === "choice");
  const ours = choice.lines.find((/** @type {any} */ each) => each.name === "tacit").points;
  const dial = /** @type {HTMLInputElement} */ (
    h("input", {
      id: "epsilon-dial",
      type: "range",
      min: 0,
      max: ours.length - 1,
      step: 1,
      value: ours.findIndex((/** @type {any} */ each) => each.epsilon === START),
    })
  );
  const shown = h("output", { for: "epsilon-dial" });
  const told = h("div", { class: "balance" });
  const turn = () => {
    const { epsilon, value } = ours[Number(dial.value)];
    const odds = Math.exp(epsilon) / (1 + Math.exp(epsilon));
    shown.textContent = String(epsilon);
    dial.setAttribute("aria-valuetext", `epsilon ${epsilon}`);
    const guess = (100 * odds).toFixed(odds > 0.99 ? 2 : 0);
    told.replaceChildren(
      row("A guess of 50 in 100 becomes at most", `${guess} in 100`, 0.5, odds, "risk"),
      row("Of what choosing freely would gain, an ad keeps", percent(value), 0, value, "gain"),
    );
  };
  dial.addEventListener("input", turn);
  turn();
  root.append(
    h("p", { class: "dial" }, h("label", { for: "epsilon-dial" }, "Epsilon"), dial, shown),
    told,
    h(
      "p",
      { class: "source" },
      "For one choice. The first line is arithmetic and holds for any guess and any device; the second is from ",
      h("a", { href: "#frontier" }, "our study of choices"),
      `, ${choice.sources[0].data}.`,
    ),
  );
}

/** @param {string} words @param {string} figure @param {number} from @param {number} to @param {string} kind */
function row(words, figure, from, to, kind) {
  return h(
    "p",
    { class: kind },
    h("span", {}, words),
    h("strong", {}, figure),
    s(
      "svg",
      { class: "meter", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
      s("rect", { class: "whole", width: 100, height: 6 }),
      s("rect", { class: "before", width: 100 * from, height: 6 }),
      s("rect", { class: "used", x: 100 * from, width: (100 * (to - from)).toFixed(2), height: 6 }),
    ),
  );
}
