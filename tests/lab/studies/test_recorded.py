"""What the README and the page of findings say of our results is what the recorded tables say."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tacit_lab.studies import registry
from tacit_lab.studies.claims import (
    HOLDS,
    NOT_TESTED,
    REAL,
    RECORDED,
    ClaimColumns,
    ClaimVerdict,
    StudyResult,
    judge_claims,
    judge_columns,
    read_result,
    read_results,
    tally,
)
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.runs import Runs
from tacit_lab.studies.semi_sensitive.recipe import DP_SGD, FROZEN, HYBRID, NON_PRIVATE, RR, TRUNCATED
from tests.support.repository import ROOT

README = (ROOT / "README.md").read_text()
FINDINGS = (ROOT / "docs" / "findings.md").read_text()
ROW = re.compile(r"^\| ([RSLCMT]\d+) \|.*\| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def reads() -> list[StudyResult]:
    return [read_result(registry.load_study(name), RECORDED) for name in registry.STUDIES]


@pytest.fixture(scope="module")
def claims(reads: list[StudyResult]) -> list[ClaimVerdict]:
    return judge_claims(reads)


@pytest.fixture(scope="module")
def columns() -> list[ClaimColumns]:
    return judge_columns(read_results([registry.load_study(name) for name in registry.STUDIES], RECORDED))


def test_every_study_is_recorded_in_a_form_that_is_read(reads: list[StudyResult]) -> None:
    for each in reads:
        if each.study.inputs.alone:
            assert each.kept is None, f"{each.study.name} is decided by published files"
            continue
        assert each.kept is not None, f"{each.study.name} is not recorded"
        assert not each.stale, f"{each.study.name}: {each.stale}"
        assert each.kept.scale != "toy"
        assert each.kept.settings["command"].startswith(f"tacit reproduce {each.study.name} --scale ")
    made_up = [each.study.name for each in reads if not each.study.inputs.alone]
    known = {f"{name}.{ending}" for name in made_up for ending in ("csv", "json")}
    assert {place.name for place in RECORDED.iterdir()} == {*known, REAL}, "and nothing else lies there"


def test_results_of_real_data_are_of_files_that_nobody_made_up() -> None:
    studies = [registry.load_study(name) for name in registry.STUDIES]
    reads = [each for each in read_results(studies, RECORDED) if each.is_real]
    for each in reads:
        assert each.kept is not None
        assert not each.stale, f"{each.study.name}: {each.stale}"
        assert each.kept.scale != "toy"
        assert " --data data" in each.kept.settings["command"], "a folder's name, and no machine's"
    found = {place.relative_to(RECORDED / REAL) for place in (RECORDED / REAL).rglob("*.*")}
    assert len(found) == 2 * len(reads), "a table and settings for each, and nothing else lies there"
    assert all(place.stat().st_size < 200_000 for place in (RECORDED / REAL).rglob("*.csv")), (
        "no rows of people"
    )


def test_no_claim_is_left_untested(columns: list[ClaimColumns]) -> None:
    both = [(each.claim.id, {each.made_up.kind, each.real.kind}) for each in columns]
    assert [name for name, kinds in both if kinds == {NOT_TESTED}] == []


def test_the_page_counts_verdicts_as_they_are(columns: list[ClaimColumns]) -> None:
    words = " ".join(FINDINGS.split())
    for ours, whose in ((False, "published"), (True, "of ours")):
        group = [each for each in columns if each.claim.ours is ours]
        real = [each.real for each in group if each.real.heard]
        assert f"{len(group)} {whose}: {tally([each.made_up for each in group])}" in words
        assert f"{len(real)} {whose} on real data: {tally(real)}" in words


@pytest.mark.parametrize(("page", "least"), [(FINDINGS, 30), (README, 6)], ids=["findings", "README"])
def test_a_page_s_verdicts_are_those_of_the_tables(page: str, least: int, columns: list[ClaimColumns]) -> None:
    """Each by its id, of made-up and of real data: a page shortens a claim, never a verdict."""
    told = {name: (made_up, real) for name, made_up, real in ROW.findall(page)}
    found = {
        each.claim.id: (plain(each.made_up), plain(each.real) if each.real.heard else "-") for each in columns
    }
    assert len(told) >= least
    assert told == {name: found[name] for name in told}


def plain(judged: ClaimVerdict) -> str:
    """The verdict, without what is said about it."""
    return judged.verdict.split(" (")[0]


def test_the_page_has_a_line_for_every_claim_that_real_data_speaks_of(columns: list[ClaimColumns]) -> None:
    told = {name for name, *_ in ROW.findall(FINDINGS)}
    assert {each.claim.id for each in columns if each.real.heard} <= told


def test_the_page_says_why_where_real_data_differs(columns: list[ClaimColumns]) -> None:
    """From made-up data or from its paper; a reason stands for every id."""
    reasons = FINDINGS[FINDINGS.index("## Where real data differs") :].split("\n## ")[0]
    told = set(re.findall(r"\*\*([RSLCMT]\d+)\*\*", reasons))
    low, high = re.findall(r"\*\*T(\d+)\*\* to \*\*T(\d+)\*\*", reasons)[0]
    told |= {f"T{at}" for at in range(int(low), int(high) + 1)}
    heard = [each for each in columns if each.real.heard]
    wanted = {each.claim.id for each in heard if each.real.kind != HOLDS or each.agreement == "differ"}
    assert wanted - told == set()


def test_the_page_has_the_recorded_losses_on_the_search_log() -> None:
    runs = Runs(ResultFiles.of(RECORDED / REAL, "semi-sensitive-search").rows)

    def shown(figure: str, digits: int, **labels: object) -> str:
        mean = float(np.mean(runs.figures(figure, **labels)))
        return f"{mean:.{digits}f}".removeprefix("0")

    for method in (RR, DP_SGD, HYBRID, FROZEN):
        cells = [
            f"{shown('auc_loss', 4, method=method, epsilon=epsilon)} "
            f"({shown('calibration_ratio', 2, method=method, epsilon=epsilon)})"
            for epsilon in (1, 2, 4, 8, 12)
        ]
        assert f"| {method} | {' | '.join(cells)} |" in FINDINGS
    plain, public = (shown("auc_loss", 4, method=method) for method in (NON_PRIVATE, TRUNCATED))
    assert f"Without privacy it is {plain}, of public features alone {public}." in FINDINGS


def test_the_page_of_private_choice_has_the_recorded_regrets(reads: list[StudyResult]) -> None:
    kept = next(each.kept for each in reads if each.study.name == "choice-learning")
    assert kept is not None
    page = " ".join((ROOT / "docs" / "private_choice.md").read_text().split())
    arms = ("Spread(0.3)", "default prior", "from reports", "counted ratios", "RR, best gamma", "RR, gamma 0.8")
    for arm in (*arms, "exponential", "permute-and-flip"):
        own = [row for row in kept.rows if row["part"] == "overall" and row["arm"] == arm]
        means = [
            sum(float(str(row[figure])) for row in own) / len(own)
            for figure in ("regret_percent", "worst_regret", "gain_percent", "worst_gain")
        ]
        cells = " | ".join(f"{mean:.1f}".replace("-0.", "-.").removeprefix("0") for mean in means)
        assert f"| {cells} |" in page, arm


def test_the_readme_s_frontier_is_the_recorded_one(reads: list[StudyResult]) -> None:
    kept = next(each.kept for each in reads if each.study.name == "choice-frontier")
    assert kept is not None
    shares = {
        (row["mechanism"], row["epsilon"]): float(str(row["share_of_gain"]))
        for row in kept.rows
        if row["setting"] == "Display-like requests" and not row["over"]
    }
    words = " ".join(README.split())
    paper = ("RR", "SNM scaled", "SNM clipped, best bound")
    named = ("trunc, default prior", "trunc, from reports", "RR, best gamma", "no mechanism above")
    for epsilon in (1, 2, 5):
        default, learnt, cut, bound = (f"{shares[name, epsilon]:.0%}" for name in named)
        best = max(shares[name, epsilon] for name in paper)
        assert f"| {epsilon} | {default} | {learnt} | {best:.0%} | {cut} | {bound} |" in words
