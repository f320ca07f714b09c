"""Terms of a clean room: what both parties sign, with exact numbers and one spelling.

name = "spring"                 # the collaboration; tokens and budgets are kept apart by it
platform = "ads.example"        # the party with features and the model, as its certificate names it
room = "shop.example"           # the party that runs the room and has labels
platform_key = "8f40..."        # Ed25519, public
room_key = "77b2..."
epsilon = 3                     # for all labels of one record together
tasks = ["conversion"]
begins = 2026-01-01T00:00:00Z
expires = 2026-07-01            # midnight UTC; a time has an offset: 2026-07-01T12:00:00Z

The other keys have defaults: see `Terms`. Unknown keys are refused.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, date, datetime, time
from fractions import Fraction
from functools import cached_property
from typing import Any

from tacit import expect
from tacit.cleanroom.protocol import modes
from tacit.cleanroom.protocol.codecs import CODECS
from tacit.cleanroom.protocol.encoding import canonical_json, read_canonical_json
from tacit.cleanroom.protocol.modes import Join, Mode, NoiseLaw, Signer
from tacit.cleanroom.protocol.signatures import check_public_key
from tacit.cleanroom.protocol.tokens import POINT_BYTES, TOKEN_BYTES
from tacit.config import parse_toml
from tacit.errors import BadInput
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.statement import PrivacyStatement

MOST_EPSILON = 40  # one flip in 2^57; above it the labels are given away in all but name
EPSILON_PART, DELTA_PART = Fraction(1, 10**9), Fraction(1, 10**18)  # what a ledger counts in
LEAST_EPSILON, LEAST_DELTA, MOST_DELTA = Fraction(1, 1000), Fraction(1, 10**15), Fraction(1, 1000)
MOST_TASKS, MOST_RELEASES, MOST_IDS, MOST_TIME = 64, 10_000, 2**24, 2**40
MOST_TERMS_BYTES = 2**16
LAST_DATE = 253_402_300_799  # Unix seconds: the end of the year 9999
_EXACT = re.compile(r"[0-9]{1,20}(/[0-9]{1,20})?", re.ASCII)


@dataclass(frozen=True)
class Terms:
    """What a room lets out, to whom, until when. Two terms are equal if and only if their bytes are.

    `releases_per_record` counts the noised sums that one record may be part of, over all tasks and metrics
    together; the other modes release each record once. `delta` is 0 in the modes that flip labels and for
    Laplace noise, and must be stated for the others. `most_ids` is the number of points that a private
    intersection always sends. Times are whole Unix seconds: `begins` is the first, `expires` the first after.
    """

    name: str
    platform: str
    room: str
    platform_key: str
    room_key: str
    begins: int
    expires: int
    mode: Mode = Mode.AGGREGATE
    epsilon: Fraction = Fraction(3)
    delta: Fraction = Fraction(0)
    tasks: tuple[str, ...] = ("conversion",)
    releases_per_record: int = 1
    smallest_batch: int = 256
    codecs: tuple[str, ...] = ("int8", "bf16", "fp32")
    dense_sequences: bool = False
    noise: NoiseLaw = NoiseLaw.GAUSSIAN
    clip_norm: float = 1.0
    metrics: bool = True
    join: Join = Join.TOKENS
    most_ids: int | None = None
    window: int = 0
    label_version: int = 0

    def __post_init__(self) -> None:
        for key, checked in _CHECKS.items():
            object.__setattr__(self, key, checked(key, getattr(self, key)))
        if self.platform == self.room:
            raise BadInput("expected platform and room to have two names, got the same")
        if self.platform_key == self.room_key:
            raise BadInput("expected platform_key and room_key to be two keys, got the same")
        if self.expires <= self.begins:
            begins, expires = format_time(self.begins), format_time(self.expires)
            raise BadInput(f"expected expires after begins, {begins}, got {expires}")
        if self.mode is not Mode.NOISED and self.releases_per_record != 1:
            raise BadInput(
                f"expected releases_per_record = 1 in mode {self.mode}, got {self.releases_per_record}"
            )
        if self.mode is not Mode.NOISED and self.noise is not NoiseLaw.GAUSSIAN:
            raise BadInput(f"expected noise = {NoiseLaw.GAUSSIAN} in mode {self.mode}, got {self.noise}")
        if self.is_pure and self.delta:
            raise BadInput(f"expected delta = 0 in mode {self.mode}, which is pure, got {float(self.delta):g}")
        if not self.is_pure and not LEAST_DELTA <= self.delta <= MOST_DELTA:
            raise BadInput(
                f"expected delta from {float(LEAST_DELTA):g} to {float(MOST_DELTA):g} in mode {self.mode} with "
                f"Gaussian noise, got {float(self.delta):g}"
            )
        if (self.join is Join.PSI) != (self.most_ids is not None):
            raise BadInput(f"expected most_ids with join = psi and only there, got {self.most_ids}")

    @property
    def is_pure(self) -> bool:
        """Whether the promise has no delta."""
        return self.mode.flips or (self.mode is Mode.NOISED and self.noise is NoiseLaw.LAPLACE)

    @property
    def budget(self) -> Budget:
        """What one record may give away, and what a ledger is charged when the first release is made."""
        return Budget(self.epsilon, self.delta)

    @property
    def task_epsilon(self) -> Fraction:
        """The share of each task, where labels are flipped."""
        return self.epsilon / len(self.tasks)

    @cached_property
    def response(self) -> RandomizedResponse:
        """What flips the label of one task."""
        return RandomizedResponse.for_epsilon(self.task_epsilon)

    @property
    def keep(self) -> float:
        """The probability that a flipped label is the true one."""
        return float(self.response.truth)

    @property
    def noise_multiplier(self) -> float:
        """Noise for one unit of sensitivity: a standard deviation, or Laplace's scale; 0 where labels flip."""
        return modes.terms_noise_multiplier(self)

    def statement(self) -> PrivacyStatement:
        """What is promised for one record, by all that ever leaves under these terms."""
        return modes.terms_statement(self)

    def is_open(self, now: int) -> bool:
        """Whether the terms hold at this second."""
        return self.begins <= now < self.expires

    def why_closed(self, now: int) -> str | None:
        """Why the terms do not hold at this second, in a few words with the date; None where they do."""
        if now < self.begins:
            return f"NOT BEGUN before {format_time(self.begins)}"
        return None if now < self.expires else f"EXPIRED on {format_time(self.expires)}"

    @property
    def token_bytes(self) -> int:
        """How long the name of a record is on the wire."""
        return POINT_BYTES if self.join is Join.PSI else TOKEN_BYTES

    def key_of(self, role: Signer) -> str:
        return self.platform_key if role is Signer.PLATFORM else self.room_key

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes, in hexadecimal digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Plain values only; exact numbers are texts like "3" and "1/1000000"."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_json(cls, record: object) -> Terms:
        """The terms that `as_json` wrote: all keys, no others, and no other spelling of any value."""
        if not isinstance(record, Mapping):
            raise BadInput("expected terms as a JSON object, got something else")
        _refuse_unknown(record)
        for field in fields(cls):
            if field.name not in record:
                raise BadInput(f"expected terms with the key {field.name!r}, got none")
        for key in ("epsilon", "delta"):  # before they are read: a power of ten could fill the memory
            if not isinstance(record[key], str) or not _EXACT.fullmatch(record[key]):
                raise BadInput(f"expected {key} as a text like '1/1000', got something else")
        terms = cls(**record)
        written = terms.as_json()
        for key, value in record.items():
            if type(value) is not type(written[key]) or value != written[key]:
                raise BadInput(f"expected {key} in its one spelling, {written[key]!r}, got another")
        return terms

    def to_bytes(self) -> bytes:
        return canonical_json(self.as_json())

    @classmethod
    def from_bytes(cls, data: bytes) -> Terms:
        return cls.from_json(read_canonical_json("terms", data, at_most=MOST_TERMS_BYTES))


