/** Plays one device against running parties, on a journal in a file. Reads what to do as JSON, and says what became of it.
 *
 * {settings, file, seen, contexts, ahead, dieAt, likes, waitSeconds}: ads that were on the screen are noted in `seen`; `dieAt` is a state whose
 * keeping is the last thing that the process does, or "render"; `likes` is the public rank that its person likes best. */
import { appendFileSync, existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { deserialize, serialize } from "node:v8";

import { hex } from "../../device/bytes.js";
import { candidates } from "../../device/choice.js";
import { AdDevice, httpChannel } from "../../device/device.js";
import { Journal, memoryRows } from "../../device/journal.js";

const DIED = 9;
const { settings, file, seen, contexts, ahead, dieAt, likes, waitSeconds } = JSON.parse(readFileSync(0));

function fileRows() {
  const rows = new Map(existsSync(file) ? deserialize(readFileSync(file)) : []), transact = memoryRows(rows);
  return async (act) => {
    let wrote = false, reached = false;
    const found = await transact((on) =>
      act({
        ...on,
        put(row) {
          wrote = true;
          reached ||= row.state === dieAt;
          return on.put(row);
        },
        delete(key) {
          wrote = true;
          return on.delete(key);
        },
      }));
    if (wrote) {
      writeFileSync(`${file}.new`, serialize([...rows]));
      renameSync(`${file}.new`, file);
    }
    if (reached) process.exit(DIED);
    return found;
  };
}

const rates = (menu) => candidates(menu).map((_, rank) => (rank === likes ? 0.09 : 0.001));
const messages = [];
const device = new AdDevice(settings, new Journal(fileRows()), httpChannel(settings.proxy.url, ({ kind, bytes }) => messages.push([kind, bytes?.length ?? 0])), rates, true);

function render({ nonce, index, priceMicros, campaign, lane, epsilonMicros, creatives }) {
  appendFileSync(seen, JSON.stringify({ nonce: hex(nonce), index, priceMicros, campaign, lane, epsilonMicros, title: creatives[0].title }) + "\n");
  if (dieAt === "render") process.exit(DIED);
}

device.now = () => Math.floor(Date.now() / 1000) + ahead;
await device.recover();
for (const context of contexts) await device.show(context, render);
const sent = await device.sendReports();
let settled, bySize = 0, inFull = 0;
for (const end = Date.now() + 1000 * waitSeconds; ; ) {
  settled = await device.settle();
  bySize += settled.bySize;
  inFull += settled.inFull;
  if (!settled.waiting || Date.now() > end) break;
  await new Promise((done) => setTimeout(done, 100));
}
const { localMicros, centralMicros } = await device.account();
const records = (await device.journal.all("i")).map(({ state, nonce, index, epsilonMicros }) => ({ state, nonce: hex(nonce), index, epsilonMicros }));
console.log(JSON.stringify({ sent, bySize, inFull, waiting: settled.waiting, localMicros, centralMicros, records, messages }));
