"""The book holds every study of a folder, says what is missing, and needs nothing but itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tacit.cli import main
from tacit_lab.studies import registry
from tacit_lab.studies.book import render_book
from tacit_lab.studies.claims import read_result, read_result_or_stale
from tacit_lab.studies.results import ResultFiles
from tacit_lab.studies.study import Finding
from tests.support.page_reader import assert_self_contained
from tests.support.tiny_studies import R1, R2, SVG, T1, Tiny, redrawn
from tests.support.tiny_studies import tiny as tiny  # a fixture


def bound(tiny: Tiny) -> str:
    return render_book(tiny.out, [read_result(study, tiny.out) for study in tiny.studies.values()])


def test_the_book_has_figure_table_verdicts_and_command(tiny: Tiny) -> None:
    for study in tiny.studies.values():
        study.outcome(tiny.asked())
    html = bound(tiny)
    seen = assert_self_contained(html)
    assert {"claims", "paper-laro", "paper-ours", "choice-tiny", "choice-tiny-r1", "gather-tiny-r2"} <= set(
        seen.ids
    )
    assert {"f1-axes", "f2-axes"} <= set(seen.ids), "both drawings"
    assert html.count('href="#choice-tiny-r1"') == 2, "from the board and from the chapter"
    assert '<span class="verdict fails">fails on 1 of 3</span>' in html
    assert "<dt>fails</dt><dd>market 1: gain -1.0</dd>" in html
    assert "<dt>rule</dt><dd>gain above 0</dd><dt>holds</dt><dd>market 0: gain 2.0</dd>" in html.replace(
        "\n", ""
    )
    assert "fixed before this run; earlier trials were known" in seen.text
    assert "Beyond the papers, and what each is held against." in seen.text
    assert "<dt>published</dt><dd>+3% (figure 6)</dd>" in html
    assert '<td class="number">-1</td>' in html
    assert "tacit reproduce choice-tiny --scale small --seeds 2" in seen.text
    assert "All data is synthetic" in seen.text


def test_made_up_data_is_called_so_even_where_a_study_forgets(tiny: Tiny) -> None:
    measured = tiny.second
    study = replace(tiny.study("gather-tiny"), run=lambda asked: replace(measured(asked), note="9 rows"))
    tiny.studies["gather-tiny"] = study
    study.outcome(tiny.asked())
    html = bound(tiny)
    assert '<p class="caption">9 rows (synthetic)</p>' in html
    assert "<figcaption>Synthetic data." in html


def test_what_is_missing_or_of_another_version_is_said(tiny: Tiny) -> None:
    def judge(kept: ResultFiles) -> list[Finding]:
        return [Finding(R1, "rule", str(kept.table["kind"]), True)]

    tiny.study("choice-tiny").outcome(tiny.asked())
    tiny.studies["choice-tiny"] = replace(tiny.study("choice-tiny"), judge=judge)
    seen = assert_self_contained(bound(tiny))
    assert "not what this version reads: it has no 'kind'" in seen.text
    assert "Not run here. It speaks to R2." in seen.text
    assert "None of the 2 studies has results here." in seen.text


def test_a_claim_that_one_of_its_studies_has_not_looked_at_is_open(tiny: Tiny) -> None:
    tiny.studies["choice-tiny"] = replace(tiny.study("choice-tiny"), claims=(R1, T1, R2))
    tiny.study("gather-tiny").outcome(tiny.asked())
    html = bound(tiny)
    assert '<span class="verdict undecided">undecided (holds in 1 of 2 studies, 1 not run)</span>' in html
    assert '<span class="verdict holds">holds</span>' in html, "what the study itself says"


def test_without_figures_the_book_is_still_whole(tiny: Tiny) -> None:
    """As with the results that come with tacit, which are tables and settings only."""
    tiny.study("choice-tiny").outcome(tiny.asked())
    (tiny.out / "choice-tiny.svg").unlink()
    html = bound(tiny)
    assert "<svg" not in html
    assert "gain above 0" in html


@pytest.mark.parametrize("file", ["choice-tiny.csv", "choice-tiny.json"])
def test_results_that_cannot_be_read_are_named_and_end_nothing(
    file: str, tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    for study in tiny.studies.values():
        study.outcome(tiny.asked())
    place = tiny.out / file
    place.write_bytes(place.read_bytes().replace(b"1", b"2"))
    assert main(["reproduce", "--book", "--out", str(tiny.out)]) == 0
    told = capsys.readouterr().err
    assert told.startswith(f"tacit reproduce: the book cannot show all of choice-tiny: {place}: expected the ")
    assert told.count("\n") == 1
    html = (tiny.out / "index.html").read_text(encoding="utf-8")
    assert f"Its results cannot be read: {place}: expected the " in assert_self_contained(html).text
    assert "not tested" in html
    assert "market 1" not in html
    assert 'id="gather-tiny-r2"' in html


@pytest.mark.parametrize(
    ("svg", "why"),
    [
        (b"<svg>\xfc</svg>", "expected a figure in UTF-8, got other bytes"),
        (SVG[:-9].encode(), "expected a figure as SVG, got what cannot be read as XML: "),
        (b"<p/>", "expected a figure as SVG, got an element 'p'"),
        (b"<svg/>", "expected a figure with a width or a viewBox, got neither"),
    ],
)
def test_a_figure_that_cannot_be_shown_is_named_and_takes_nothing_from_the_table(
    svg: bytes, why: str, tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    for study in tiny.studies.values():
        study.outcome(tiny.asked())
    redrawn(tiny.out, "choice-tiny", svg)
    place = tiny.out / "choice-tiny.svg"
    assert main(["reproduce", "--book", "--out", str(tiny.out)]) == 0
    said = f"tacit reproduce: the book cannot show all of choice-tiny: {place}: {why}"
    assert capsys.readouterr().err.startswith(said)
    html = (tiny.out / "index.html").read_text(encoding="utf-8")
    assert f"Its figure cannot be shown: {place}: {why}" in assert_self_contained(html).text
    assert html.count("<svg") == 1, "the other study's"
    assert "<dt>fails</dt><dd>market 1: gain -1.0</dd>" in html


def test_a_figure_of_something_else_is_not_shown(tiny: Tiny) -> None:
    tiny.study("choice-tiny").outcome(tiny.asked())
    place = tiny.out / "choice-tiny.svg"
    place.write_text(SVG.replace("synthetic", "better"))
    html = bound(tiny)
    assert "<svg" not in html
    assert f"{place}: expected the figure that was drawn of this table, got another" in html


def test_what_could_not_be_made_again_is_marked(tiny: Tiny) -> None:
    tiny.study("choice-tiny").outcome(tiny.asked())
    why = "BadInput: expected more"
    reads = [read_result_or_stale(study, tiny.out, why) for study in tiny.studies.values()]
    seen = assert_self_contained(render_book(tiny.out, reads))
    assert f"Not made again this time: {why}. These are results of an earlier run." in seen.text
    assert f"Not run here. It speaks to R2. It could not be made this time: {why}. This makes it:" in seen.text
    assert "Not made again this time: choice-tiny, gather-tiny. What is here of them" in seen.text
    assert "this time" not in bound(tiny)


def test_a_real_study_from_the_command_to_the_book(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "contexts-greedy"
    monkeypatch.setattr(registry, "STUDIES", {name: registry.STUDIES[name]})
    command = ["reproduce", "all", "--scale", "toy", "--processes", "1", "--out", str(tmp_path)]
    for told in (" so far); M12 undecided", "kept, nothing changed"):
        assert main(command) == 0
        assert told in capsys.readouterr().out
    html = (tmp_path / "index.html").read_text()
    seen = assert_self_contained(html)
    assert f"{name}-m12" in seen.ids
    assert "undecided (toy scale decides nothing)" in seen.text
    assert "var(--ink)" in html, "the drawing is in the page's colours"
    assert main(["claims", "--results", str(tmp_path), "--paper", "hardt", "--details"]) == 0
    assert "M12  undecided (toy scale decides nothing)" in capsys.readouterr().out
