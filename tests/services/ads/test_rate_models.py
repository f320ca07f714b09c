"""Models as an ad server uses them: which it takes, and that its fast scores are the model's own."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.data.encoding.encoder import Encoder
from tacit.data.encoding.vocabulary import Hashing
from tacit.data.frames import encode_rows, read_frame
from tacit.data.splits import RowSet
from tacit.deliver.campaigns.versions import VersionKind
from tacit.errors import BadInput
from tacit.schema.columns import Column, Kind, LogSchema, Role
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Node, Sequence
from tacit.schema.contexts.tree import Tree
from tacit.services.ads.rate_models import RateModel, model_version, pack_model, read_model, unpack_model
from tacit.train.examples import Examples
from tacit.train.models.architectures import Mlp
from tacit.train.models.factorization_machine import FactorizationMachine, LogisticRegression
from tacit.train.models.model import Architecture, Part
from tacit.train.models.saving import SavedModel, save
from tacit.train.targets import Head
from tests.support.saved_models import small_saved

TREE = Tree.of({"any": None, "North": "any", "South": "any"})
TOPIC = Tree.of({"all": None, "Food": "all", "Sport": "all"})
HIERARCHY = Sequence((Steps("city", TREE), Steps("topic", TOPIC)), [(0, 0), (0, 1), (1, 1)])
NODES = [Node((0, 0), (city, topic)) for city in ("North", "South") for topic in ("Food", "Sport")]
NODES.append(Node((1, 1), ("*", "*")))
CAMPAIGNS = [3, 7, 11]
PAYS = {3: "Bean & Leaf", 7: "Tea House"}


def an_encoder(
    public: tuple[str, ...] = ("city", "topic", "campaign"), sensitive: tuple[str, ...] = ()
) -> Encoder:
    columns = [Column(name, frozenset({Role.PUBLIC})) for name in public]
    columns += [Column(name, frozenset({Role.SENSITIVE})) for name in sensitive]
    columns.append(Column("clicked", frozenset({Role.LABEL}), Kind.FLAG))
    return Encoder.of(LogSchema("small", tuple(columns)), Hashing(9), Hashing(5))


def a_model(shape: Architecture, encoder: Encoder | None = None, **others: Any) -> SavedModel:
    return small_saved(shape, encoder or an_encoder(), **others)


def by_rows(saved: SavedModel) -> Any:
    """The slow way: each cell as a row of a frame."""
    cells = [(node, campaign) for node in NODES for campaign in CAMPAIGNS]
    frame = {
        "city": [node.values[0] for node, _ in cells],
        "topic": [node.values[1] for node, _ in cells],
        "campaign": [campaign for _, campaign in cells],
        "advertiser": [PAYS.get(campaign, "") for _, campaign in cells],
        "age": [None] * len(cells),
    }
    public, sensitive = encode_rows(saved.encoder, read_frame(frame))
    rows = RowSet(slice(0, len(cells)))
    examples = Examples(public, sensitive, saved.model.sizes, rows, encoder_digest=saved.encoder.digest)
    return saved.predict(examples).reshape(len(NODES), len(CAMPAIGNS))


@pytest.mark.parametrize(
    "shape",
    [
        FactorizationMachine(dim=4, start=0.5),
        LogisticRegression(),
        Mlp(dim=3, public_layers=(5,), common_layers=(4,), start=0.5),
    ],
    ids=["fm", "logistic", "mlp"],
)
@pytest.mark.parametrize(
    "encoder",
    [
        an_encoder(),
        an_encoder(
            ("campaign", "city", "advertiser"), ("topic",)
        ),  # contexts may have been protected in training
        an_encoder(("city",)),
    ],
    ids=["public", "both", "one"],
)
def test_scores_are_those_of_rows(shape: Architecture, encoder: Encoder) -> None:
    saved = a_model(shape, encoder)
    scores = RateModel(saved, HIERARCHY, PAYS.get)(NODES, CAMPAIGNS)
    assert scores == pytest.approx(by_rows(saved), rel=1e-5)
    assert ((scores > 0) & (scores < 1)).all()
    assert RateModel(saved, HIERARCHY, PAYS.get)([], CAMPAIGNS).shape == (0, 3)


def test_a_truncated_model_does_not_read_what_it_was_not_trained_on() -> None:
    encoder = an_encoder(sensitive=("age",))
    shape = Mlp(dim=3, public_layers=(5,), common_layers=(4,), start=0.5)
    saved = a_model(shape, encoder, part=Part.TRUNCATED)
    assert RateModel(saved, HIERARCHY, PAYS.get)(NODES, CAMPAIGNS) == pytest.approx(by_rows(saved), rel=1e-5)


@pytest.mark.parametrize(
    ("encoder", "others", "words"),
    [
        (an_encoder(("city", "age", "user")), {}, "nothing of a person, got one that reads age, user$"),
        (an_encoder(sensitive=("age",)), {}, "got one that reads age$"),
        (an_encoder(), {"head": Head.POISSON}, "expected a model of probabilities"),
    ],
)
def test_a_model_of_other_columns_is_refused_by_their_names(
    encoder: Encoder, others: dict[str, Any], words: str, tmp_path: Path
) -> None:
    saved = a_model(FactorizationMachine(dim=2), encoder, **others)
    save(tmp_path / "model", saved)
    with pytest.raises(BadInput, match=words) as caught:
        model_version(tmp_path / "model", HIERARCHY, VersionKind.MODEL)
    assert "\n" not in str(caught.value)


def test_a_model_is_packed_into_the_same_bytes_and_read_back(tmp_path: Path) -> None:
    saved = a_model(FactorizationMachine(dim=4, start=0.5), statement={"epsilon": 2.0})
    save(tmp_path / "clicks", saved)
    made = model_version(tmp_path / "clicks", HIERARCHY, VersionKind.MODEL, said={"evaluation": None})
    assert made.content == pack_model(tmp_path / "clicks")
    assert made.body["statement"] == {"epsilon": 2.0}
    assert (made.body["columns"], made.body["name"]) == (["city", "topic", "campaign"], "clicks")
    again = RateModel.of(made.content, HIERARCHY, PAYS.get)
    assert again(NODES, CAMPAIGNS) == pytest.approx(by_rows(saved), rel=1e-5)
    with pytest.raises(BadInput, match="expected a kind of model"):
        model_version(tmp_path / "clicks", HIERARCHY, VersionKind.STATISTICS)


def test_a_packed_model_that_was_changed_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "clicks", a_model(FactorizationMachine(dim=4, start=0.5)))
    content = pack_model(tmp_path / "clicks")
    changed = bytearray(content)
    changed[content.index(b"weights.safetensors") + 600] ^= 1
    for wrong in (b"", content[:600], bytes(changed)):
        with pytest.raises(BadInput, match="expected") as caught:
            read_model(wrong)
        assert "/tmp" not in str(caught.value)
        assert "/dev/shm" not in str(caught.value)


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "folder/file", "link"])
def test_an_archive_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        if name == "link":
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry, io.BytesIO())
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(BadInput, match="plain files"):
        unpack_model(packed.getvalue(), inside)
    assert [*inside.iterdir()] == []
    assert not (tmp_path / "outside").exists()


def test_a_large_table_of_cells_is_scored_soon() -> None:
    model = RateModel(a_model(FactorizationMachine(dim=8, start=0.5)), HIERARCHY, PAYS.get)
    nodes = [NODES[place % 4] for place in range(200)]
    found = model(nodes, list(range(2_000)))
    assert found.shape == (200, 2_000)
    assert np.isfinite(found).all()
