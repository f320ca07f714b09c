"""Architectures as frozen values: networks' shapes, lookup by name, and what each can be trained by.

`Mlp`, the two-tower network: a public tower, the sensitive embeddings beside it, and common layers above both.

    public ids -> embeddings -> public layers ---+
                                                 +--> common layers -> one linear unit -> score
    sensitive ids -> embeddings -----------------+

Every layer but the last ends in a ReLU (the two towers and the sizes: Chua et al., AdKDD 2024).

`Fnn`, the server's model: embeddings of public fields and a feed-forward net above them. It is the truncated
form of `Mlp` with `public_layers = []`: it has no sensitive tower to leave out, no weight that could meet a
sensitive feature, and refuses a part that would read one. (Zhang, Du, Wang 2016, arXiv 1601.02376, here without
pre-training.)

`Din`, the device's model: all features, and attention over what the person did before.

    public, sensitive ids -> embeddings ------------------------------+
    candidate q, event h  -> weight a(q, h), one for each event       +--> layers -> one linear unit -> score
                             sum of a h, and of a, over the events ---+

An event is a row of the person's history, such as a category and a brand; q is the candidate's own category and
brand, read from the same table rows. The weight comes from a small net over (q, h, q - h, q * h) and is not
normalised: a person with many events like the candidate has a larger sum (Zhou et al., KDD 2018, arXiv
1706.06978). Differences from theirs: the net is also told which values are the same, which rare values would
take long to learn; the sum of the weights is passed on beside that of the events; activations are ReLUs. It
trains on true or on noisy labels. Its attention has no per-example norms, so DP-SGD is refused.

The networks themselves need torch and are imported when they are built.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from tacit import expect
from tacit.data.encoding.encoder import Encoder
from tacit.errors import BadInput
from tacit.schema.columns import Role
from tacit.train.examples import Examples, Sizes
from tacit.train.models.factorization_machine import FactorizationMachine, LogisticRegression
from tacit.train.models.model import Architecture, NormalSource, Part
from tacit.train.statistic.model import FieldFactors
from tacit.train.statistic.offset import BesideStatistic

if TYPE_CHECKING:
    from tacit.train.models.attention_network import AttentionNetwork
    from tacit.train.models.two_tower_network import PublicNetwork, TwoTowerNetwork


SMALL_WIDTH = 128  # up to which layers of a network are trained by one thread


def check_widths(key: str, given: Any) -> tuple[int, ...]:
    """Whole numbers; a file holds them in a list."""
    if not isinstance(given, list | tuple):
        raise BadInput(f"expected {key} to be a list of widths, got {given!r}")
    return tuple(expect.whole(f"every width in {key}", width, at_least=1) for width in given)


@dataclass(frozen=True)
class Mlp:
    """A two-tower multilayer perceptron: public layers first, common layers over both towers after them.

    Embeddings of `dim` numbers start as N(0, start^2). Layers are given by width; there may be none.
    """

    dim: int = 32
    public_layers: tuple[int, ...] = (598,)
    common_layers: tuple[int, ...] = (598, 598)
    start: float = 0.01
    name: ClassVar[str] = "mlp"

    def __post_init__(self) -> None:
        expect.whole("dim", self.dim, at_least=1)
        expect.positive("start", self.start)
        for key in ("public_layers", "common_layers"):
            object.__setattr__(self, key, check_widths(key, getattr(self, key)))

    def build(self, sizes: Sizes, normal: NormalSource) -> TwoTowerNetwork:
        if importlib.util.find_spec("torch") is None:
            raise BadInput("expected torch for an mlp, got none: pip install 'tacit[train]'")
        from tacit.train.models.two_tower_network import TwoTowerNetwork

        return TwoTowerNetwork.fresh(self, sizes, normal)


@dataclass(frozen=True)
class Fnn:
    """A feed-forward network over embeddings of public features: layers by width, each with a ReLU.

    Embeddings of `dim` numbers start as N(0, start^2).
    """

    dim: int = 16
    layers: tuple[int, ...] = (64, 32)
    start: float = 0.05
    name: ClassVar[str] = "fnn"

    def __post_init__(self) -> None:
        expect.whole("dim", self.dim, at_least=1)
        expect.positive("start", self.start)
        object.__setattr__(self, "layers", check_widths("layers", self.layers))

    def activations(self, sizes: Sizes) -> int:
        """Numbers that a forward pass keeps for each example."""
        return sizes.public_fields * self.dim + sum(self.layers)

    def build(self, sizes: Sizes, normal: NormalSource) -> PublicNetwork:
        if importlib.util.find_spec("torch") is None:
            raise BadInput("expected torch for an fnn, got none: pip install 'tacit[train]'")
        from tacit.train.models.two_tower_network import PublicNetwork

        return PublicNetwork.of_public(self, sizes, normal)


@dataclass(frozen=True)
class Din:
    """A deep interest network: a feed-forward network with attention over each row's history of events.

    `history` names sequence columns that share their values with a public field: the log's own say which. Of
    each row's events the last `length` count. `attention` and `layers` are widths, with a ReLU each.
    """

    history: tuple[str, ...] = ("history_category", "history_brand")
    length: int = 20
    dim: int = 16
    attention: tuple[int, ...] = (32,)
    layers: tuple[int, ...] = (64, 32)
    start: float = 0.05
    name: ClassVar[str] = "din"

    def __post_init__(self) -> None:
        expect.whole("length", self.length, at_least=1)
        expect.whole("dim", self.dim, at_least=1)
        expect.positive("start", self.start)
        given = self.history
        if not isinstance(given, list | tuple) or not given or not all(isinstance(each, str) for each in given):
            raise BadInput(f"expected history to be a list of one or more column names, got {given!r}")
        object.__setattr__(self, "history", tuple(given))
        for key in ("attention", "layers"):
            object.__setattr__(self, key, check_widths(key, getattr(self, key)))

    def activations(self, sizes: Sizes) -> int:
        """Numbers that a forward pass keeps for each example, of a history of full length."""
        event = len(self.history) * self.dim
        unit = 8 * event + 2 * sum(self.attention) + 2  # q, h, q - h and q * h, and all of it side by side
        fields = sizes.public_fields + sizes.sensitive_fields
        return self.length * unit + 2 * (fields * self.dim + event + 1) + 2 * sum(self.layers)

    def build(self, sizes: Sizes, normal: NormalSource) -> AttentionNetwork:
        if importlib.util.find_spec("torch") is None:
            raise BadInput("expected torch for a din, got none: pip install 'tacit[train]'")
        from tacit.train.models.attention_network import AttentionNetwork

        return AttentionNetwork.fresh(self, sizes, normal)


def only_part(shape: Architecture) -> Part | None:
    """The only part that an architecture has; None where the method may choose."""
    if isinstance(shape, Fnn):
        return Part.TRUNCATED
    return Part.WHOLE if isinstance(shape, Din) else None


def sensitive_columns(shape: Architecture, part: Part, encoder: Encoder) -> tuple[str, ...]:
    """The sensitive columns that a prediction reads: fields of the sensitive side, and histories that are
    sensitive although they share a public field's values. What it says of a row is a release about these."""
    if part is Part.TRUNCATED:
        return ()
    public = {column.name for column in encoder.columns if Role.PUBLIC in column.roles}
    histories = shape.history if isinstance(shape, Din) else ()
    return (*encoder.fields(Role.SENSITIVE), *(name for name in histories if name not in public))


