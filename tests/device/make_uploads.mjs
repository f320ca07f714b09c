/** Makes uploads for rounds that Python opened, which come as JSON: for counts that are given, or from a log as a device answers them. */
import { readFileSync } from "node:fs";

import { hex, unhex } from "../../device/bytes.js";
import { AdDevice } from "../../device/device.js";
import { Journal, memoryRows } from "../../device/journal.js";
import { makeUpload, readRound } from "../../device/statistics.js";

const asked = JSON.parse(readFileSync(0, "utf8"));
const keys = { proxyKey: unhex(asked.proxyKey), serverKey: unhex(asked.serverKey) };

async function given({ round, values, id, key }) {
  const { id: report, data } = await makeUpload(await readRound(unhex(round)), values, { ...keys, id: unhex(id), key: unhex(key) });
  return { report: hex(report), data: hex(data) };
}

/** What a device sends for all rounds that a proxy lists, and what it then has left. */
async function answered({ rounds, events, id, key, hierarchy, most }) {
  const rows = new Map(events.map((event, at) => [`e${at}`, { key: `e${at}`, ...event }])), sent = [];
  const channel = { rounds: async () => unhex(rounds), count: async (path, data) => void sent.push({ path: `/${path}`, data: hex(data) }) };
  const party = (sealing) => ({ sealing, signing: "00".repeat(32) });
  const settings = { server: party(asked.serverKey), proxy: party(asked.proxyKey), hierarchy, statistics: { perRound: most } };
  const taken = await new AdDevice(settings, new Journal(memoryRows(rows)), channel).answerRounds({ id, key });
  return { sent, taken, left: [...rows.values()] };
}

const made = await Promise.all(asked.devices.map((each) => (each.values ? given(each) : answered(each))));
console.log(JSON.stringify(made));
