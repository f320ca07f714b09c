"""Models that tacit trained, as an ad server uses them: packed into a version, scoring contexts and campaigns.

    content = pack_model(Path("model"))                          # the folder that `tacit train` wrote
    scorer = RateModel.of(content, hierarchy, advertiser_of)     # refused where it wants other columns
    scorer([node], [7, 9])                                       # (1, 2) chances

A server's model may read what is public of a cell, and nothing else: the attributes of contexts, by their names
in the hierarchy and as generalised as they are told; `campaign`, the campaign's number; `advertiser`, its
advertiser's name. Nothing is known here of who is asking, so a model that reads anything of a person is refused
by the names of those columns: it belongs on devices (`deliver/device/rates.py`).
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.arrays import Floats
from tacit.deliver.campaigns.versions import MOST_CONTENT, NewVersion, VersionKind
from tacit.display import brief
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Hierarchy, Node

if TYPE_CHECKING:  # what follows takes a second to load, and is loaded where a model is
    from tacit.schema.columns import Column
    from tacit.train.models.saving import SavedModel

CAMPAIGN, ADVERTISER = "campaign", "advertiser"
MOST_FILES = 32
SCORED_AT_ONCE = 2**17  # cells

AdvertiserOf = Callable[[int], str | None]
"""Who pays for a campaign; None where nobody is known to."""


def pack_model(folder: Path) -> bytes:
    """The files of a saved model in one archive, the same for the same model; refused unless it loads."""
    from tacit.train.models.saving import load

    load(folder)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file in sorted(each for each in folder.iterdir() if each.is_file()):
            entry = tarfile.TarInfo(file.name)
            entry.size = file.stat().st_size
            with file.open("rb") as opened:
                archive.addfile(entry, opened)
    content = packed.getvalue()
    if len(content) > MOST_CONTENT:
        raise BadInput(f"{folder}: expected a model of at most {MOST_CONTENT} bytes, got {len(content)}")
    return content


def unpack_model(content: bytes, folder: Path) -> None:
    """Write the files of a packed model into an empty folder; anything but plain files is refused."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            members = archive.getmembers()
            if len(members) > MOST_FILES or sum(each.size for each in members) > MOST_CONTENT:
                raise BadInput("expected a packed model of few files, got a larger archive")
            for each in members:
                if not each.isreg() or Path(each.name).name != each.name or each.name in ("", ".", ".."):
                    raise BadInput("expected a packed model of plain files, got something else in it")
                file = archive.extractfile(each)
                assert file is not None, "it is a plain file"
                (folder / each.name).write_bytes(file.read())
    except BadInput:
        raise
    except (tarfile.TarError, EOFError, ValueError, OSError):  # what tarfile says of bytes it cannot read
        raise BadInput("expected a packed model, got other bytes") from None


def read_model(content: bytes) -> SavedModel:
    """The model in a version; anything torn or changed is refused."""
    from tacit.train.models.saving import load

    with tempfile.TemporaryDirectory() as place:
        unpack_model(content, Path(place))
        try:
            return load(Path(place))
        except BadInput as wrong:
            raise BadInput(str(wrong).replace(f"{place}/", "")) from None


def allowed_columns(hierarchy: Hierarchy) -> tuple[str, ...]:
    """What a server's model may read."""
    return (*(each.name for each in hierarchy.attributes), CAMPAIGN, ADVERTISER)


def read_columns(saved: SavedModel) -> list[Column]:
    """The columns that its predictions depend on."""
    from tacit.schema.columns import Role
    from tacit.train.models.model import Part

    roles = (Role.PUBLIC,) if saved.part is Part.TRUNCATED else (Role.PUBLIC, Role.SENSITIVE)
    return [column for role in roles for column in saved.encoder.columns if role in column.roles]


