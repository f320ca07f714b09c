"""The gather suite at toy size: every bar is named, and figures come out whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pytest

from tacit_lab.bench import gather
from tacit_lab.bench.measurement import Item

TOY = gather.GatherScale(cells=40, reports=20, turns=2, memory_devices=40, round_devices=60, processes=1)


def plain(items: Sequence[Item], label: str) -> Iterable[Item]:  # noqa: ARG001
    return items


@pytest.mark.slow
def test_the_suite_runs_and_names_every_bar() -> None:
    measured = {m.name: m for m in gather.run(plain, TOY)}
    bars = {
        "upload_bytes": 8300,
        "server_part_bytes": 80,
        "server_part_proof_bytes": 80,
        "proxy_vs_seal": 2.0,
        "server_vs_seal": 2.0,
        "proxy_proof_ms": 3.44,
        "server_proof_ms": 3.44,
        "memory_rise_at_4_times_the_devices": 1.1,
        "round_60_seconds": 60.0,
    }
    assert {name: measured[name].bar for name in bars} == bars
    assert all(math.isfinite(m.value) and m.value > 0 for m in measured.values())
    assert measured["server_part_bytes"].holds
    assert measured["server_part_proof_bytes"].holds
    assert measured["proxy_vs_seal"].value > 1  # the seal is part of it


def test_uploads_of_a_thousand_counts_keep_their_bars() -> None:
    found = {m.name: m for m in gather.sizes(gather.FULL)}
    assert found["upload_bytes"].holds
    assert found["server_part_bytes"].value == 80