def expect_method(shape: Architecture, method: str) -> None:
    """Refuse a method, by its name in a configuration, that the architecture cannot be trained by."""
    if method in ("plain", "label-dp") or only_part(shape) is None:
        return
    reads = "only public features" if isinstance(shape, Fnn) else "a history, whose gradients are not clipped"
    raise BadInput(f"expected method plain or label-dp for {shape.name}, which reads {reads}, got {method}")


def expect_part(shape: Architecture, part: Part, *, clipped: bool = False) -> None:
    """Refuse a part that the architecture does not have, and clipped gradients where it has none."""
    if clipped:
        expect_method(shape, "dp-sgd")
    own = only_part(shape)
    if own is not None and part is not own:
        reads = "no sensitive feature" if own is Part.TRUNCATED else "the person's history"
        raise BadInput(f"{shape.name}: expected part {own}, for it reads {reads}, got {part}")


def expect_history(shape: Architecture, examples: Examples) -> None:
    """Refuse a log without the histories that a model attends to."""
    for name in shape.history if isinstance(shape, Din) else ():
        if name not in examples.histories:
            known = ", ".join(sorted(examples.histories)) or "none"
            raise BadInput(
                f"model.history: expected sequences of a public field's values, which here are {known}, "
                f"got {name!r}"
            )


Shape = FactorizationMachine | LogisticRegression | Mlp | Fnn | Din | FieldFactors | BesideStatistic
ARCHITECTURES: tuple[type[Shape], ...] = (
    FactorizationMachine,
    LogisticRegression,
    Mlp,
    Fnn,
    Din,
    FieldFactors,
    BesideStatistic,
)


def make_architecture(name: str, settings: Mapping[str, Any]) -> Architecture:
    """The architecture of this name, with these of its fields and the defaults of the others."""
    by_name = {kind.name: kind for kind in ARCHITECTURES}
    if name not in by_name:
        raise BadInput(
            f"expected an architecture named {', '.join(by_name)}, got {name!r}{expect.nearest(name, by_name)}"
        )
    kind = by_name[name]
    allowed = [field.name for field in fields(kind)]
    for key in settings:
        if key not in allowed:
            raise BadInput(f"architecture {name}: expected {', '.join(allowed) or 'no settings'}, got {key!r}")
    if kind is BesideStatistic:
        own = settings["own"]
        settings = {**settings, "own": make_architecture(own["name"], own["settings"])}
    return kind(**settings)


def architecture_settings(shape: Architecture) -> dict[str, Any]:
    """What `make_architecture` needs, with the name, to make the same one."""
    if not isinstance(shape, ARCHITECTURES):
        raise BadInput(f"expected {', '.join(kind.name for kind in ARCHITECTURES)}, got {type(shape).__name__}")
    said = {field.name: getattr(shape, field.name) for field in fields(shape)}
    if isinstance(shape, BesideStatistic):
        said["own"] = {"name": shape.own.name, "settings": architecture_settings(shape.own)}
    return said


@contextmanager
def few_threads(shape: Architecture) -> Iterator[None]:
    """One thread of torch for a small network: its products are too short to share, and where others use the
    machine too, threads that wait for each other at every one of them take ten times as long."""
    small = isinstance(shape, Mlp) and max(*shape.public_layers, *shape.common_layers, 0, 0) <= SMALL_WIDTH
    if not small or importlib.util.find_spec("torch") is None:  # without it no network is built
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