def expect_public_model(saved: SavedModel, hierarchy: Hierarchy) -> None:
    """Refuse a model that predicts no probability, or reads what a server does not know."""
    from tacit.schema.columns import Kind
    from tacit.train.targets import Head

    if saved.simulated and not saved.synthetic:
        raise BadInput("expected a model that may be released, got one whose noise came from a seed")
    if saved.head is not Head.LOGISTIC:
        raise BadInput(f"expected a model of probabilities, got a {saved.head} head")
    allowed, read = allowed_columns(hierarchy), read_columns(saved)
    other = [each.source for each in read if each.source not in allowed or each.kind is Kind.SEQUENCE]
    if other:
        raise BadInput(
            f"expected a model that reads {', '.join(allowed)} and nothing of a person, got one that reads "
            f"{', '.join(other)}"
        )
    if not read:
        raise BadInput("expected a model that reads something of contexts or campaigns, got one that does not")


def model_version(
    folder: Path, hierarchy: Hierarchy, kind: VersionKind, *, said: dict[str, Any] | None = None
) -> NewVersion:
    """A saved model as a version to add, with what is said of it: how it was trained, its privacy statement."""
    return packed_version(pack_model(folder), folder.resolve().name, hierarchy, kind, said=said)


def packed_version(
    content: bytes, name: str, hierarchy: Hierarchy, kind: VersionKind, *, said: dict[str, Any] | None = None
) -> NewVersion:
    """The same of a packed model."""
    if kind not in (VersionKind.MODEL, VersionKind.CONVERSIONS):
        raise BadInput(f"expected a kind of model, got {kind}")
    saved = read_model(content)
    expect_public_model(saved, hierarchy)
    body = {
        "name": name,
        "method": saved.method,
        "columns": [each.source for each in read_columns(saved)],
        "synthetic": saved.synthetic,
        "statement": None if saved.statement is None else dict(saved.statement),
        **(said or {}),
    }
    digest = NewVersion(kind, "a model", {}, content).digest
    return NewVersion(kind, f"model {digest}", body, content)


