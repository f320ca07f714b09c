"""Caches accounted numbers across runs in one small SQLite file. Losing it costs seconds, nothing else."""

from __future__ import annotations

import hashlib
import math
from functools import cache
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import URL, Column, Float, MetaData, String, Table, create_engine, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from tacit import privacy
from tacit.display import brief

_METADATA = MetaData()
_ANSWERS = Table(
    "answers",
    _METADATA,
    Column("question", String, primary_key=True),
    Column("answer", Float, nullable=False),
)


@cache
def _fingerprint() -> str:
    """Of everything that an answer depends on: a changed accountant or library never meets its old answers."""
    sources = sorted(Path(privacy.__file__).parent.rglob("*.py"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources))
    for package in ("numpy", "scipy", "dp-accounting"):
        digest.update(f"{package} {version(package)}".encode())
    return digest.hexdigest()[:16]


def default_cache_path() -> Path:
    return Path.home() / ".cache" / "tacit" / "answers.sqlite"


class CalibrationCache:
    """A `CalibrationMemory` on disk. A file that cannot be read or written is passed over: only time is lost.

    Whoever can write the file can change what tacit says of epsilon, so it is made for its owner alone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        url = URL.create("sqlite", database=str(path))
        self._engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": 5})

    def __repr__(self) -> str:
        return brief(self, path=str(self._path))

    def recall(self, question: str) -> float | None:
        question = f"{_fingerprint()} {question}"
        if not self._path.exists():
            return None
        try:
            with self._engine.connect() as connection:
                found = connection.execute(
                    select(_ANSWERS.c.answer).where(_ANSWERS.c.question == question)
                ).scalar()
        except SQLAlchemyError:
            return None
        return float(found) if isinstance(found, float) and math.isfinite(found) and found >= 0 else None

    def keep(self, question: str, answer: float) -> None:
        question = f"{_fingerprint()} {question}"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            with self._engine.begin() as connection:
                _METADATA.create_all(connection)
                row = insert(_ANSWERS).values(question=question, answer=answer)
                connection.execute(
                    row.on_conflict_do_update(index_elements=["question"], set_={"answer": answer})
                )
        except (SQLAlchemyError, OSError):
            return
