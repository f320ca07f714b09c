import assert from "node:assert/strict";
import { test } from "node:test";
import { generalise } from "../../device/contexts.js";
import { historyRates, loadModel, modelRates, scoreRow, withRequest } from "../../device/models.js";
import { menuOf, reasonOf, vectors } from "./choice_vectors.mjs";

const models = Object.entries(vectors.models).map(([name, { file, ...rest }]) => ({
  name, ...rest, data: new Uint8Array(Buffer.from(file, "base64")),
}));

test("rows score as in Python", () => {
  for (const { name, data, scores } of models) {
    const model = loadModel(data);
    assert.match(model.statement, /promise/, "what was promised is in the file");
    vectors.rows.forEach((row, at) => {
      const found = scoreRow(model, row);
      assert.ok(Math.abs(found - scores[at]) < 1e-6, `${name}, row ${at}: ${found}, expected ${scores[at]}`);
    });
    assert.ok(new Set(scores.map((each) => each.toFixed(6))).size > 4, "scores differ");
  }
});

test("NaN is a missing value", () => {
  for (const { data } of models) {
    const model = loadModel(data), missing = Object.fromEntries(Object.keys(vectors.rows[0]).map((key) => [key, null]));
    const nan = Object.fromEntries(Object.keys(missing).map((key) => [key, NaN]));
    assert.equal(scoreRow(model, nan), scoreRow(model, missing));
  }
});

test("rows that Python refuses are refused", async () => {
  for (const { name, data, bad } of models) {
    if (!bad) continue;
    for (const row of vectors.bad_rows) assert.equal(await reasonOf(() => scoreRow(loadModel(data), row)), "MALFORMED", name);
  }
});

test("another file is refused", async () => {
  const { data } = models[0];
  assert.equal(await reasonOf(() => loadModel(data.slice(0, 40))), "MALFORMED");
  const changed = new TextDecoder("latin1").decode(data).replace("device model 1", "device model 2");
  assert.equal(await reasonOf(() => loadModel(Uint8Array.from(changed, (each) => each.charCodeAt()))), "MALFORMED");
});

test("a history turns the server's rates into a person's own, as in Python", async () => {
  const { levels, most, strength, requests, menu, rates } = vectors.history;
  const { hierarchy } = vectors.contexts.tree, read = menuOf(menu);
  let history = { levels, most, strength, requests: [] };
  const never = history;
  for (const [context, ad] of requests) history = withRequest(history, ad, generalise(hierarchy, context, [3]));
  assert.equal(history.requests.length, most);
  for (const [context, server, own] of rates) {
    const at = generalise(hierarchy, context, [2]);
    assert.deepEqual(historyRates(never, read, at), server);
    historyRates(history, read, at).forEach((rate, rank) => assert.ok(Math.abs(rate - own[rank]) < 1e-15));
    assert.equal(await reasonOf(() => historyRates(history, read, { ...at, disclosed: at.path[0] })), "MALFORMED");
  }
});

test("a model's rates are those of a row with each candidate's number, and nothing is worth none", () => {
  const [{ data }] = models, model = loadModel(data), [row] = vectors.rows, column = model.columns[0].source;
  const read = { ...model, columns: [{ ...model.columns[0], source: "campaign" }, ...model.columns.slice(1)] };
  const menu = { entries: [{ campaign: 5 }, { campaign: 7 }], nothingRank: 1 };
  assert.deepEqual(modelRates(read, row, menu), [scoreRow(model, { ...row, [column]: 5 }), 0, scoreRow(model, { ...row, [column]: 7 })]);
});
