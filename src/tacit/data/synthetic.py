"""Synthetic logs on disk: the writer of generated logs, and the mark that identifies them as synthetic.

A generated log is written as Parquet or in the layout of the published file. Synthetic data belongs to nobody
and may be used without a privacy guarantee, so everything made from it must be able to tell. The mark is
therefore bound to its file: to the size and both ends of a text file (kept beside it), and to the number of
rows of a Parquet file (in its metadata). Another file of the same name, or a copy with rows added, has no
valid mark.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

from tacit import expect
from tacit.data.generators.worlds import LogWorld
from tacit.data.generators.worlds import world as make_world
from tacit.data.logs.definition import find_log
from tacit.data.reading.layout import FileLayout
from tacit.data.reading.parquet import is_parquet
from tacit.errors import BadInput
from tacit.expect import Choice
from tacit.files import EXISTS, draft_path, open_parquet, parse_json, read_json, replace_folder
from tacit.progress import Count, no_count

MARK = b"tacit.synthetic"
ENDS = 2**16  # bytes


def mark_path(path: Path) -> Path:
    """Where a text file, which has no room for it, keeps its mark."""
    return path.with_name(f"{path.name}.synthetic.json")


def text_mark(path: Path, settings: Mapping[str, Any]) -> bytes:
    """The mark of a finished text file."""
    return json.dumps({**settings, **_fingerprint(path)}).encode()


def parquet_mark(rows: int, settings: Mapping[str, Any]) -> bytes:
    """The mark inside a Parquet file of `rows` rows."""
    return json.dumps({**settings, "rows_here": rows}).encode()


def is_synthetic(path: Path) -> bool:
    """Whether tacit generated this file. One that lost its mark, or was changed, can no longer tell."""
    try:
        if mark_path(path).exists():
            mark = read_json(mark_path(path))
            return all(mark.get(key) == value for key, value in _fingerprint(path).items())
        if not is_parquet(path):
            return False
        with open_parquet(path) as file:
            mark = (file.schema_arrow.metadata or {}).get(MARK)
            return mark is not None and parse_json(mark).get("rows_here") == file.metadata.num_rows
    except (BadInput, AttributeError):
        return False


def _fingerprint(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    with path.open("rb") as file:
        ends = file.read(ENDS)
        file.seek(max(0, size - ENDS))
        ends += file.read(ENDS)
    return {"bytes": size, "ends": hashlib.sha256(ends).hexdigest()}


class Format(Choice):
    """How a generated log is written."""

    PARQUET = "parquet"
    PUBLISHED = "published"


MAIN_TABLE = "raw_sample"  # what the table of rows is called where a log is a folder
TEXT_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")


@dataclass(frozen=True)
class LogDestination:
    """Where a generated log is written. Nothing is seen there before all of it is written."""

    out: Path
    format: Format
    truth: Path | None = None
    overwrite: bool = False

    @classmethod
    def at(cls, out: Path, format: Format | str | None = None, **options: Any) -> LogDestination:
        """A destination with the format by its name: anything but a text file's ending is Parquet."""
        out = expect.path("out", out)
        named = Format.PUBLISHED if out.name.endswith(TEXT_ENDINGS) else Format.PARQUET
        if named is Format.PARQUET and out.suffix in (".gz", ".bz2", ".zst", ".zip"):
            raise BadInput(f"expected a name ending in .parquet or {', '.join(TEXT_ENDINGS)}, got {out.name}")
        return cls(out, named if format is None else Format(format), **options)

    def check(self) -> None:
        """Refuse before any work what would be refused after it."""
        for path in (self.out, self.truth):
            if path is not None and path.exists() and not self.overwrite:
                raise BadInput(f"expected a new file to write to, got {path}, {EXISTS}")
        if self.truth is not None and self.truth.resolve() == self.out.resolve():
            raise BadInput(f"expected the truth in a file of its own, got {self.truth} for both")
        if self.truth is not None and (self.truth.is_dir() or not self.truth.parent.is_dir()):
            raise BadInput(f"expected a file in a folder that exists for the truth, got {self.truth}")
        if self.out.is_dir() and not list(self.out.glob(f"{MAIN_TABLE}.*")):
            raise BadInput(
                f"expected a log to overwrite, got the folder {self.out}, which holds something else"
            )


