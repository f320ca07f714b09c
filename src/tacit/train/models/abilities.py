"""What an architecture can be trained by, and what it needs to read: refused before anything is paid for."""

from __future__ import annotations

from tacit.data.encoding.encoder import Encoder
from tacit.errors import BadInput
from tacit.schema.columns import Role
from tacit.train.examples import Examples
from tacit.train.models.din import Din
from tacit.train.models.fnn import Fnn
from tacit.train.models.model import Architecture, Part


def own_part(shape: Architecture) -> Part | None:
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
    if method in ("plain", "label-dp") or own_part(shape) is None:
        return
    reads = "only public features" if isinstance(shape, Fnn) else "a history, whose gradients are not clipped"
    raise BadInput(f"expected method plain or label-dp for {shape.name}, which reads {reads}, got {method}")


def expect_able(shape: Architecture, part: Part, *, clipped: bool = False) -> None:
    """Refuse a part that the architecture does not have, and clipped gradients where it has none."""
    if clipped:
        expect_method(shape, "dp-sgd")
    own = own_part(shape)
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
