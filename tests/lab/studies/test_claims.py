"""`tacit claims`: every published finding is there, and its verdict is that of the tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.cli import main
from tacit_lab.studies import registry
from tacit_lab.studies.claims import (
    RECORDED,
    ClaimColumns,
    ClaimVerdict,
    Evidence,
    StudyResult,
    judge_claims,
    judge_columns,
    read_results,
    tally,
)
from tacit_lab.studies.registry import PAPERS, paper_of_claim, paper_of_study
from tacit_lab.studies.study import Claim, Finding, StudyScale
from tests.support.tiny_studies import R1, Tiny, doctored, retabled
from tests.support.tiny_studies import tiny as tiny  # a fixture

PUBLISHED = {"R": 18, "S": 12, "L": 5, "C": 8, "M": 13}
ALSO = {"R19", "R20", "M14"}  # found in the papers later


def test_every_published_finding_has_a_study_and_one_wording(capsys: pytest.CaptureFixture[str]) -> None:
    studies = [registry.load_study(name) for name in registry.STUDIES]
    claims: dict[str, Claim] = {}
    for study in studies:
        for claim in study.claims:
            assert claims.setdefault(claim.id, claim) == claim, f"{study.name} words {claim.id} differently"
            assert "(synthetic" not in claim.words
    published = {name for name, claim in claims.items() if not claim.ours}
    assert published == ALSO | {f"{letter}{at + 1}" for letter, many in PUBLISHED.items() for at in range(many)}
    assert all(paper_of_claim(claim) is not None or claim.ours for claim in claims.values())
    assert {paper_of_study(study) for study in studies} == {*PAPERS, None}
    assert main(["claims"]) == 0, "with whatever results are recorded"
    told = capsys.readouterr().out
    assert f"\n{len(published)} published: " in told
    assert all(f"\n{name} " in told for name in claims)


def heard(*holds: bool | None, missing: Sequence[str] = (), why: str = "") -> ClaimVerdict:
    """Findings of one study; `missing` are others that were not run (""), or are stale for what they say."""
    study = Tiny(Path()).study("choice-tiny")
    findings = [Finding(R1, "rule", "seen", each, why=why) for each in holds]
    return ClaimVerdict(
        R1,
        [Evidence(StudyResult(study), finding) for finding in findings],
        [StudyResult(replace(study, name=f"other-{at}"), stale=stale) for at, stale in enumerate(missing)],
    )


@pytest.mark.parametrize(
    ("holds", "kind", "verdict"),
    [
        ((), "not tested", "not tested"),
        ((True,), "holds", "holds"),
        ((True, True), "holds", "holds"),
        ((False, False), "fails", "fails"),
        ((True, False, None), "fails", "fails on 1 of 3"),
        ((True, None, True), "undecided", "undecided on 1 of 3"),
        ((None, None), "undecided", "undecided"),
    ],
)
def test_several_findings_make_one_verdict(holds: tuple[Any, ...], kind: str, verdict: str) -> None:
    found = heard(*holds)
    assert (found.kind, found.verdict) == (kind, verdict)


@pytest.mark.parametrize(
    ("holds", "missing", "kind", "verdict"),
    [
        ((True, True), ("", ""), "undecided", "undecided (holds in 1 of 3 studies, 2 not run)"),
        ((True,), ("no column",), "undecided", "undecided (holds in 1 of 2 studies, 1 not readable)"),
        (
            (True,),
            ("", "no column"),
            "undecided",
            "undecided (holds in 1 of 3 studies, 1 not run, 1 not readable)",
        ),
        ((True, False), ("",), "fails", "fails on 1 of 2"),
        ((False,), ("",), "fails", "fails"),
        ((True, None), ("",), "undecided", "undecided on 1 of 2"),
        ((), ("", ""), "not tested", "not tested"),
    ],
)
def test_a_claim_with_a_study_missing_does_not_hold(
    holds: tuple[Any, ...], missing: tuple[str, ...], kind: str, verdict: str
) -> None:
    found = heard(*holds, missing=missing)
    assert (found.kind, found.verdict) == (kind, verdict)


def test_what_all_findings_add_is_said_once() -> None:
    weak = heard(True, True, why="not shown to be worse")
    assert weak.verdict == "holds (not shown to be worse)"
    assert [weak.mark(each) for each in weak.heard] == ["holds", "holds"]
    assert heard(True, why="not shown to be worse").verdict == "holds (not shown to be worse)"
    some = ClaimVerdict(R1, [*weak.heard, *heard(False).heard], ())
    assert some.verdict == "fails on 1 of 3"
    assert [some.mark(each) for each in some.heard] == ["holds (not shown to be worse)"] * 2 + ["fails"]


def test_each_rule_is_told_once_with_what_was_found_by_it() -> None:
    rules = ("a", "b", "a", "b")
    findings = [Finding(R1, rule, str(at), True, where="there") for at, rule in enumerate(rules)]
    found = ClaimVerdict(R1, [replace(heard(True).heard[0], finding=each) for each in findings], ())
    assert [(rule, [each.words for each in group]) for rule, group in found.by_rule] == [
        ("a", ["there: 0", "there: 2"]),
        ("b", ["there: 1", "there: 3"]),
    ]


def test_a_published_figure_that_is_not_tested_itself_is_marked() -> None:
    claims = {each.id: each for name in registry.STUDIES for each in registry.load_study(name).claims}
    marked = {name for name, claim in claims.items() if "; the rule" in claim.published}
    assert marked == {"M1", "M3", "M6", "M7", "S10", "L4"}


def test_help_does_not_say_that_nothing_was_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["claims", "--help"])
    assert "fixed before this run;\nearlier trials were known" in capsys.readouterr().out


def test_a_folder_without_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "something.json").write_text("{}")
    assert main(["claims", "--results", str(tmp_path)]) == 2
    assert "expected a folder with results of tacit reproduce" in capsys.readouterr().err


def test_claims_are_counted() -> None:
    assert tally([heard(True), heard(False), heard(False, True), heard(None)]) == (
        "1 holds, 2 fail, 1 undecided, 0 not tested"
    )


def test_claims_come_in_order_each_once() -> None:
    names = ("S2", "R10", "R2", "T1")
    made = [Claim(name, "figure", "words") for name in names]
    study = Tiny(Path()).study("choice-tiny")
    reads = [StudyResult(replace(study, claims=made)), StudyResult(replace(study, claims=made[:2]))]
    found = judge_claims(reads)
    assert [each.claim.id for each in found] == ["R2", "R10", "S2", "T1"]
    assert [len(each.silent) for each in found] == [1, 2, 2, 1]


def test_the_list_says_figure_data_and_verdict(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.study("choice-tiny").outcome(tiny.asked())
    assert main(["claims", "--details", "--results", str(tiny.out)]) == 0
    told = capsys.readouterr().out
    assert "R1   fails on 1 of 3  prices rise" in told
    assert "     would decide it: --scale full, 2 seeds, about < 1 min\n" in told
    assert "     published: direction (figure 2)" in told
    assert "     rule: gain above 0\n     holds: market 0: gain 2.0\n     fails: market 1: gain -1.0\n" in told
    assert told.count("rule: gain above 0") == 1
    assert "     data: synthetic, a log of 9 rows, small scale, 2 seeds [choice-tiny]" in told
    assert "R2   not tested  prices rise further\n     published: +3% (figure 6)" in told
    assert "     to test it: tacit reproduce gather-tiny" in told
    assert "Beyond the papers, and what each is held against\n" in told
    ours = "T1   holds       ours is better\n     against: the paper's best\n"
    assert ours + "     rule: gain above 1\n     seen: gain 2.0" in told
    assert told.endswith(
        "2 published: 0 hold, 1 fails, 0 undecided, 1 not tested\n"
        "1 of ours: 1 holds, 0 fail, 0 undecided, 0 not tested\n"
    )
    assert max(map(len, told.splitlines())) <= 100


def of_files(tiny: Tiny, gains: Sequence[float]) -> None:
    """The first study on a file that nobody made up, in the folder of real results."""
    logs = tiny.out.parent / "logs"
    logs.mkdir()
    (logs / "log.csv").write_text("a\n")
    tiny.first.gains = gains
    tiny.study("choice-tiny").outcome(replace(tiny.asked(data=logs), out=tiny.out / "real"))


def test_each_claim_has_a_line_with_a_verdict_of_each_kind_of_data(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.study("choice-tiny").outcome(tiny.asked())
    of_files(tiny, (1.0, 2.0))
    assert main(["claims", "--results", str(tiny.out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    gap = " " * 60
    assert f"R1   prices rise{gap[:55]} fails      holds      differ" in lines
    assert f"R2   prices rise further{gap[:47]} not tested -" in lines
    assert f"T1   ours is better{gap[:52]} holds      holds" in lines
    assert lines[-2:] == [
        "1 of ours: 1 holds, 0 fail, 0 undecided, 0 not tested",
        "   1 on real data: 1 holds, 0 fail, 0 undecided, 0 not tested; 1 agree with made-up data, 0 differ",
    ]
    assert max(map(len, lines)) <= 100
    assert main(["claims", "R1", "--results", str(tiny.out)]) == 0
    told = capsys.readouterr().out
    assert "R1   fails on 1 of 3 made up, holds on real data  prices rise" in told
    assert "     fails: market 1: gain -1.0\n" in told
    assert "     real data, holds: market 0: gain 1.0\n" in told
    assert "     made-up and real data: they differ, and the real one counts\n" in told
    assert "     data: a log of 9 rows, small scale, 2 seeds [choice-tiny]\n" in told
    assert "T1" not in told
    assert main(["claims", "R1", "--json", "--results", str(tiny.out)]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [(each["claim"], each["synthetic"], each["holds"], each["verdict"]) for each in records] == [
        ("R1", True, True, "holds"),
        ("R1", True, False, "fails"),
        ("R1", True, None, "undecided"),
        ("R1", False, True, "holds"),
        ("R1", False, True, "holds"),
    ]
    assert {each["agreement"] for each in records} == {"differ"}
    assert [bool(each["decider"]) for each in records] == [False, False, True, False, False]


def test_real_results_stand_without_made_up_ones(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    of_files(tiny, (1.0, 0.0))
    assert main(["claims", "R1", "--results", str(tiny.out / "real")]) == 0
    told = capsys.readouterr().out
    assert "R1   undecided on 1 of 2 on real data  prices rise" in told
    assert "     would decide it: more than 2 seeds: --seeds 4\n" in told
    assert main(["claims", "R1", "--json", "--results", str(tiny.out / "real")]) == 0
    assert {each["synthetic"] for each in json.loads(capsys.readouterr().out)} == {False}


@pytest.mark.parametrize(
    ("made_up", "real", "agreement"),
    [
        ((True,), (True,), "agree"),
        ((None,), (None,), "agree"),
        ((True,), (False,), "differ"),
        ((True,), (None,), "open"),
        ((None,), (False,), "open"),
        ((True,), (), ""),
        ((), (True,), ""),
    ],
)
def test_whether_both_kinds_of_data_agree(
    made_up: tuple[Any, ...], real: tuple[Any, ...], agreement: str
) -> None:
    assert ClaimColumns(heard(*made_up), heard(*real)).agreement == agreement


def test_a_claim_that_nobody_knows_is_refused(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.study("choice-tiny").outcome(tiny.asked())
    assert main(["claims", "R9", "--results", str(tiny.out)]) == 2
    assert "expected a claim's id (tacit claims), got 'R9'" in capsys.readouterr().err


def test_every_recorded_finding_that_is_undecided_says_what_would_decide_it() -> None:
    reads = read_results([registry.load_study(name) for name in registry.STUDIES], RECORDED)
    undecided = [
        each
        for claim in judge_columns(reads)
        for each in (*claim.made_up.heard, *claim.real.heard)
        if each.finding.holds is None
    ]
    assert undecided
    assert [each.finding.claim.id for each in undecided if not each.decider] == []


def test_one_paper_can_be_asked_for(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.study("choice-tiny").outcome(tiny.asked())
    assert main(["claims", "--paper", "ours", "--results", str(tiny.out)]) == 0
    told = capsys.readouterr().out
    assert "T1" in told
    assert "R1" not in told
    with pytest.raises(SystemExit) as refused:
        main(["claims", "--paper", "nobody"])
    assert refused.value.code == 2


def test_machines_get_a_record_for_each_finding(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.study("choice-tiny").outcome(tiny.asked())
    assert main(["claims", "--results", str(tiny.out), "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    wanted = {
        "name",
        "value",
        "bar",
        "holds",
        "verdict",
        "paper",
        "place",
        "published",
        "data",
        "study",
        "where",
    }
    assert all(record.keys() >= wanted for record in records)
    assert [(each["name"], each["where"], each["holds"], each["verdict"]) for each in records] == [
        ("R1", "market 0", True, "holds"),
        ("R1", "market 1", False, "fails"),
        ("R1", "market 2", None, "undecided"),
        ("R2", "", None, "not tested"),
        ("T1", "", True, "holds"),
    ]
    assert {each["paper"] for each in records} == {"laro", "ours"}
    assert records[0]["claim_verdict"] == "fails on 1 of 3"
    assert records[3]["command"] == "tacit reproduce gather-tiny"


def test_an_edited_table_is_refused_by_name(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.study("choice-tiny").outcome(tiny.asked())
    place = tiny.out / "choice-tiny.csv"
    place.write_text(place.read_text().replace("-1.0", "1.0"))
    assert main(["claims", "--results", str(tiny.out)]) == 2
    refusal = capsys.readouterr().err
    assert str(place) in refusal
    assert refusal.count("\n") == 1


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ('"scale": "toy"', '"scale": "small"'),
        ('"synthetic": true', '"synthetic": false'),
        ('"data": "a log', '"data": "the published log'),
        ("--seeds 2", "--seeds 20"),
    ],
)
def test_edited_settings_are_refused_by_name(
    was: str, now: str, tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else toy scale would decide, or made-up data be called published."""
    tiny.study("choice-tiny").outcome(tiny.asked(StudyScale.TOY))
    place = tiny.out / "choice-tiny.json"
    text = place.read_text()
    assert was in text
    place.write_text(text.replace(was, now))
    assert main(["claims", "--results", str(tiny.out)]) == 2
    out, err = capsys.readouterr()
    assert err == (
        f"tacit claims: {place}: expected the settings that its record_sha256 describes, got others\n"
    )
    assert not out


