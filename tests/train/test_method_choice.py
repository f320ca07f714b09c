"""Which way of label DP is taken, from public quantities alone, and that it is carried out as chosen."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tacit.cli import main
from tacit.errors import BadInput
from tacit.privacy.units import Cap, Split, Unit, UnitKind
from tacit.train.method_choice import best_way, label_worth
from tests.support.training_examples import ROWS, learnable

IMPRESSION, USER = Unit(UnitKind.IMPRESSION), Unit(UnitKind.USER)


def test_what_flips_are_worth_by_its_definition() -> None:
    examples = learnable()
    variance = 0.05 * 0.95
    for epsilon in (1, 4):
        lie = 1 / (1 + math.exp(epsilon))
        added = lie * (1 - lie) / (1 - 2 * lie) ** 2  # of a report, once it is made unbiased
        worth = label_worth(examples, IMPRESSION, Cap(1), epsilon, rate=0.05)
        assert worth == pytest.approx(variance / (variance + added))
    one = label_worth(examples, USER, Cap(1), 4, rate=0.05)
    assert one == pytest.approx(label_worth(examples, IMPRESSION, Cap(1), 4, rate=0.05) / 3)  # one row in three
    every = label_worth(examples, USER, Cap(4, split=Split.BY_COUNT), 12, rate=0.05)
    assert every == pytest.approx(label_worth(examples, IMPRESSION, Cap(1), 4, rate=0.05))


def test_flips_where_half_of_labels_is_left_and_else_the_statistic() -> None:
    examples = learnable()
    assert [best_way(examples, IMPRESSION, epsilon)[0] for epsilon in (1, 2, 4, 8)] == [
        "statistic", "statistic", "label-dp", "label-dp",
    ]  # fmt: skip
    assert best_way(examples, USER, 4)[0] == "statistic"
    method, cap, why = best_way(examples, USER, 16)
    assert (method, cap.impressions) == ("label-dp", 4)  # all three rows of everybody, at a third of epsilon
    assert "flips of up to 4 labels per unit at ε = 16 tell" in why.words
    assert best_way(learnable(2), USER, 16)[:2] == (method, cap)  # whatever the labels
    assert best_way(examples, IMPRESSION, 2, rate=0.5)[0] == "label-dp"


def test_units_with_private_keys_are_refused() -> None:
    with pytest.raises(BadInput, match="column 'user' to be public"):
        best_way(learnable(public_keys=frozenset({"row", "time"}), label=None), USER, 4)


@pytest.mark.parametrize(("epsilon", "chosen"), [(0.5, "statistic"), (8, "label-dp")])
def test_a_configuration_may_leave_the_method_to_us(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], epsilon: float, chosen: str
) -> None:
    draw = np.random.default_rng(1)
    page = draw.integers(0, 4, ROWS)
    bought = draw.random(ROWS) < np.array([0.1, 0.3, 0.5, 0.2])[page]
    rows = [f"p{kind},{int(label)}" for kind, label in zip(page, bought, strict=True)]
    (tmp_path / "log.csv").write_text("\n".join(["page,bought", *rows]))
    schema = 'name = "shop"\n[columns.page]\nrole = "public"\n[columns.bought]\nrole = "label"\nkind = "flag"\n'
    (tmp_path / "shop.toml").write_text(schema)
    log = [str(tmp_path / name) for name in ("log.csv", "shop.toml", "log")]
    assert main(["data", "prepare", log[0], "--schema", log[1], "--out", log[2], "--public-bins", "50"]) == 0
    config = tmp_path / "t.toml"
    ledger = f'[ledger]\npath = "{tmp_path}/l.sqlite"\nscope = "shop"\nkey = "shop/1"\nsecret = "s"\n'
    shape = '[model]\nname = "fm"\ndim = 2\n[labels]\nepochs = 1\n'
    privacy = f'[privacy]\nmethod = "auto"\nepsilon = {epsilon}\ndelta = 1e-6\n'
    config.write_text(f'data = "log"\nout = "model"\n{shape}{privacy}{ledger}')
    granted = ["--scope", "shop", "--unit", "impression", "--relation", "replace-label", "--epsilon", "9"]
    assert main(["ledger", "grant", "--ledger", f"{tmp_path}/l.sqlite", *granted, "--delta", "1e-5"]) == 0
    capsys.readouterr()
    assert main(["train", str(config), "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["method"] == chosen
    assert planned["defaults"][0]["key"] == "privacy.method"
    assert planned["statement"]["delta"] == (1e-6 if chosen == "statistic" else 0)
    assert main(["train", str(config), "--json"]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "model")]) == 0
    page_shown = " ".join(capsys.readouterr().out.split())
    assert f"Chosen: privacy.method = {chosen}, because flips at ε = {epsilon:g} tell" in page_shown
