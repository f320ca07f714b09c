"""What the README and the page of findings say of our results is what the recorded tables say."""

from __future__ import annotations

import re

import pytest

from tacit_lab.studies import registry
from tacit_lab.studies.claims import (
    NOT_TESTED,
    RECORDED,
    ClaimVerdict,
    StudyResult,
    judge_claims,
    read_result,
    tally,
)
from tests.support.repository import ROOT

README = (ROOT / "README.md").read_text()
FINDINGS = (ROOT / "docs" / "findings.md").read_text()
ROW = re.compile(r"^\| ([RSLCMT]\d+) \|.*\| ([^|]+) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def reads() -> list[StudyResult]:
    return [read_result(registry.load_study(name), RECORDED) for name in registry.STUDIES]


@pytest.fixture(scope="module")
def claims(reads: list[StudyResult]) -> list[ClaimVerdict]:
    return judge_claims(reads)


def test_every_study_is_recorded_in_a_form_that_is_read(reads: list[StudyResult]) -> None:
    for each in reads:
        assert each.kept is not None, f"{each.study.name} is not recorded"
        assert not each.stale, f"{each.study.name}: {each.stale}"
        assert each.kept.scale != "toy"
        assert each.kept.settings["command"].startswith(f"tacit reproduce {each.study.name} --scale ")
    known = {f"{name}.{ending}" for name in registry.STUDIES for ending in ("csv", "json")}
    assert {place.name for place in RECORDED.iterdir()} == known, "and nothing else lies there"


def test_no_claim_is_left_untested(claims: list[ClaimVerdict]) -> None:
    assert [each.claim.id for each in claims if each.kind == NOT_TESTED] == []


def test_the_page_counts_verdicts_as_they_are(claims: list[ClaimVerdict]) -> None:
    words = " ".join(FINDINGS.split())
    published = [each for each in claims if not each.claim.ours]
    ours = [each for each in claims if each.claim.ours]
    assert f"{len(published)} published: {tally(published)}" in words
    assert f"{len(ours)} of ours: {tally(ours)}" in words


def test_the_page_s_verdicts_are_those_of_the_tables(claims: list[ClaimVerdict]) -> None:
    """Each by its id: the page shortens a claim, never a verdict."""
    told = dict(ROW.findall(FINDINGS))
    found = {each.claim.id: each.verdict.split(" (")[0] for each in claims}
    assert len(told) >= 12
    assert told == {name: found[name] for name in told}


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
