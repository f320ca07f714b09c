"""Refuse a value before anything changes, in one line that says what was expected and what came."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterable
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from numbers import Integral, Rational, Real
from pathlib import Path
from typing import Any, Self

from tacit.errors import BadInput

Number = int | float | str | Fraction | Decimal
# What taking a record apart raises where a key is missing, or a value is of another kind or beyond all measure.
RECORD_FAULTS = (
    KeyError, IndexError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError, MemoryError
)  # fmt: skip
MOST_EXPONENT = 1000  # far beyond what doubles can hold; written out, 1e999999999 takes all memory

# Up to the last @ of the word: whoever did not spell an @ in a password as %40 is not to have half of it shown.
_PASSWORD = re.compile(r"(:/{1,2}[^\s:/@]*):\S*@")
# A database's password may have spaces as it was typed: up to the last @ before a host and its path.
_SPACED_PASSWORD = re.compile(
    r"(postgres[\w+]*:/{1,2}[^\s:/@]*):(?!\d+[/?])(?:(?!://).)*@(?=[^\s@/]*[/?])", re.I
)
_SECRET_OPTION = re.compile(
    r"([?&][^\s=&?]*(?:pass|pwd|secret|token)[^\s=&?]*=)(?:[^&\n]*(?=&\w+=)|[^\s&]*)", re.IGNORECASE
)
# host=... password=...: as libpq takes it, in quotes or with its spaces escaped.
_KEYWORD = re.compile(r"(?<![?&\w])(\w*(?:password|passwd|pwd)\s*=\s*)(?:'(?:\\.|[^'\\])*'|(?:\\.|\S)+)", re.I)


def exact(name: str, value: Number) -> Fraction:
    """The number as it was written: 0.1 means one tenth, not the double nearest to it."""
    if isinstance(value, bool) or not isinstance(value, Real | str | Decimal):
        raise BadInput(f"expected {name} to be a number, got {value!r}")
    if isinstance(value, Integral) and not isinstance(value, int):
        value = int(value)  # NumPy's own kinds
    if isinstance(value, Real) and not isinstance(value, int | float | Rational):
        value = float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"expected {name} to be finite, got {value!r}")
    if isinstance(value, str | Decimal) and _beyond_use(str(value)):
        raise BadInput(
            f"expected {name} to be at most 1e{MOST_EXPONENT}, and no nearer to 0 than its inverse, got another"
        )
    try:
        return Fraction(repr(float(value)) if isinstance(value, float) else value)
    except (ValueError, OverflowError, ZeroDivisionError, TypeError):
        raise BadInput(f"expected {name} to be a finite number, got {value!r}") from None


def _beyond_use(spelled: str) -> bool:
    exponent = spelled.lower().rpartition("e")[2].strip().lstrip("+-").replace("_", "").lstrip("0")
    return len(spelled) > 2 * MOST_EXPONENT or (
        "e" in spelled.lower() and exponent.isdecimal() and (len(exponent) > 4 or int(exponent) > MOST_EXPONENT)
    )


def not_text(name: str, value: Any) -> None:
    """Refuse a number that is spelled: files may spell one, a program that does has mixed something up."""
    if isinstance(value, str | bytes):
        raise BadInput(f"expected {name} to be a number, got the text {value!r}")


def positive(name: str, value: Number) -> Fraction:
    number = exact(name, value)
    if number <= 0:
        raise BadInput(f"expected {name} > 0, got {value!r}")
    return number


def at_least_zero(name: str, value: Number) -> Fraction:
    number = exact(name, value)
    if number < 0:
        raise BadInput(f"expected {name} >= 0, got {value!r}")
    return number


def probability(name: str, value: Number, *, zero: bool = False, one: bool = False) -> Fraction:
    """A probability; the ends only where they mean something."""
    number = exact(name, value)
    low_ok = number >= 0 if zero else number > 0
    high_ok = number <= 1 if one else number < 1
    if not (low_ok and high_ok):
        interval = f"{'[' if zero else '('}0, 1{']' if one else ')'}"
        raise BadInput(f"expected {name} in {interval}, got {value!r}")
    return number


def integer(name: str, value: Any) -> int:
    """A whole number of either sign, as a plain int; NumPy's are welcome, True and False are not."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise BadInput(f"expected {name} to be a whole number, got {value!r}")
    return int(value)