def terms_from_toml(text: str) -> Terms:
    """The terms that a person wrote: defaults may be left out, and times may be dates, which begin in UTC."""
    record = parse_toml(text.encode())
    _refuse_unknown(record)
    for field in fields(Terms):
        if field.name not in record and field.default is MISSING:
            raise BadInput(f"{field.name}: expected this key, got none")
    for key in ("begins", "expires"):
        record[key] = _seconds(key, record[key])
    for key in ("epsilon", "delta", "clip_norm"):
        if isinstance(record.get(key), str):  # exact texts are for the signed spelling
            raise BadInput(f"expected {key} to be a number without quotes, got {record[key]!r}")
    return Terms(**record)


def _seconds(key: str, given: object) -> object:
    """A date is its midnight in UTC; what is no date is checked with the other terms."""
    if isinstance(given, time):
        raise BadInput(f"expected {key} as a date like 2026-07-01, got a time of day")
    if isinstance(given, date) and not isinstance(given, datetime):
        given = datetime(given.year, given.month, given.day, tzinfo=UTC)
    if not isinstance(given, datetime):
        return given
    if given.tzinfo is None or given.microsecond:
        raise BadInput(f"expected {key} as a whole second with an offset (a final Z is UTC), got {given}")
    return int(given.timestamp())


