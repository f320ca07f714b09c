/** The journal of a device: every state of an impression is kept before the device acts on it. NEW: a secret was drawn and blinded; ISSUED:
 * its token was checked; CHOSEN: drawn, and paid for; SHOWN: its report is made; ACKED: the proxy has it; SETTLED: it is known among how
 * many it left, or never will be; CLOSED: it ended before, and is not charged. What a state no longer needs is not kept. */
import { demand, equal, hex, refuse } from "./bytes.js";

const AFTER = { NEW: "none", ISSUED: "NEW", CHOSEN: "ISSUED", SHOWN: "CHOSEN", ACKED: "SHOWN", SETTLED: "ACKED", CLOSED: "CHOSEN SHOWN" };
const HELD = { NEW: "secret blinded inverse", ISSUED: "secret token", CHOSEN: "secret token", SHOWN: "report" };

const answered = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = request.oncomplete = () => resolve(request.result);
    request.onerror = request.onabort = () => reject(request.error);
  });

/** Transactions on rows in memory, one after another. */
export function memoryRows(rows = new Map()) {
  const access = {
    get: (key) => rows.get(key),
    all: (kind) => [...rows.values()].filter(({ key }) => key.startsWith(kind)),
    put: (row) => rows.set(row.key, row),
    delete: (key) => rows.delete(key),
  };
  let last = Promise.resolve();
  return (act) => (last = last.then(() => act(access), () => act(access)));
}

/** Opened again where the browser has closed it, as it does when a site's data is cleared. */
const databaseRows = (database, open) => async (act) => {
  const begin = () => database.transaction("rows", "readwrite", { durability: "strict" });
  let transaction;
  try {
    transaction = begin();
  } catch {
    database = await open();
    transaction = begin();
  }
  const rows = transaction.objectStore("rows");
  const kept = answered(transaction);
  kept.catch(() => {});
  try {
    const found = await act({
      get: (key) => answered(rows.get(key)),
      all: (kind) => answered(rows.getAll(IDBKeyRange.bound(kind, kind + "~"))),
      put: (row) => answered(rows.put(row)),
      delete: (key) => answered(rows.delete(key)),
    });
    await kept;
    return found;
  } catch (error) {
    if (!transaction.error) transaction.abort();
    throw error;
  }
};

/** A journal in IndexedDB, in Node in memory. NOT_STORED: a browser keeps none here, and what was spent would be forgotten with the page. */
export async function openJournal(name) {
  if (!globalThis.location) return new Journal(memoryRows());
  const open = async () => {
    const opening = indexedDB.open(name, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("rows", { keyPath: "key" });
    const database = await answered(opening);
    database.onversionchange = () => database.close();
    return database;
  };
  return new Journal(databaseRows(await open().catch(() => refuse("NOT_STORED", "expected a database of this site")), open));
}

/** Whether this browser has such a journal; one that cannot tell has none. */
export async function hasJournal(name) {
  try {
    return !!globalThis.location && (await indexedDB.databases()).some((each) => each.name === name);
  } catch {
    return false;
  }
}

/** Rows by key: i impressions, s showings that count towards caps, e events and r rounds of statistics, m menus, h heads; the account, and the
 * last word on consent. */
export class Journal {
  constructor(transact) { this.transact = transact; }
  get(key) { return this.transact((rows) => rows.get(key)); }
  all(kind) { return this.transact((rows) => rows.all(kind)); }
  /** Impressions in some of these states, of one menu or of all. */
  async impressions(states, menuId) {
    return (await this.all("i")).filter((each) => states.includes(each.state) && (!menuId || equal(each.menuId, menuId)));
  }
  /** Keep records, the account and other rows, all or none. MOVED_ON: another tab was here, read again. */
  commit(records, account, more = []) {
    return this.transact(async (rows) => {
      const kept = records.map((record) => ({ ...record, key: "i" + hex(record.nonce) }));
      for (const row of kept) {
        const before = await rows.get(row.key);
        demand(AFTER[row.state].includes(before?.state ?? "none"), "the state before", "MOVED_ON");
        for (const name of "secret blinded inverse token report".split(" ")) if (!HELD[row.state]?.includes(name)) delete row[name];
      }
      if (account) {
        const before = await rows.get("account");
        demand(account.turn === (before?.turn ?? 0) + 1, "the account before", "MOVED_ON");
        kept.push({ key: "account", ...account.toJSON() });
      }
      for (const row of [...kept, ...more]) await rows.put(row);
    });
  }
  /** The first head that was ever kept for an epoch is the only one. */
  keepHead({ epoch, expires, body, data }) {
    return this.transact(async (rows) => {
      const key = "h" + epoch, first = await rows.get(key);
      demand(equal(first?.body ?? body, body), `one directory of epoch ${epoch}, got a second`, "CONFLICT");
      if (!first) await rows.put({ key, epoch, expires, body, data });
    });
  }
  /** Delete what expired before a second and is owed nothing, or no longer counts; how many impressions that were. */
  forget(now, before) {
    const needed = new Set();
    return this.erase("imhse", (row) => {
      const over = row.expires < before && !["SHOWN", "ACKED"].includes(row.state) && (row.state || !needed.has(row.epoch));
      if (row.state && !over) needed.add(row.epoch);
      return over || row.until <= now;
    });
  }
  /** Delete every impression, menu, showing and event. Account and heads stay, and that a round was answered. */
  erase(kinds = "imser", isOver = () => true) {
    return this.transact(async (rows) => {
      let gone = 0;
      for (const kind of kinds)
        for (const row of (await rows.all(kind)).filter(isOver)) {
          await (kind === "r" ? rows.put({ key: row.key }) : rows.delete(row.key));
          gone += kind === "i";
        }
      return gone;
    });
  }
}