class RateModel:
    """Scores of (context, campaign) cells by a saved model.

    Features of a context are looked up once for all campaigns, and those of a campaign once for all contexts. A
    factorization machine is then a product of two matrices: with v the sum of a side's factors, a cell's score
    is b + A(context) + B(campaign) + v(context) . v(campaign). Other models score cells some at a time.
    """

    def __init__(self, saved: SavedModel, hierarchy: Hierarchy, advertiser_of: AdvertiserOf) -> None:
        expect_public_model(saved, hierarchy)
        self._saved, self._advertiser_of = saved, advertiser_of
        self._names = tuple(each.name for each in hierarchy.attributes)

    @classmethod
    def of(cls, content: bytes, hierarchy: Hierarchy, advertiser_of: AdvertiserOf) -> RateModel:
        return cls(read_model(content), hierarchy, advertiser_of)

    def __repr__(self) -> str:
        return brief(self, method=self._saved.method, columns=[each.source for each in self._columns])

    @property
    def _columns(self) -> list[Column]:
        return read_columns(self._saved)

    def __call__(self, nodes: Sequence[Node], campaigns: Sequence[int]) -> Floats:
        """(nodes, campaigns) the chances that the model expects."""
        from tacit.train.models.factorization_machine import FmModel

        if not len(nodes) or not len(campaigns):
            return np.zeros((len(nodes), len(campaigns)))
        for node in nodes:
            if len(node.values) != len(self._names):
                raise BadInput(
                    f"{node}: expected a value for each of {len(self._names)} attributes, got others"
                )
        scores = self._product if isinstance(self._saved.model, FmModel) else self._cells
        found: Floats = np.clip(scores(nodes, campaigns).astype(np.float64), 0.0, 1.0)
        return found

    def _encoded(self, nodes: Sequence[Node], campaigns: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
        """(rows, public fields) and (rows, sensitive fields): ids of cells, a node and a campaign each."""
        from tacit.data.frames import encode_rows, read_frame

        values: dict[str, list[Any]] = {
            name: [node.values[place] for node in nodes] for place, name in enumerate(self._names)
        }
        values[CAMPAIGN] = list(campaigns)
        values[ADVERTISER] = [self._advertiser_of(each) or "" for each in campaigns]
        unread = {each.source for each in self._saved.encoder.columns} - values.keys()
        frame = read_frame({**values, **{source: [None] * len(nodes) for source in unread}})
        return encode_rows(self._saved.encoder, frame)

    def _sides(self, nodes: Sequence[Node], campaigns: Sequence[int]) -> tuple[Any, Any]:
        """Ids of contexts beside the first campaign, and of campaigns beside the first context."""
        return (
            self._encoded(nodes, [campaigns[0]] * len(nodes)),
            self._encoded([nodes[0]] * len(campaigns), campaigns),
        )

    def _of_contexts(self) -> list[NDArray[np.bool_]]:
        """Which fields of either role are of contexts."""
        from tacit.schema.columns import Role

        by_name = {each.name: each for each in self._saved.encoder.columns}
        return [
            np.array([by_name[name].source in self._names for name in self._saved.encoder.fields(role)], bool)
            for role in (Role.PUBLIC, Role.SENSITIVE)
        ]

    def _product(self, nodes: Sequence[Node], campaigns: Sequence[int]) -> NDArray[Any]:
        from tacit.schema.columns import Role
        from tacit.train.models.factorization_machine import FmModel
        from tacit.train.models.model import Part
        from tacit.train.statistic.model import FieldFmModel

        model, part = self._saved.model, self._saved.part
        assert isinstance(model, FmModel), "asked for those alone"
        table = model.table.astype(np.float64)
        sides = self._sides(nodes, campaigns)
        roles = (Role.PUBLIC,) if part is Part.TRUNCATED else (Role.PUBLIC, Role.SENSITIVE)
        starts, place = [], 0
        for role in roles:
            for _ in self._saved.encoder.fields(role):
                apart = isinstance(model, FieldFmModel)
                first = 0 if role is Role.PUBLIC else model.sizes.public_rows
                starts.append(place * model.sizes.public_rows if apart else first)
                place += 1
        is_context = np.concatenate(self._of_contexts()[: len(roles)])
        sums, own = [], []
        for side, chosen in zip(sides, (is_context, ~is_context), strict=True):
            ids = np.concatenate(side[: len(roles)], axis=1).astype(np.int64) + np.array(starts, np.int64)
            rows = table[ids[:, chosen]]  # (cells of the side, its fields, 1 + factors)
            total = rows[:, :, 1:].sum(axis=1)
            alone = rows[:, :, 0].sum(axis=1)
            sums.append(total)
            own.append(alone + ((total**2).sum(axis=1) - (rows[:, :, 1:] ** 2).sum(axis=(1, 2))) / 2)
        scores = float(model.bias[0]) + own[0][:, None] + own[1][None, :] + sums[0] @ sums[1].T
        return self._saved.head.mean(scores.astype(np.float32))

    def _cells(self, nodes: Sequence[Node], campaigns: Sequence[int]) -> NDArray[Any]:
        from tacit.data.splits import RowSet
        from tacit.train.examples import Examples

        contexts, others = self._sides(nodes, campaigns)
        chosen, count = self._of_contexts(), len(campaigns)
        found = np.empty((len(nodes), count), np.float32)
        step = max(1, SCORED_AT_ONCE // count)
        for first in range(0, len(nodes), step):
            rows = min(step, len(nodes) - first)
            both = [
                np.where(
                    which[None, :],
                    np.repeat(of_contexts[first : first + rows], count, axis=0),
                    np.tile(of_campaigns, (rows, 1)),
                ).astype(np.int32)
                for which, of_contexts, of_campaigns in zip(chosen, contexts, others, strict=True)
            ]
            examples = Examples(
                both[0], both[1], self._saved.model.sizes, RowSet(slice(0, rows * count)),
                encoder_digest=self._saved.encoder.digest,
            )  # fmt: skip
            found[first : first + rows] = self._saved.predict(examples).reshape(rows, count)
        return found
