"""Golden vectors of packs, for two languages: what devices read and refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tacit.bill.protocol.encoding import BillVerdict
from tacit.deliver.protocol.packs import read_pack
from tacit.errors import BillRefused
from tests.support.repository import VECTORS
from tests.vectors.make_device_packs_v1 import records

PACKS_V1: dict[str, Any] = json.loads((VECTORS / "device_packs_v1.json").read_text())
SERVER, MENU_ID = bytes.fromhex(PACKS_V1["server_signing"]), bytes.fromhex(PACKS_V1["menu_id"])


def test_all_vectors_come_out_as_they_are() -> None:
    assert json.loads(json.dumps(records())) == PACKS_V1


@pytest.mark.parametrize("name", sorted(PACKS_V1["packs"]))
def test_packs(name: str) -> None:
    said = PACKS_V1["packs"][name]
    pack = read_pack(bytes.fromhex(said["bytes"]), SERVER, MENU_ID)
    assert [each.as_json() for each in pack.campaigns] == said["campaigns"]


@pytest.mark.parametrize("name", sorted(PACKS_V1["bad_packs"]))
def test_bad_packs(name: str) -> None:
    said = PACKS_V1["bad_packs"][name]
    with pytest.raises(BillRefused) as refusal:
        read_pack(bytes.fromhex(said["bytes"]), SERVER, MENU_ID)
    assert BillVerdict(refusal.value.reason).name == said["verdict"]
