import assert from "node:assert/strict";
import { test } from "node:test";
import { contextNumber, generalise } from "../../device/contexts.js";
import { reasonOf, vectors } from "./choice_vectors.mjs";

test("contexts become less exact as in Python", async () => {
  for (const [name, { hierarchy, contexts, bad }] of Object.entries(vectors.contexts)) {
    for (const [context, expected] of contexts) {
      for (const [at, levels] of hierarchy.levels.entries()) {
        const { path, disclosed } = generalise(hierarchy, context, levels);
        assert.deepEqual(path.map(({ values }) => values), expected, name);
        assert.deepEqual(path.map((node) => node.levels), hierarchy.levels);
        assert.deepEqual(disclosed, { levels, values: expected[at] });
      }
      assert.equal(await reasonOf(() => generalise(hierarchy, context, [9, 9])), "MALFORMED");
    }
    for (const context of bad) {
      assert.equal(await reasonOf(() => generalise(hierarchy, context, hierarchy.levels.at(-1))), "MALFORMED", name);
    }
  }
});

test("a refusal never repeats what somebody's context is", async () => {
  const { hierarchy } = vectors.contexts.tree;
  await assert.rejects(async () => generalise(hierarchy, ["secret place"], [0]), (refusal) => !/secret/.test(refusal.message));
});

test("a published cut tells blocks as in Python, and refuses contexts that it does not list", async () => {
  const { hierarchy, cut, contexts, bad } = vectors.cut;
  const told = new Set();
  for (const [context, levels] of contexts) {
    assert.deepEqual(generalise(hierarchy, context, cut).disclosed.levels, levels);
    told.add(`${levels}`);
  }
  assert.ok(told.size > 1, "blocks of several levels");
  for (const context of bad) assert.equal(await reasonOf(() => generalise(hierarchy, context, cut)), "MALFORMED");
});

test("another version is refused", async () => {
  const { hierarchy, contexts: [[context]] } = vectors.contexts.tree;
  assert.equal(await reasonOf(() => generalise({ ...hierarchy, version: 2 }, context, [0])), "MALFORMED");
});

test("contexts have Python's numbers", async () => {
  for (const [levels, values, number] of vectors.context_numbers) assert.equal(await contextNumber({ levels, values }), number);
});
