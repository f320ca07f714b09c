"""Golden vectors of consent, for two languages: what every string and flag decides."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tacit.deliver.consent.signals import ConsentSignals, ConsentVerdict, decide_consent
from tacit.errors import BadInput
from tests.support.repository import VECTORS
from tests.vectors.make_device_consent_v1 import NAMES, records

CONSENT_V1: dict[str, Any] = json.loads((VECTORS / "device_consent_v1.json").read_text())
PYTHON = {javascript: python for python, javascript in NAMES.items()}


def test_all_vectors_come_out_as_they_are() -> None:
    assert json.loads(json.dumps(records())) == CONSENT_V1


def test_what_is_written_there_is_decided_so() -> None:
    for case in CONSENT_V1["cases"]:
        said = dict(case["signals"])
        vendor = said.pop("vendor")
        signals: dict[str, Any] = {
            PYTHON[name]: tuple(value) if name == "gppSid" else value for name, value in said.items()
        }
        found = decide_consent(ConsentSignals(**signals), vendor=vendor).verdict.name
        assert found == case["why"], case["name"]


def test_every_verdict_is_there() -> None:
    found = Counter(case["why"] for case in CONSENT_V1["cases"])
    assert set(found) == {verdict.name for verdict in ConsentVerdict}
    assert sum(found.values()) >= 150
    assert len({case["name"] for case in CONSENT_V1["cases"]}) == len(CONSENT_V1["cases"])


@pytest.mark.parametrize("vendor", CONSENT_V1["bad_vendors"])
def test_what_is_no_vendor_is_refused(vendor: Any) -> None:
    with pytest.raises(BadInput, match="vendor"):
        decide_consent(ConsentSignals(), vendor=vendor)
