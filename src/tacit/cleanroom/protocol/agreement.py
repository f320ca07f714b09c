"""Agreements: first terms that both parties signed, then amendments. Either may tighten; both must loosen.

Every signature covers the whole history up to its step, so it is valid in one place of one agreement: an old
amendment cannot be used again later, nor in another collaboration.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tacit.cleanroom.protocol import signatures as signing
from tacit.cleanroom.protocol.encoding import RoomRefusal, canonical_json, read_canonical_json
from tacit.cleanroom.protocol.modes import Signer
from tacit.cleanroom.protocol.signatures import PrivateKey, is_signed
from tacit.cleanroom.protocol.terms import Terms
from tacit.errors import BadInput, RoomRefused

START = "0" * 64
MOST_STEPS = 256
MOST_AGREEMENT_BYTES = 2**24
_PURPOSE = "agreement"

Allows = Callable[[Terms, Terms], bool]
"""Whether the second terms allow more than the first, in one field."""


def _if_changed(key: str) -> Allows:
    return lambda old, new: bool(getattr(old, key) != getattr(new, key))


def _larger(key: str) -> Allows:
    return lambda old, new: bool(getattr(new, key) > getattr(old, key))


def _smaller(key: str) -> Allows:
    return lambda old, new: bool(getattr(new, key) < getattr(old, key))


def _if_added(key: str) -> Allows:
    return lambda old, new: not set(getattr(new, key)) <= set(getattr(old, key))


def _tasks_allow_more(old: Terms, new: Terms) -> bool:
    """A task more; or a task fewer, where the others would share its part of epsilon and be flipped less."""
    fewer = set(new.tasks) < set(old.tasks)
    sharper = new.mode.flips and new.task_epsilon > old.task_epsilon
    return _if_added("tasks")(old, new) or (fewer and sharper)


ALLOWS_MORE: Mapping[str, Allows] = {
    "epsilon": _larger("epsilon"),
    "delta": _larger("delta"),
    "releases_per_record": _larger("releases_per_record"),
    "expires": _larger("expires"),
    "begins": _smaller("begins"),
    "smallest_batch": _smaller("smallest_batch"),
    "dense_sequences": _smaller("dense_sequences"),
    "metrics": _larger("metrics"),
    "tasks": _tasks_allow_more,
    "codecs": _if_added("codecs"),
    **{
        key: _if_changed(key)
        for key in (
            "name", "platform", "room", "platform_key", "room_key", "mode", "noise", "clip_norm", "join",
            "most_ids", "window", "label_version",
        )
    },
}  # fmt: skip
"""A rule for every field of the terms. Those in the last group have no tighter side: any change needs both."""


def loosened_fields(old: Terms, new: Terms) -> tuple[str, ...]:
    """The fields in which the new terms allow more than the old, or in which neither side is the tighter.

    Where it is empty, whatever leaves under the new terms is promised at least as much to each record, and to
    each single label of it, as under the old. It says nothing of what left before: a smaller epsilon cannot
    take back a release, and flips or noise at another epsilon are fresh draws. A room that charges a ledger
    of the agreed budget will therefore refuse releases under tightened terms once it has released under
    the old ones, until the budget is renewed by both.
    """
    return tuple(key for key, allows_more in ALLOWS_MORE.items() if allows_more(old, new))


@dataclass(frozen=True)
class AgreementStep:
    """Terms in their place of a history, and who signed them there."""

    serial: int
    before: str  # the digest of the step before; START for the first
    terms: Terms
    signatures: Mapping[Signer, bytes] = field(default_factory=dict)

    @property
    def signed_record(self) -> dict[str, Any]:
        return {"serial": self.serial, "before": self.before, "terms": self.terms.digest}

    @property
    def digest(self) -> str:
        """Of the terms here and of all steps before; signatures stand apart, because they may come later."""
        return hashlib.sha256(canonical_json(self.signed_record)).hexdigest()

    def is_signed_by(self, role: Signer, key: str) -> bool:
        given = self.signatures.get(role)
        return given is not None and is_signed(key, given, _purpose(role), self.signed_record)

    def as_json(self) -> dict[str, Any]:
        signatures = {str(role): given.hex() for role, given in self.signatures.items()}
        return {
            "serial": self.serial,
            "before": self.before,
            "terms": self.terms.as_json(),
            "signatures": signatures,
        }


@dataclass(frozen=True)
class Agreement:
    """The history of what two parties agreed. It may end in a proposal that is not signed enough yet.

    Keys change only with both: the keys in force before a step sign it, and thereby name the ones after.
    """

    steps: tuple[AgreementStep, ...]

    @classmethod
    def propose(cls, terms: Terms) -> Agreement:
        """First terms, for both to sign."""
        return cls((AgreementStep(0, START, terms),))

    @property
    def in_force(self) -> Terms:
        """The last terms that are signed as they must be; raises where there are none, or a signature is false.

        A proposal at the end that still lacks a signature changes nothing.
        """
        self.verify(proposal=True)
        last = self.steps[-1]
        if not missing_signatures(self._before(last), last):
            return last.terms
        if len(self.steps) == 1:
            raise RoomRefused(RoomRefusal.NOT_SIGNED, _waits_for(last, missing_signatures(None, last)))
        return self.steps[-2].terms

    @property
    def waits_for(self) -> tuple[Signer, ...]:
        """Who must still sign the last step; nobody, where it is in force."""
        return missing_signatures(self._before(self.steps[-1]), self.steps[-1])

    @property
    def settled_steps(self) -> tuple[AgreementStep, ...]:
        """The steps that are, or once were, in force: all but a proposal at the end."""
        return self.steps if not self.waits_for else self.steps[:-1]

    def verify(self, *, proposal: bool = False) -> None:
        """Refuse a history that is torn, reordered or not signed; `proposal`: its last step may wait."""
        if not 1 <= len(self.steps) <= MOST_STEPS:
            raise RoomRefused(
                RoomRefusal.NOT_SIGNED, f"expected 1 to {MOST_STEPS} steps, got {len(self.steps)}"
            )
        before, keys_of = START, self.steps[0].terms
        for place, step in enumerate(self.steps):
            if (step.serial, step.before) != (place, before):
                raise RoomRefused(RoomRefusal.NOT_SIGNED, f"step {place} does not follow the one before it")
            if step.terms.name != self.steps[0].terms.name:  # budgets are kept by it
                raise RoomRefused(
                    RoomRefusal.NOT_SIGNED, f"step {place} has another name: that is another agreement"
                )
            for role in step.signatures:
                if not step.is_signed_by(role, keys_of.key_of(role)):
                    raise RoomRefused(
                        RoomRefusal.NOT_SIGNED, f"the {role}'s signature on step {place} is false"
                    )
            lacking = missing_signatures(self._before(step), step)
            if lacking and not (proposal and place == len(self.steps) - 1):
                raise RoomRefused(RoomRefusal.NOT_SIGNED, _waits_for(step, lacking))
            before, keys_of = step.digest, step.terms

    def sign(self, role: Signer, key: PrivateKey) -> Agreement:
        """With this party's signature on the last step."""
        last, role = self.steps[-1], Signer(role)
        before = self._before(last)
        expected = (before or last.terms).key_of(role)
        if signing.public_key(key) != expected:
            raise BadInput(f"expected the {role}'s key of the agreement, got another")
        signature = signing.sign(key, _purpose(role), last.signed_record)
        signed = replace(last, signatures={**last.signatures, role: signature})
        return Agreement((*self.steps[:-1], signed))

    def amend(self, terms: Terms, role: Signer, key: PrivateKey) -> Agreement:
        """With new terms, signed by one: in force at once where they only tighten, else once both signed.

        A proposal that was still waiting is dropped. See `loosened_fields` for what tightening cannot do.
        """
        current = self.in_force
        settled = self.settled_steps
        if terms == current:
            raise BadInput("expected other terms than those in force, got the same")
        if terms.name != current.name:
            raise BadInput(f"expected name to stay {current.name}, got another: that is a new agreement")
        step = AgreementStep(len(settled), settled[-1].digest, terms)
        return Agreement((*settled, step)).sign(role, key)

    def extends(self, older: Agreement) -> bool:
        """Whether all that came into force in the older history did so in this one too, in its place.

        A room takes up only an agreement that extends its own, or a tightening could be undone by an old file.
        Steps that wait for a signature count on neither side: anybody can strip a signature from a file, and
        must not turn what was in force into a proposal by it.
        """
        ours, theirs = ([step.digest for step in each.settled_steps] for each in (self, older))
        return ours[: len(theirs)] == theirs

    def _before(self, step: AgreementStep) -> Terms | None:
        return self.steps[step.serial - 1].terms if step.serial else None

    def to_bytes(self) -> bytes:
        return canonical_json({"steps": [step.as_json() for step in self.steps]})

    @classmethod
    def from_bytes(cls, data: bytes) -> Agreement:
        """An agreement as it was written; whether its signatures hold is for `verify`."""
        record = read_canonical_json("an agreement", data, at_most=MOST_AGREEMENT_BYTES)
        found = record.get("steps") if isinstance(record, dict) and set(record) == {"steps"} else None
        if not isinstance(found, list) or not 1 <= len(found) <= MOST_STEPS:
            raise BadInput(f"expected an agreement of 1 to {MOST_STEPS} steps, got another record")
        steps = tuple(_step(each) for each in found)
        if [step.serial for step in steps] != list(range(len(steps))):
            raise BadInput("expected the steps of an agreement in their order, got another")
        return cls(steps)


