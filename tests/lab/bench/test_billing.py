"""The billing suite at toy size: every bar is named, and figures come out whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pytest

from tacit_lab.bench import billing
from tacit_lab.bench.measurement import Item

TOY = billing.BillingScale(
    reports=20, turns=2, requests=8, together=4, devices=3, memory_reports=1_000, postgres=False
)


def plain(items: Sequence[Item], label: str) -> Iterable[Item]:  # noqa: ARG001
    return items


@pytest.mark.slow
def test_the_suite_runs_and_names_every_bar() -> None:
    measured = {m.name: m for m in billing.run(plain, TOY)}
    bars = {
        "issue_together_vs_pss_sign": 1.6,
        "redeem_sqlite": 0.7,
        "redeem_postgres": 0.7,
        "proxy_vs_token_check": 3.0,
        "device_turn_ms": 5.0,
        "bytes_per_impression": 1600,
        "memory_rise_at_2_times_the_reports": 1.1,
    }
    assert {name: measured[name].bar for name in bars} == bars
    unmeasured = {name for name, each in measured.items() if math.isnan(each.value)}
    assert unmeasured == {"redeem_postgres"}, "which this size leaves out"
    # So little is done here that a coarse clock may see none of it: the full size shows the rest.
    assert [name for name, each in measured.items() if each.value < 0] == []
    assert measured["bytes_per_impression"].holds, "sizes are exact at any scale"
