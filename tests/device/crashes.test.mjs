/** A device that dies, and a network that loses, at every point: nothing is drawn, spent or reported twice.
 *
 * The same short life is lived again and again. Each time one write of the journal or one call fails, before or after it has had its
 * effect; then a device starts anew on what was kept, with other rates, by which a choice that was drawn again would come out otherwise. */
import assert from "node:assert/strict";
import test from "node:test";

import { hex } from "../../device/bytes.js";
import { Journal, memoryRows } from "../../device/journal.js";
import { NEW, OLD, ratesOf, Town, TWO } from "./town.mjs";

class PowerCut extends Error {}

/** Transactions of which the write at one place is the last thing that the device does. */
function failing(transact, fault) {
  return (act) => {
    let writes = false;
    const told = transact((rows) => {
      const writing = (name) => (...args) => {
        if (!writes && fault.passed++ === fault.at && fault.when === "before") throw new PowerCut();
        writes = true;
        return rows[name](...args);
      };
      return act({ ...rows, put: writing("put"), delete: writing("delete") });
    });
    return told.then((found) => {
      if (writes && fault.passed - 1 === fault.at && fault.when === "after") throw new PowerCut();
      return found;
    });
  };
}

/** What a person sees of one device, over its restarts. */
class Life {
  constructor(town, transact = memoryRows()) {
    Object.assign(this, { town, transact, shown: [] });
    this.journal = new Journal(transact);
  }

  async live(rates, fault) {
    const journal = fault ? new Journal(failing(this.transact, fault)) : this.journal, { town } = this;
    const device = town.device({ journal, rates: ratesOf(...rates), prefetch: 1 });
    try {
      await device.recover();
      for (const context of [OLD, NEW]) {
        await device.show(context, (ad) => this.render(ad));
        await device.sendReports();
      }
      await town.bill();
      await device.settle();
    } catch (error) {
      if (!(error instanceof PowerCut) && error.reason !== "UNREACHABLE") throw error;
    }
    return device;
  }

  /** What is drawn on the screen was kept before, and paid for. */
  async render(ad) {
    this.shown.push(ad);
    const kept = await this.journal.get("i" + hex(ad.nonce));
    assert.deepEqual([kept.state, kept.index], ["CHOSEN", ad.index]);
    assert.ok((await this.journal.get("account")).choices.length);
  }

  /** Start anew, with other rates, and live to the end. */
  async finish() {
    this.town.lose = () => false;
    const device = await this.live([0.09, 0.001, 0.001]);
    for (const ad of (await device.recover()).pending) {
      this.shown.push(ad);
      await device.confirmShown(ad);
    }
    await device.sendReports();
    await this.town.bill();
    await device.settle();
    return device;
  }

  async check(device) {
    const records = await this.journal.all("i"), byNonce = new Map(records.map((each) => [hex(each.nonce), each]));
    for (const { nonce, index } of this.shown) assert.equal(byNonce.get(hex(nonce)).index, index, "never drawn again");
    const seen = new Set(this.shown.map(({ nonce }) => hex(nonce)));
    const settled = records.filter(({ state }) => state === "SETTLED");
    assert.ok(settled.every(({ nonce }) => seen.has(hex(nonce))), "nothing is reported that was not shown");
    assert.ok(records.every(({ state }) => ["NEW", "ISSUED", "SETTLED"].includes(state)), "all that was drawn is settled");
    assert.equal(this.town.reports.size, settled.length);
    for (const { nonce, index } of settled) assert.equal(this.town.reports.get(hex(nonce)).index, index, "charged as it was shown");
    assert.equal(new Set(this.town.sent).size, settled.length, "the same bytes each time");
    const drawn = records.filter(({ index }) => index !== undefined);
    assert.equal((await device.account()).localMicros, TWO * drawn.length, "all that was drawn, and nothing else");
    assert.ok(seen.size <= 4 && seen.size >= 2, "two in each life");
  }
}

for (const when of ["before", "after"]) {
  test(`the device dies ${when} each write`, async () => {
    for (let at = 0, met = true; met; at++) {
      const life = new Life(await Town.open()), fault = { at, when, passed: 0 };
      await life.live([0.01, 0.09, 0.02], fault);
      met = fault.passed > at;
      await life.check(await life.finish());
      assert.ok(met || at >= 14, `expected a longer life, got ${at} writes`);
    }
  });

  test(`the network loses each call ${when} it arrives`, async () => {
    for (let at = 0, met = true; met; at++) {
      const town = await Town.open(), life = new Life(town);
      met = false;
      town.lose = (_, count) => count === at && (met = true) && when;
      await life.live([0.01, 0.09, 0.02]);
      await life.check(await life.finish());
      assert.ok(met || at >= 10, `expected a longer life, got ${at} calls`);
    }
  });
}

test("a device that breaks the rules is caught", async () => {
  const forgetful = (skips) => {
    const transact = memoryRows();
    return (act) => transact((rows) => act({ ...rows, put: (row) => skips(row) || rows.put(row) }));
  };
  const paysNothing = new Life(await Town.open(), forgetful(({ key }) => key === "account"));
  await assert.rejects(async () => paysNothing.check(await paysNothing.finish()));
  const drawsAgain = new Life(await Town.open(), forgetful(({ state }) => state === "CHOSEN"));
  await assert.rejects(async () => drawsAgain.check(await drawsAgain.finish()));
});
