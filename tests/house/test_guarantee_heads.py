"""What makes a private choice, or pays for one, says what it promises: under four heads, in their order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tacit

ROOT = Path(tacit.__file__).parent
HEADS = ("Guarantee", "Neighbours", "Assumes", "Source")

ROOMS = (
    "privacy/choice",
    "deliver/protocol",
    "deliver/device",
    "deliver/auction",
    "../tacit_lab/studies/choice/bandits.py",
)
"""Where everything that chooses or pays must say what it promises."""

MAKES_A_CHOICE = {"choose", "spend"}
"""A class with one of these draws private choices, or decides what is paid for them."""

HANDS_OUT = {"Wallet", "PlannedRule"}
"""A function that returns one of these has paid for a choice, or made the rule of one."""

BY_NAME = {"exploration_scores"}
"""And what makes the scores of a private choice, and says that this costs nothing more."""

WITHOUT_A_PROMISE = {
    "Greedy": "Not private at all",
    "NoisyMaxRule": "it promises nothing, and may not be shown",
}
"""What chooses and is there to measure others against: it has no heads, and says so in these words."""

Documented = ast.ClassDef | ast.FunctionDef


def documented(source: str) -> Iterator[Documented]:
    """Public classes and functions of a module, and what is inside of classes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and not node.name.startswith("_"):
            yield node


def promises(node: Documented) -> bool:
    """Whether it chooses or pays, by what it offers and not by what it says."""
    if isinstance(node, ast.FunctionDef):
        is_method = bool(node.args.args) and node.args.args[0].arg in ("self", "cls")
        returned = set(re.findall(r"\w+", ast.unparse(node.returns))) if node.returns else set()
        return not is_method and (node.name in BY_NAME or bool(returned & HANDS_OUT))
    is_protocol = any(ast.unparse(base).startswith("Protocol") for base in node.bases)
    offers = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    return not is_protocol and bool(offers & MAKES_A_CHOICE)


def heads(text: str) -> list[str]:
    """The heads of a docstring that have something under them."""
    return re.findall(rf"^ *({'|'.join(HEADS)}): +\S", text, re.MULTILINE)


def violations(source: str) -> list[str]:
    """Promises without heads, and no promise that is not called so."""
    return [
        node.name
        for node in documented(source)
        if promises(node) and not _states(node.name, ast.get_docstring(node) or "")
    ]


def _states(name: str, text: str) -> bool:
    if name in WITHOUT_A_PROMISE:
        return WITHOUT_A_PROMISE[name] in text and not heads(text)
    return heads(text) == list(HEADS)


def sources(*places: str) -> Iterator[Path]:
    for place in places:
        path = ROOT / place
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


@pytest.mark.parametrize("path", list(sources(*ROOMS)), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_chooses_or_pays_states_its_promise(path: Path) -> None:
    assert violations(path.read_text()) == []


def test_who_states_a_promise_has_all_four_heads() -> None:
    partly = {
        f"{path.relative_to(ROOT)}: {node.name}": found
        for path in sources("")
        if any(f"{head}:" in (source := path.read_text()) for head in HEADS)
        for node in documented(source)
        if (found := heads(ast.get_docstring(node) or "")) not in ([], ["Source"], list(HEADS))
    }
    assert partly == {}


def test_the_rule_finds_those_who_promise() -> None:
    found = {node.name for path in sources(*ROOMS) for node in documented(path.read_text()) if promises(node)}
    assert found >= {
        "TopChoice", "NoisyMax", "Floors", "TopSlates", "OverlapSlates", "PeeledSlates", "ChoicePlan", "Wallet",
        "BudgetPolicy", "plan_request", "planned_rule", "budget_rule", "exploration_scores", "TopChoiceRule",
        "PlannedRule", "NonPersonalised", *WITHOUT_A_PROMISE,
    }  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [
        "class Law:\n    def choose(self): ...",
        'class Law:\n    """Guarantee:  epsilon-DP."""\n    def choose(self): ...',
        'class Book:\n    """\n    Neighbours: a\n    Guarantee:  b\n    Assumes: c\n    Source: d\n    """\n'
        "    def spend(self): ...",
        'class Book:\n    """\n    Guarantee:\n    Neighbours: a\n    Assumes: c\n    Source: d\n    """\n'
        "    def spend(self): ...",
        "def pay(now: int) -> tuple[Plan, Wallet]: ...",
        "def exploration_scores(): ...",
        'class Greedy:\n    """The best private score."""\n    def choose(self): ...',
    ],
    ids=["none", "one", "another order", "an empty head", "a wallet", "by name", "no word of no promise"],
)
def test_the_rule_catches(source: str) -> None:
    assert violations(source)