def write_made_up(name: str, rows: int, seed: int, out: Path, progress: Count = no_count) -> None:
    """Write rows of the generator of a published log, in its layout."""
    made, layout = make_world(name, seed, rows=rows), find_log(name).layouts[0]
    write_log(made, rows, layout, LogDestination.at(out), {"seed": seed}, progress)


def write_log(
    world: LogWorld,
    rows: int,
    layout: FileLayout,
    destination: LogDestination,
    settings: Mapping[str, Any],
    progress: Count = no_count,
) -> None:
    """Write `rows` rows of a world, block by block. A world with side tables becomes a folder."""
    expect.kind("destination", destination, LogDestination)
    rows = expect.whole("rows", rows, at_least=1)
    destination.check()
    files = _Files(destination, layout, {"log": world.name, "rows": rows, **settings})
    tables = world.side_tables()
    if tables and destination.out.name.endswith(TEXT_ENDINGS):
        raise BadInput(
            f"expected the name of a folder for the tables of {world.name}, got {destination.out.name}"
        )
    with _draft_folder(destination.out) as building:
        for name, table in tables.items():
            with files.writer(building / files.named(name), table.schema, table.num_rows) as writer:
                for batch in table.to_batches():
                    writer.write_batch(batch)
            files.mark_text(building / files.named(name))
        main = building / (files.named(MAIN_TABLE) if tables else destination.out.name)
        truth = building / "truth.parquet"
        with ExitStack() as closing:
            log_writer = truth_writer = None
            written = 0
            for generated in world.batches(rows):
                if log_writer is None:  # a writer needs to know the columns
                    log_writer = closing.enter_context(files.writer(main, generated.batch.schema, rows))
                    if destination.truth is not None:
                        truth_writer = closing.enter_context(files.parquet(truth, generated.truth.schema, rows))
                log_writer.write_batch(generated.batch)
                if truth_writer is not None:
                    truth_writer.write_batch(generated.truth)
                written += generated.batch.num_rows
                progress(written)
        files.mark_text(main)
        if mark_path(main).exists() and not tables:
            mark_path(main).replace(mark_path(destination.out))
        if destination.truth is not None:
            shutil.move(truth, destination.truth)
        _replace(building if tables else main, destination.out)


@dataclass(frozen=True)
class _Files:
    """How each file of a log is written."""

    destination: LogDestination
    layout: FileLayout
    settings: Mapping[str, Any]

    def named(self, table: str) -> str:
        return f"{table}.parquet" if self.destination.format is Format.PARQUET else f"{table}.csv"

    def mark_text(self, path: Path) -> None:
        """Write the mark beside a text file; Parquet carries its own."""
        if self.destination.format is Format.PUBLISHED:
            mark_path(path).write_bytes(text_mark(path, self.settings))

    def parquet(self, path: Path, schema: pa.Schema, rows: int) -> pq.ParquetWriter:
        return pq.ParquetWriter(path, schema.with_metadata({MARK: parquet_mark(rows, self.settings)}))

    @contextmanager
    def writer(self, path: Path, schema: pa.Schema, rows: int) -> Iterator[Any]:
        if self.destination.format is Format.PARQUET:
            with self.parquet(path, schema, rows) as writer:
                yield writer
            return
        lists = [field.name for field in schema if pa.types.is_list(field.type)]
        if lists:
            raise BadInput(f"column {lists[0]}: expected Parquet, which can hold its lists, got a text file")
        options = arrow_csv.WriteOptions(
            include_header=self.layout.header,
            delimiter=self.layout.separator,
            quoting_style="needed" if self.layout.quoted else "none",
            quoting_header="none",
        )
        compression = "gzip" if path.suffix == ".gz" else None
        with (
            pa.output_stream(str(path), compression=compression) as stream,
            arrow_csv.CSVWriter(stream, schema, write_options=options) as writer,
        ):
            yield writer


@contextmanager
def _draft_folder(out: Path) -> Iterator[Path]:
    """A folder beside the destination, gone afterwards whatever happens."""
    out.parent.mkdir(parents=True, exist_ok=True)
    building = draft_path(out)
    building.mkdir()
    try:
        yield building
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _replace(built: Path, out: Path) -> None:
    """Move to `out`: a file in one step; a folder in two, the old one kept until the new one is there."""
    if not out.is_dir():
        built.replace(out)
    else:
        replace_folder(built, out)
