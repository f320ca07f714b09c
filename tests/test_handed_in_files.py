"""Whatever is done to a file that a person hands in or edits: one line and exit code 2, or it is read. Never a
traceback, a hang, or memory for a length that was made up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from file_mutations import edits, mutations
from handed_in_files import KINDS, Kind, Whole, little_memory, problem_with

FEW, MANY = 12, 2_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("handed-in"))


def broken(kind: Kind, *, count: int) -> Iterator[bytes]:
    """Damaged bytes; of JSON, as many edited records too, fitted to their digest where it has one."""
    content = kind.file.read_bytes()
    yield from mutations(content, seed=1, count=count)
    if kind.file.suffix == ".json":
        for record in edits(json.loads(content), seed=1, count=count):
            fitted = kind.fitted(record) if kind.fitted is not None else record
            yield json.dumps(fitted).encode()


def problems(kind: Kind, *, count: int) -> Counter[str]:
    with little_memory():
        found = (problem_with(kind, content) for content in broken(kind, count=count))
        return Counter(each for each in found if each is not None)


@pytest.mark.parametrize("name", KINDS)
def test_damage_is_read_or_refused_in_one_line(name: str, whole: Whole) -> None:
    assert not problems(whole(name), count=FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_two_thousand_damages_are_read_or_refused_in_one_line(name: str, whole: Whole) -> None:
    assert not problems(whole(name), count=MANY)
