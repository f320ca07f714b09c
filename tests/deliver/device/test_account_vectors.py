"""Golden vectors of a device's account, for two languages: what its choices spend, on both counts."""

from __future__ import annotations

import json

from tests.support.repository import VECTORS
from tests.vectors.make_device_account_v1 import records


def test_all_vectors_come_out_as_they_are() -> None:
    assert json.loads(json.dumps(records())) == json.loads((VECTORS / "device_account_v1.json").read_text())
