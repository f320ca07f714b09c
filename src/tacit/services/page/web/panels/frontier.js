// Privacy against use: what training, choosing and counting lose as epsilon falls, from the recorded studies.

import { h } from "/console/dom.js";
import { lineChart } from "../plots/lines.js";

/** @param {HTMLElement} root @param {import("../main.js").Env} env */
export async function frontier(root, env) {
  const { charts } = await env.get("/page/data/frontier.json");
  root.append(h("div", { class: "pair" }, charts.map(lineChart)));
}