def format_time(seconds: int) -> str:
    """Unix seconds as people read them."""
    if not 0 <= seconds <= LAST_DATE:
        return f"Unix second {seconds}"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _refuse_unknown(record: Mapping[Any, Any]) -> None:
    allowed = tuple(field.name for field in fields(Terms))
    for key in record:
        if key not in allowed:
            raise BadInput(expect.unknown_key("terms", str(key)[:64], allowed))


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction | Mode | NoiseLaw | Join):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _name(key: str, value: object) -> str:
    """A name that can stand in a certificate, a file and a message without doubt about its spelling."""
    fine = isinstance(value, str) and 1 <= len(value) <= 128 and value.isascii()
    if not fine or not all(letter.isalnum() or letter in "-._" for letter in str(value)):
        raise BadInput(f"expected {key} of 1 to 128 letters, digits and - . _ only, got another value")
    return str(value)


def _names(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, tuple | list) or not value:
        got = "an empty one" if isinstance(value, tuple | list) else "something else"
        raise BadInput(f"expected {key} to be a list of at least one name, got {got}")
    if len(value) > MOST_TASKS:
        raise BadInput(f"expected {key} to be a list of at most {MOST_TASKS} names, got {len(value)}")
    found = tuple(_name(key, each) for each in value)
    if len(set(found)) < len(found):
        raise BadInput(f"expected each of {key} once, got one twice")
    return found


def _codecs(key: str, value: object) -> tuple[str, ...]:
    found = _names(key, value)
    for name in found:
        if name not in CODECS:
            raise BadInput(f"expected {key} to be among {', '.join(CODECS)}{expect.nearest(name, CODECS)}")
    return found


def _epsilon(key: str, value: Any) -> Fraction:
    number = expect.positive(key, value)
    if not LEAST_EPSILON <= number <= MOST_EPSILON or number % EPSILON_PART:
        raise BadInput(f"expected {key} from 0.001 to {MOST_EPSILON} in whole billionths, got {value}")
    return number


def _delta(key: str, value: Any) -> Fraction:
    number = expect.probability(key, value, zero=True)
    if number % DELTA_PART:
        raise BadInput(f"expected {key} in whole parts of 1e-18, got {value}")
    return number


def _count(key: str, value: Any, low: int, high: int) -> int:
    number = expect.whole(key, value, at_least=low)
    if number > high:
        raise BadInput(f"expected {key} <= {high}, got {number}")
    return number


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"expected {key} to be true or false, got {value!r}")
    return value


def _clip_norm(key: str, value: Any) -> float:
    number = float(expect.positive(key, value))
    if not 1e-9 <= number <= 1e9 or not math.isfinite(number):
        raise BadInput(f"expected {key} from 1e-9 to 1e9, got {value!r}")
    return number


def _window(key: str, value: Any) -> int:
    number = expect.integer(key, value)
    if abs(number) > MOST_TIME:
        raise BadInput(f"expected {key} within {MOST_TIME} of zero, got {number}")
    return number


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "name": _name,
    "platform": _name,
    "room": _name,
    "platform_key": check_public_key,
    "room_key": check_public_key,
    "begins": lambda key, value: _count(key, value, 0, MOST_TIME),
    "expires": lambda key, value: _count(key, value, 0, MOST_TIME),
    "mode": Mode.named,
    "epsilon": _epsilon,
    "delta": _delta,
    "tasks": _names,
    "releases_per_record": lambda key, value: _count(key, value, 1, MOST_RELEASES),
    "smallest_batch": lambda key, value: _count(key, value, 1, MOST_TIME),
    "codecs": _codecs,
    "dense_sequences": _flag,
    "noise": NoiseLaw.named,
    "clip_norm": _clip_norm,
    "metrics": _flag,
    "join": Join.named,
    "most_ids": lambda key, value: None if value is None else _count(key, value, 1, MOST_IDS),
    "window": _window,
    "label_version": lambda key, value: _count(key, value, 0, MOST_TIME),
}
"""One check for every field: what it may be, and its one spelling. A field without one fails a test."""