def not_utf8(out: Path) -> None:
    retabled(out, "choice-tiny", b"market,gain\nm\xfcnchen,1.0\n")


def ragged(out: Path) -> None:
    retabled(out, "choice-tiny", b"market,gain\nmarket 0\n")


def a_list(out: Path) -> None:
    (out / "choice-tiny.json").write_text("[]")


def without_seeds(out: Path) -> None:
    doctored(out, "choice-tiny", seeds=None)


def without_scale(out: Path) -> None:
    doctored(out, "choice-tiny", parameters={})


def half_shown(out: Path) -> None:
    doctored(out, "choice-tiny", shown={"note": "", "columns": ["market"]})


@pytest.mark.parametrize("spoil", [not_utf8, ragged, a_list, without_seeds, without_scale, half_shown])
def test_what_cannot_be_read_is_refused_in_one_line_by_name(
    spoil: Callable[[Path], None], tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.study("choice-tiny").outcome(tiny.asked())
    spoil(tiny.out)
    assert main(["claims", "--results", str(tiny.out)]) == 2
    refusal = capsys.readouterr().err
    assert refusal.startswith(f"tacit claims: {tiny.out / 'choice-tiny'}.")
    assert ": expected " in refusal
    assert ", got " in refusal
    assert refusal.count("\n") == 1


def test_a_study_without_results_is_named_even_where_another_spoke(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.studies["gather-tiny"] = replace(tiny.study("gather-tiny"), claims=(R1,))
    tiny.study("choice-tiny").outcome(tiny.asked())
    assert main(["claims", "--details", "--results", str(tiny.out), "--paper", "laro"]) == 0
    assert "     more: tacit reproduce gather-tiny\n" in capsys.readouterr().out


def test_a_table_of_another_version_is_named_with_what_makes_it_again(
    tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.study("choice-tiny").outcome(tiny.asked())

    def judge(kept: Any) -> list[Finding]:
        return [Finding(R1, "rule", f"{kept.table['new column'][0]}", True)]

    tiny.studies["choice-tiny"] = replace(tiny.study("choice-tiny"), judge=judge)
    assert main(["claims", "--results", str(tiny.out)]) == 0
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert "choice-tiny: its table is not what this version reads (it has no 'new column')" in err
    assert "tacit reproduce choice-tiny --scale small --seeds 2" in err
    assert re.search(r"R1   prices rise +not tested -", out)


def test_a_folder_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--results", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.startswith("tacit claims: --results: expected a folder")
