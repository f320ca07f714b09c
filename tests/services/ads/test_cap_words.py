"""What advertisers are told of frequency caps is what the law of the choice gives."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tacit.cli import parser
from tacit.privacy.choice import TopChoice
from tacit.services.ads.campaign_schemas import AMENDABLE
from tests.support.repository import ROOT

CHANCES = {
    epsilon: float(
        TopChoice.for_epsilon(epsilon, candidates=4, kept=4, top=1).pmf(np.array([0.0, 0.3, 0.2, 0.1]))[0]
    )
    for epsilon in (1, 2, 5)
}


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit):
        parser().parse_args([*words, "--help"])
    return " ".join(capsys.readouterr().out.split())


def test_a_capped_campaign_is_shown_as_rarely_as_the_law_allows() -> None:
    for epsilon, chance in CHANCES.items():
        assert chance == pytest.approx(1 / (np.exp(epsilon) + 3), rel=1e-6)


def test_the_description_and_the_help_have_the_laws_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    described = AMENDABLE["caps"]["description"]
    told = help_of(capsys, "ads", "add"), help_of(capsys, "ads", "set"), described
    for said in told:
        found = [float(each) for each in re.findall(r"([0-9.]+) ?%", said)]
        assert found == [round(100 * chance, 1) for chance in CHANCES.values()]
        assert "public lane" in said


def test_advertisers_read_that_it_is_a_wish() -> None:
    page = (ROOT / "docs" / "advertisers.md").read_text()
    for epsilon, chance in CHANCES.items():
        assert f"epsilon {epsilon}: {chance:.2%} once its cap is reached" in page
    assert "In the public lane no cap holds" in page
    assert "Devices keep them" not in page
