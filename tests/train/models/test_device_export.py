"""Models as devices read them: what the file holds, and what is refused by name."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.vocabulary import Hashing
from tacit.errors import BadInput
from tacit.schema.columns import Column, Kind, LogSchema, Role
from tacit.train.models import device_export
from tacit.train.models.architectures import Mlp
from tacit.train.models.device_export import check_device_export, device_bytes, export_device
from tacit.train.models.factorization_machine import FactorizationMachine, LogisticRegression
from tacit.train.models.model import Part
from tacit.train.models.saving import encoded_sizes
from tacit.train.promise_words import NO_PROMISE
from tacit.train.statistic.model import FieldFactors
from tacit.train.targets import Head
from tests.support.saved_models import small_encoder, small_saved


def read(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack(">I", data[:4])
    record: dict[str, Any] = json.loads(data[4 : 4 + length])
    return record, data[4 + length :]


def test_the_file_holds_the_table_and_the_statement(tmp_path: Path) -> None:
    saved = small_saved(FactorizationMachine(dim=4), statement={"epsilon": 1})
    export_device(saved, tmp_path / "model.tacit")
    record, arrays = read((tmp_path / "model.tacit").read_bytes())
    assert record["statement"] == {"epsilon": 1}
    assert record["encoder_digest"] == saved.encoder.digest
    assert [column["source"] for column in record["columns"]] == [
        *(f"open{at}" for at in range(4)), *(f"hidden{at}" for at in range(3))
    ]  # fmt: skip
    table = np.frombuffer(arrays, "<f4").reshape(-1, record["width"])
    np.testing.assert_array_equal(table, saved.model.tables["table"])
    with pytest.raises(BadInput, match="expected a new file for the model for devices"):
        export_device(saved, tmp_path / "model.tacit")


def test_where_nothing_is_promised_the_file_says_so() -> None:
    assert read(device_bytes(small_saved(LogisticRegression())))[0]["statement"] == NO_PROMISE


def test_a_truncated_file_holds_nothing_sensitive() -> None:
    mark, files = np.float32(123.456), []
    for part in (Part.TRUNCATED, Part.WHOLE):
        saved = small_saved(FactorizationMachine(dim=3), part=part)
        saved.model.tables["table"][saved.model.sizes.public_rows :] = mark
        files.append(device_bytes(saved))
    assert [mark.tobytes() in each for each in files] == [False, True]
    assert b"hidden0" not in files[0]


def test_fields_with_rows_of_their_own_start_where_those_do() -> None:
    encoder = small_encoder(public=3, sensitive=0)
    saved = small_saved(FieldFactors(2), encoder)
    starts = [column["start"] for column in read(device_bytes(saved))[0]["columns"]]
    assert starts == [0, 9, 18]


def test_what_devices_cannot_read_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="expected an fm, logistic, field-fm model for devices, got mlp"):
        device_bytes(small_saved(Mlp(dim=3, public_layers=(5,), common_layers=(6,))))
    with pytest.raises(BadInput, match=r"expected a logistic head for devices, .* got poisson"):
        device_bytes(small_saved(LogisticRegression(), head=Head.POISSON))
    columns = (Column("seen", {Role.PUBLIC}, Kind.SEQUENCE), Column("clicked", {Role.LABEL}, Kind.FLAG))
    encoder = Encoder.of(LogSchema("lists", columns), Hashing(9), Hashing(5))
    with pytest.raises(BadInput, match="column seen: expected single values for devices, got a sequence"):
        check_device_export(LogisticRegression(), Head.LOGISTIC, encoder, 0)
    monkeypatch.setattr(device_export, "LARGEST_BYTES", 10)
    saved = small_saved(LogisticRegression())
    size = 4 * (encoded_sizes(saved.encoder).public_rows + encoded_sizes(saved.encoder).sensitive_rows)
    with pytest.raises(BadInput, match=f"expected at most 10 bytes of weights for devices, got {size}"):
        device_bytes(saved)
