"""The two-tower network against automatic differentiation of one example at a time."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tacit.arrays import Floats32, Ids
from tacit.data.splits import RowSet
from tacit.entropy import Simulation
from tacit.errors import BadInput
from tacit.train.examples import Examples, Sizes
from tacit.train.models import two_tower_network
from tacit.train.models.architectures import Mlp
from tacit.train.models.model import GradientSums, Part
from tacit.train.models.two_tower_network import TwoTowerNetwork

# Float32 against double: a sum of n products is off by about sqrt(n) 2^-24 of its terms, here below 2e-6.
CLOSE = 1e-5

SHAPES = [
    Mlp(dim=3, public_layers=(5,), common_layers=(6, 4), start=0.5),
    Mlp(dim=2, public_layers=(4, 7), common_layers=(5,), start=0.5),
    Mlp(dim=4, public_layers=(), common_layers=(6, 3), start=0.5),
    Mlp(dim=2, public_layers=(4,), common_layers=(), start=0.5),
    Mlp(dim=2, public_layers=(), common_layers=(), start=0.5),
]
# So few rows that most examples repeat one.
SIZES = Sizes(public_fields=4, sensitive_fields=3, public_rows=9, sensitive_rows=5)


def examples(sizes: Sizes, count: int, seed: int = 0) -> Examples:
    draw = np.random.default_rng(seed)
    public = draw.integers(0, sizes.public_rows, (count, sizes.public_fields), dtype=np.int32)
    sensitive = draw.integers(0, max(1, sizes.sensitive_rows), (count, sizes.sensitive_fields), dtype=np.int32)
    return Examples(public, sensitive, sizes, RowSet(slice(0, count)))


def network(shape: Mlp, sizes: Sizes = SIZES) -> TwoTowerNetwork:
    built = shape.build(sizes, Simulation(1).normal)
    for name, array in built.dense.items():
        if name.endswith("bias"):
            array[:] = Simulation(name).normal(array.shape, scale=0.1)
    return built


def zeros(model: TwoTowerNetwork) -> GradientSums:
    tables = {name: np.zeros_like(array) for name, array in model.tables.items()}
    return GradientSums(tables, {name: np.zeros_like(array) for name, array in model.dense.items()})


def ids_of(model: TwoTowerNetwork, count: int, part: Part) -> dict[str, Ids]:
    drawn = examples(model.sizes, count)
    return dict(model.ids(drawn, np.arange(count), part))


def residuals(count: int) -> Floats32:
    return np.random.default_rng(5).normal(size=count).astype(np.float32)


def summed(model: TwoTowerNetwork, ids: dict[str, Ids], weights: Floats32, part: Part) -> GradientSums:
    """The weighted sum of gradients, one example after another."""
    sums = zeros(model)
    for index in np.flatnonzero(weights).tolist():
        weight = weights[index]
        for name, gradient in model.example_gradient(ids, index, part).items():
            if name.endswith("]"):
                table, row = name[:-1].split("[")
                sums.tables[table][int(row)] += weight * gradient
            else:
                sums.dense[name][:] += weight * gradient
    return sums


def squared(sums: GradientSums) -> float:
    return sum(float(np.sum(a.astype(np.float64) ** 2)) for a in (*sums.tables.values(), *sums.dense.values()))


def assert_same(got: GradientSums, expected: GradientSums) -> None:
    scale = np.sqrt(squared(expected))
    for ours, true in ((got.tables, expected.tables), (got.dense, expected.dense)):
        for name in ours:
            np.testing.assert_allclose(ours[name], true[name], rtol=CLOSE, atol=CLOSE * scale, err_msg=name)


def slow_scores(model: TwoTowerNetwork, ids: dict[str, Ids], part: Part) -> NDArray[np.float64]:
    batch = len(ids["public"])
    hidden = model.tables["public"].astype(np.float64)[ids["public"]].reshape(batch, -1)
    for name in model.public_layers:
        hidden = np.maximum(hidden @ model.dense[f"{name}.weight"].T + model.dense[f"{name}.bias"], 0)
    sensitive = np.zeros((batch, model.sizes.sensitive_fields * model.tables["public"].shape[1]))
    if part is not Part.TRUNCATED:
        sensitive[:] = model.tables["sensitive"][ids["sensitive"]].reshape(batch, -1)
    hidden = np.concatenate([hidden, sensitive], axis=1)
    for name in model.common_layers:
        hidden = hidden @ model.dense[f"{name}.weight"].T + model.dense[f"{name}.bias"]
        hidden = hidden if name == "output" else np.maximum(hidden, 0)
    return hidden[:, 0]


@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("count", [1, 23])
def test_scores_norms_and_clipped_sums_are_those_of_single_examples(shape: Mlp, part: Part, count: int) -> None:
    model, weights = network(shape), residuals(count)
    ids = ids_of(model, count, part)
    passed = model.forward(ids, part)
    np.testing.assert_allclose(passed.scores, slow_scores(model, ids, part), rtol=CLOSE, atol=CLOSE)

    norms = passed.squared_norms(weights)
    one_by_one = [
        squared(summed(model, {n: a[i : i + 1] for n, a in ids.items()}, weights[i : i + 1], part))
        for i in range(count)
    ]
    assert norms.dtype == np.float32
    np.testing.assert_allclose(norms, one_by_one, rtol=CLOSE)

    clipped = (weights * np.minimum(1, 0.5 / np.sqrt(norms))).astype(np.float32)
    with_norms, without = zeros(model), zeros(model)
    passed.accumulate(clipped, with_norms)
    model.forward(ids, part).accumulate(clipped, without)  # no norms were asked for: another way through
    expected = summed(model, ids, clipped, part)
    assert_same(with_norms, expected)
    assert_same(without, expected)

    passed.accumulate(clipped, with_norms)  # adds, and does so again
    passed.accumulate(-clipped, with_norms)
    assert_same(with_norms, expected)


@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_not_trained_gets_no_gradient(shape: Mlp, part: Part) -> None:
    model = network(shape)
    ids, sums = ids_of(model, 30, part), zeros(model)
    model.forward(ids, part).accumulate(np.ones(30, np.float32), sums)
    moved = {name for name, array in {**sums.tables, **sums.dense}.items() if array.any()}
    trained = {*model.trained_rows(part), *model.trained_dense(part)}
    assert moved == trained
    assert model.trained_ids(ids, part).keys() == model.trained_rows(part).keys()
    if part is Part.TRUNCATED:
        weight = sums.dense["common.0.weight" if shape.common_layers else "output.weight"]
        assert not weight[:, -SIZES.sensitive_fields * shape.dim :].any()


def test_repeated_rows_count_as_what_they_are() -> None:
    model = network(SHAPES[0])
    ids = {
        "public": np.array([[1, 1, 1, 2], [1, 2, 3, 4]], np.int32),
        "sensitive": np.full((2, 3), 2, np.int32),
    }
    gradients = torch.from_numpy(Simulation(3).normal((2, 12)))
    rows = gradients.numpy().astype(np.float64).reshape(2, 4, 3)
    expected = [np.sum(rows[0, :3].sum(axis=0) ** 2) + np.sum(rows[0, 3] ** 2), np.sum(rows[1] ** 2)]
    got = two_tower_network.squared_norms_by_row(ids["public"], gradients)
    np.testing.assert_allclose(got, expected, rtol=CLOSE)
    # The twin without them is wrong by far more than what these tests let pass.
    assert abs(float(two_tower_network.squared_lengths(gradients)[0]) / expected[0] - 1) > 0.01
    norms = model.forward(ids, Part.WHOLE).squared_norms(np.ones(2, np.float32))
    for index in range(2):
        one = {name: array[index : index + 1] for name, array in ids.items()}
        expected_norm = squared(summed(model, one, np.ones(1, np.float32), Part.WHOLE))
        assert norms[index] == pytest.approx(expected_norm, rel=CLOSE)


def test_repeats_beyond_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(SHAPES[0])
    passed = model.forward(ids_of(model, 40, Part.WHOLE), Part.WHOLE)
    whole = passed.squared_norms(np.ones(40, np.float32))
    monkeypatch.setattr(two_tower_network, "REPEATS_AT_ONCE", 7)
    np.testing.assert_allclose(passed.squared_norms(np.ones(40, np.float32)), whole, rtol=1e-6)


@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("largest_gram", [512, 2])
def test_a_group_is_the_sum_of_its_examples(
    shape: Mlp, part: Part, largest_gram: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_tower_network, "LARGEST_GRAM", largest_gram)
    monkeypatch.setattr(two_tower_network, "CHUNK", 6)
    model, weights = network(shape), residuals(24)
    ids = ids_of(model, 24, part)
    groups = np.array([0, 0, 0, 1, 3, 3, 3, 4, 4, *[5] * 11, 6, 7, 8, 8], np.int64)  # nobody is number 2
    expected = [
        squared(summed(model, ids, np.where(groups == g, weights, 0).astype(np.float32), part))
        for g in range(9)
    ]
    passed = model.forward(ids, part)
    got = passed.squared_norms_grouped(weights, groups)
    np.testing.assert_allclose(got, expected, rtol=CLOSE)
    shuffled = np.random.default_rng(2).permutation(24)
    again = model.forward({n: a[shuffled] for n, a in ids.items()}, part)
    np.testing.assert_allclose(
        again.squared_norms_grouped(weights[shuffled], groups[shuffled]), got, rtol=CLOSE
    )


def test_gradients_that_cancel_leave_nothing() -> None:
    model = network(SHAPES[0])
    ids = {name: np.repeat(array, 2, axis=0) for name, array in ids_of(model, 1, Part.WHOLE).items()}
    passed = model.forward(ids, Part.WHOLE)
    opposed = np.array([1000, -1000], np.float32)
    assert passed.squared_norms_grouped(opposed, np.zeros(2, np.int64))[0] < 1e-6
    assert passed.squared_norms_grouped(abs(opposed), np.zeros(2, np.int64))[0] > 1e6


def test_groups_that_cannot_be_meant() -> None:
    model = network(SHAPES[0])
    passed = model.forward(ids_of(model, 3, Part.WHOLE), Part.WHOLE)
    wrong: list[NDArray[Any]] = [np.zeros(2, np.int64), np.array([0, -1, 0]), np.zeros(3)]
    for groups in wrong:
        with pytest.raises(BadInput, match="expected 3 groups"):
            passed.squared_norms_grouped(np.ones(3, np.float32), groups)


@pytest.mark.parametrize("part", Part)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_empty_batch_adds_nothing(shape: Mlp, part: Part) -> None:
    model, nothing = network(shape), np.zeros(0, np.float32)
    passed, sums = model.forward(ids_of(model, 0, part), part), zeros(model)
    assert passed.scores.shape == passed.squared_norms(nothing).shape == (0,)
    assert passed.squared_norms_grouped(nothing, np.zeros(0, np.int64)).shape == (0,)
    passed.accumulate(nothing, sums)
    assert squared(sums) == 0


@pytest.mark.parametrize("part", Part)
def test_a_log_without_sensitive_fields(part: Part) -> None:
    model = network(SHAPES[0], Sizes(4, 0, 9, 0))
    ids, weights, sums = ids_of(model, 6, part), residuals(6), zeros(model)
    passed = model.forward(ids, part)
    norms = passed.squared_norms(weights)
    passed.accumulate(weights, sums)
    assert_same(sums, summed(model, ids, weights, part))
    groups = np.zeros(6, np.int64)
    assert passed.squared_norms_grouped(weights, groups)[0] == pytest.approx(squared(sums), rel=CLOSE)
    assert norms.shape == (6,)


def test_weights_start_as_they_should_and_are_read_in_place() -> None:
    shape = Mlp(dim=16, public_layers=(300,), common_layers=(200,))
    sizes = Sizes(20, 10, 3000, 2000)
    model = shape.build(sizes, Simulation(7).normal)
    # The spread of n normals is off by 1/sqrt(2n) of itself: 0.4 % for 32 000 of them, so 3 % is 8 times that.
    for array, scale in (
        (model.tables["public"], 0.01),
        (model.tables["sensitive"], 0.01),
        (model.dense["public.0.weight"], np.sqrt(2 / 320)),
        (model.dense["common.0.weight"], np.sqrt(2 / 460)),
    ):
        assert array.std() == pytest.approx(scale, rel=0.03)
        assert array.dtype == np.float32
        assert array.flags.writeable
    assert model.dense["output.weight"].shape == (1, 200)
    assert not model.dense["public.0.bias"].any()
    ids = ids_of(model, 5, Part.WHOLE)
    before = model.forward(ids, Part.WHOLE).scores
    model.start_at(3.0)
    np.testing.assert_allclose(model.forward(ids, Part.WHOLE).scores, before + 3, rtol=CLOSE)


def test_ids_come_by_row_and_in_range() -> None:
    model, log = network(SHAPES[0]), examples(SIZES, 6)
    ids = model.ids(log, np.array([4, 1]), Part.WHOLE)
    assert ids["public"].tolist() == log.public[[4, 1]].tolist()
    assert ids["sensitive"].tolist() == log.sensitive[[4, 1]].tolist()
    assert model.ids(log, np.array([4, 1]), Part.TRUNCATED).keys() == {"public"}
    for bad in (-1, SIZES.sensitive_rows):
        log.sensitive[3, 1] = bad
        with pytest.raises(BadInput, match="expected sensitive ids from 0 to 4, got another"):
            model.ids(log, np.arange(6), Part.WHOLE)
        model.ids(log, np.arange(6), Part.TRUNCATED)  # not read at all


def test_without_torch_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BadInput, match=r"pip install 'tacit\[train\]'"):
        Mlp().build(SIZES, Simulation(1).normal)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"dim": 0}, "dim"),
        ({"start": 0}, "start"),
        ({"public_layers": 5}, "public_layers"),
        ({"common_layers": (4, 0)}, "common_layers"),
        ({"common_layers": (True,)}, "common_layers"),
    ],
)
def test_shapes_that_cannot_be_meant(settings: dict[str, object], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        Mlp(**settings)  # type: ignore[arg-type]


def test_lists_from_a_file_are_the_same_shape() -> None:
    assert Mlp(public_layers=[4], common_layers=[]) == Mlp(public_layers=(4,), common_layers=())  # type: ignore[arg-type]