def whole(name: str, value: Any, *, at_least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < at_least:
        raise BadInput(f"expected {name} to be a whole number >= {at_least}, got {value!r}")
    return int(value)


def kind(name: str, value: Any, *kinds: type) -> None:
    """Refuse a value of another kind than these, by the argument's name."""
    if not isinstance(value, kinds):
        raise BadInput(f"expected {name} to be {_a(kinds)}, got {_got(value)}")


def path(name: str, value: Any) -> Path:
    """A path, or its spelling."""
    if not isinstance(value, str | Path) or not str(value):
        raise BadInput(f"expected {name} to be a path, got {_got(value)}")
    return Path(value)


def several(name: str, value: Any, *kinds: type) -> tuple[Any, ...]:
    """The items of a list or the like, not of a text; each of these kinds, where some are named."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise BadInput(f"expected {name} to be a list, got {_got(value)}")
    items = tuple(value)
    for item in items if kinds else ():
        kind(f"each of {name}", item, *kinds)
    return items


def having(name: str, value: Any, part: str, what: str) -> None:
    """Refuse what lacks the method or attribute that it is needed for: `what` says what would have it."""
    if not hasattr(value, part):
        raise BadInput(f"expected {name} to be {what}, got {_got(value)}")


def _a(kinds: tuple[type, ...]) -> str:
    names = [f"{'an' if each.__name__[0] in 'AEIOUaeiou' else 'a'} {each.__name__}" for each in kinds]
    return " or ".join("None" if name == "a NoneType" else name for name in names)


def _got(value: object) -> str:
    """The value where it is small and plain, else its kind: nobody's data belongs into a refusal."""
    plain = value is None or isinstance(value, bool | int | float | str)
    return repr(value) if plain and len(repr(value)) <= 40 else f"a value of type {type(value).__name__}"


def nearest(word: str, words: Collection[str]) -> str:
    """The end of a refusal that suggests the known word most like this one; empty where none is."""
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return f": did you mean {str(close[0])!r}?" if close else ""


def unknown_key(name: str, key: str, allowed: Collection[str]) -> str:
    """The refusal of a key, `name` with its path, that a table does not have."""
    expected = f"expected one of {', '.join(allowed)}" if allowed else "expected no keys here"
    return f"{name}: {expected}, got the unknown key {key!r}{nearest(key, allowed)}"


class Choice(StrEnum):
    """A closed list of words; another word is refused by naming the list."""

    @classmethod
    def named(cls, name: str, value: object) -> Self:
        """The word, where the list has a name of its own to be refused by: a key of a file, an option."""
        for each in cls:
            if each == value:
                return each
        raise cls._refusal(name, value)

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise cls._refusal(cls.__name__, value)

    @classmethod
    def _refusal(cls, name: str, value: object) -> BadInput:
        hint = nearest(value, [*cls]) if isinstance(value, str) else ""
        return BadInput(f"expected {name} to be one of {', '.join(cls)}, got {value!r}{hint}")


def without_passwords(text: str) -> str:
    """The same words, with *** for a password in any URL or list of keywords: how a database's place is shown,
    here and in logs.

    >>> without_passwords("postgresql://tacit:s3cret@db/ads?sslmode=require&password=s3cret")
    'postgresql://tacit:***@db/ads?sslmode=require&password=***'
    """
    for kind, shown in (
        (_SPACED_PASSWORD, r"\1:***@"),
        (_PASSWORD, r"\1:***@"),
        (_SECRET_OPTION, r"\1***"),
        (_KEYWORD, r"\1***"),
    ):
        text = kind.sub(shown, text)
    return text
