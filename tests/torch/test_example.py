"""The example runs as it is."""

from __future__ import annotations

import subprocess
import sys

from tests.support.repository import ROOT


def test_the_example_trains_and_says_what_it_promises() -> None:
    told = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "own_torch_model.py")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.startswith("DP-SGD: 80 steps over Poisson samples of 1,000 of 16,000 records on average\n")
    assert "-differentially private per impression." in told
    share = int(told.splitlines()[-1].partition("%")[0])
    assert share > 75