def missing_signatures(before: Terms | None, step: AgreementStep) -> tuple[Signer, ...]:
    """Who must still sign: both the first terms and a loosening, one of the two a tightening."""
    if before is not None and not loosened_fields(before, step.terms) and step.signatures:
        return ()
    return tuple(role for role in Signer if role not in step.signatures)


def _purpose(role: Signer) -> str:
    return f"{_PURPOSE} by the {role}"


def _waits_for(step: AgreementStep, lacking: tuple[Signer, ...]) -> str:
    return f"step {step.serial} waits for the signature of the {' and the '.join(lacking)}"


def _step(record: object) -> AgreementStep:
    keys = {"serial", "before", "terms", "signatures"}
    if not isinstance(record, dict) or set(record) != keys:
        raise BadInput(f"expected a step with the keys {', '.join(sorted(keys))}, got another record")
    serial, before, signatures = record["serial"], record["before"], record["signatures"]
    if type(serial) is not int:
        raise BadInput("expected serial to be a whole number, got something else")
    if not isinstance(before, str) or len(before) != len(START):
        raise BadInput("expected before as 64 hexadecimal digits, got another value")
    if not isinstance(signatures, dict):
        raise BadInput("expected signatures by role, got something else")
    found = {Signer(role): _signature(role, given) for role, given in signatures.items()}
    return AgreementStep(serial, before, Terms.from_json(record["terms"]), found)


def _signature(role: str, spelled: object) -> bytes:
    try:
        given = bytes.fromhex(spelled) if isinstance(spelled, str) else b""
    except ValueError:
        given = b""
    if len(given) != signing.SIGNATURE_BYTES or given.hex() != spelled:
        raise BadInput(f"expected the signature of the {role} as 128 hexadecimal digits, got another value")
    return given
