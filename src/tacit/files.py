"""Files: JSON and Parquet read in one way, private files, locks, atomic writes, and digests.

Every refusal of a record is one line, whatever was done to the file:

    record = read_json(place)
    with refuse_bad_record(place, "a checkpoint"):
        steps = record["steps"] + 1

A Parquet file is read likewise; pyarrow, which is heavy, is imported when the first one is opened.

What people's data, secrets or bills are written to is its owner's alone. Such a file is made with its mode,
not given it afterwards, so there is no moment at which others could read it; the umask can only take away
from that. What anybody may read (models, statements, keys to seal to) is written the usual way.

Atomic writes make a draft beside the destination and move it there once it is on the disk: readers see the
old content or all of the new one, whatever is killed in between. A folder is replaced only by one of the
same kind. What must never change is written once: the first to write it wins. Digests tell whether a record,
a file or a folder is still what was written. Places that will be written to are looked at before the work, and
an error of the system is said in one line.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from tacit.errors import BadInput, TacitError
from tacit.expect import RECORD_FAULTS

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


def read_json(place: Path) -> Any:
    """What the file spells. Where there is none it raises FileNotFoundError: only the caller knows its name."""
    try:
        return parse_json(place.read_bytes())
    except BadInput as refusal:
        raise BadInput(f"{place}: {refusal}") from None


def parse_json(content: bytes | str) -> Any:
    """What these bytes spell, in JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):  # another text, other bytes, a number too long, a nest too deep
        raise BadInput("expected JSON, got something else") from None


def parse_strict_json(content: bytes) -> Any:
    """What these bytes spell, in JSON as RFC 8259 has it, where two readers could not differ: in UTF-8, with no
    key twice, no half of a character, and neither NaN nor Infinity."""
    try:
        found = json.loads(content.decode(), object_pairs_hook=_refuse_twins, parse_constant=_refuse_constant)
        if b"\\u" in content:  # nothing else can spell half of a character
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError):
        raise BadInput("expected JSON in UTF-8, each key once, got something else") from None


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _refuse_constant(spelled: str) -> Any:
    raise ValueError(spelled)


@contextmanager
def refuse_bad_record(place: object, what: str) -> Iterator[None]:
    """Refuse a record that lacks something, or has another kind of value, by its place and `what` it is."""
    try:
        yield
    except BadInput as refusal:
        raise BadInput(f"{place}: {refusal}") from None
    except TacitError:
        raise
    except KeyError as lacking:
        key = str(lacking.args[0] if lacking.args else "")[:60]
        raise BadInput(f"{place}: expected a whole record of {what}, got one without {key!r}") from None
    except RECORD_FAULTS:
        raise BadInput(f"{place}: expected {what}, got one with a value of another kind") from None


def open_parquet(path: str | Path) -> pq.ParquetFile:
    """The Parquet file, whose footer has been read."""
    import pyarrow.parquet as pq

    with _refuse_bad_parquet(path):
        file = pq.ParquetFile(path)
        try:
            list(file.schema_arrow.names)  # names that are no text show only when they are asked for
        except BaseException:
            file.close()
            raise
        return file


def parquet_batches(
    path: str | Path, file: pq.ParquetFile, columns: Sequence[str], rows: int, *, group: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `rows` rows of these columns, of all the file or of one of its row groups."""
    groups = None if group is None else [group]
    with _refuse_bad_parquet(path):
        yield from file.iter_batches(rows, columns=list(columns), row_groups=groups)


def parquet_faults() -> tuple[type[Exception], ...]:
    """What pyarrow raises on a file that is torn or edited, from its own kinds to names that are no text."""
    from pyarrow import ArrowException

    return (ArrowException, OSError, ValueError, KeyError, IndexError, TypeError, OverflowError)


@contextmanager
def _refuse_bad_parquet(path: str | Path) -> Iterator[None]:
    try:
        yield
    except parquet_faults() as problem:
        told = " ".join(str(problem).split())[:200] or "another kind"
        raise BadInput(f"{path}: expected a whole Parquet file, got {told}") from None


PRIVATE_MODE, PRIVATE_FOLDER_MODE, READABLE_MODE = 0o600, 0o700, 0o644
OTHERS_MODE = 0o077
"""Permissions that are not the owner's."""


def open_private(path: Path, way: Literal["wb", "xb", "ab", "a+b"], *, readable: bool = False) -> BinaryIO:
    """The file, open for writing; one that others could use before is theirs no longer.

    `readable`: everybody may read this one, and nobody else write it.
    """
    mode = READABLE_MODE if readable else PRIVATE_MODE
    file = open(path, way, opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
    if os.fstat(file.fileno()).st_mode & OTHERS_MODE & ~mode:
        os.fchmod(file.fileno(), mode)
    return file


def make_private_folder(path: Path) -> None:
    """A new folder, in one that is there or is made as usual."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=PRIVATE_FOLDER_MODE)


def make_tree_private(folder: Path) -> None:
    """All that is in a private folder, also what a library wrote there in its own way."""
    for each in folder.rglob("*"):
        each.chmod(PRIVATE_FOLDER_MODE if each.is_dir() else PRIVATE_MODE)


def write_new_files(folder: Path, contents: Mapping[str, tuple[bytes, bool]]) -> None:
    """Write keys and what belongs to them: by name below `folder` the content, and whether it is private.

    Refuses a folder in which one of them is already, before it writes any.
    """
    for name in contents:
        if (folder / name).exists():
            raise BadInput(f"--out: expected a folder without {name}, got one: keys are never written over")
    for name, (content, private) in contents.items():
        write_new_file(folder / name, content, private=private)


def write_new_file(path: Path, content: bytes, *, private: bool) -> None:
    """A file that is not there yet: its owner's alone, or everybody's to read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    with open_private(path, "xb", readable=not private) as file:
        file.write(content)


@contextmanager
def hold_lock(lock: Path, key: str, refusal: str, *, make_folder: bool = False) -> Iterator[None]:
    """Hold this lock file while no other process does; a second one is refused with the key and these words."""
    try:
        if make_folder:
            lock.parent.mkdir(parents=True, exist_ok=True)
        held = os.open(lock, os.O_RDWR | os.O_CREAT, PRIVATE_MODE)
    except OSError as problem:
        raise BadInput(f"{key}: {problem.filename or ''}: {(problem.strerror or '').lower()}") from None
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(f"{key}: {refusal}") from None
        yield
    finally:
        os.close(held)


def draft_path(place: Path) -> Path:
    """A new name in the same folder, which nobody looks for."""
    return place.with_name(f".{place.name}.{uuid.uuid4().hex}")


def write_atomically(place: Path, content: bytes, *, mode: int = 0o666, durable: bool = True) -> None:
    """Write a file, or replace it. `mode` is what the umask takes from.

    It is on the disk when this returns, unless it need not be `durable`: what can be made again at little cost.
    """
    with _draft(place, content, mode, durable) as draft:
        draft.replace(place)
    if durable:
        sync_to_disk(place.parent)


def write_once(place: Path, content: bytes, *, mode: int = 0o666) -> bytes:
    """Write a file that never changes, and return what is in it: the first to write it wins."""
    with _draft(place, content, mode, durable=True) as draft:
        try:
            os.link(draft, place)
        except FileExistsError:
            return place.read_bytes()
    sync_to_disk(place.parent)
    return content


@contextmanager
def _draft(place: Path, content: bytes, mode: int, durable: bool) -> Iterator[Path]:
    """The content in a new file of the same folder, which is gone afterwards, moved or not."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_path(place)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def replace_folder(building: Path, place: Path) -> None:
    """Put a folder in its place; one that is there goes once the new one has its name."""
    if not place.exists():
        building.rename(place)
        return
    replaced = place.with_name(f"{building.name}.replaced")
    place.rename(replaced)
    try:
        building.rename(place)
    except OSError:
        replaced.rename(place)
        raise
    shutil.rmtree(replaced)


def sync_to_disk(path: Path) -> None:
    """Wait until a file's content, or a folder's names, would survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


EXISTS = "which exists; say overwrite=True (--overwrite)"
REPLACEABLE_SUFFIXES = (".json", ".npy", ".safetensors")


@contextmanager
def place_folder(
    folder: Path,
    manifest: str,
    *,
    what: str,
    overwrite: bool,
    suffixes: Collection[str] = REPLACEABLE_SUFFIXES,
) -> Iterator[Path]:
    """An empty folder beside `folder` to write into, which takes its place when the block ends well.

    Another one is replaced only if it has this `manifest` and no files of other kinds than ours, by their
    suffixes, and only where `overwrite` says so.
    """
    place = folder.resolve()  # through links, so that what they point to is replaced and not they
    _check_replaceable(folder, place, manifest, what, overwrite, suffixes)
    place.parent.mkdir(parents=True, exist_ok=True)
    building = draft_path(place)
    building.mkdir()
    try:
        yield building
        for path in building.iterdir():
            sync_to_disk(path)
        sync_to_disk(building)
        # Once more: another process may have written there meanwhile.
        _check_replaceable(folder, place, manifest, what, overwrite, suffixes)
        replace_folder(building, place)
        sync_to_disk(place.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def place_file(path: Path, content: bytes, *, what: str, overwrite: bool) -> None:
    """Write a whole file or none."""
    if path.exists() and not (overwrite and path.is_file()):
        raise BadInput(f"expected a new file for {what}, got {path}, {EXISTS}")
    write_atomically(path.resolve(), content)


def _check_replaceable(
    folder: Path, place: Path, manifest: str, what: str, overwrite: bool, suffixes: Collection[str]
) -> None:
    if not place.exists():
        return
    if not overwrite:
        raise BadInput(f"expected a new folder for {what}, got {folder}, {EXISTS}")
    ours = (place / manifest).is_file() and all(entry.suffix in suffixes for entry in place.iterdir())
    if not ours:
        raise BadInput(f"expected {what} to overwrite, got {folder}, which holds something else")


def record_digest(record: Mapping[str, Any]) -> str:
    """Of all of a record but its key `digest`."""
    rest = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    """Of every file that is in a folder, by name."""
    return record_digest({path.name: file_digest(path) for path in sorted(folder.iterdir())})


ADVICE = {
    errno.EACCES: "choose another place, or give yourself the right to it (chmod, chown)",
    errno.EPERM: "choose another place, or give yourself the right to it (chmod, chown)",
    errno.EROFS: "choose a place on a disk that can be written",
    errno.ENOSPC: "make room there, or choose another place",
    errno.EDQUOT: "make room there, or choose another place",
    errno.ENOTDIR: "a part of that path is a file: choose another place",
    errno.EISDIR: "there is a folder of that name: choose another",
    errno.ENAMETOOLONG: "choose a shorter name",
}
"""What to do about an error of the system, by its number."""


def check_writable(name: str, path: Path) -> None:
    """Refuse a place that a file or folder could not be made at. Nothing is written to find out."""
    above = path.absolute().parent
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        raise BadInput(f"{name}: expected a place below a folder, got {path}: {above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise BadInput(
            f"{name}: expected a place that can be written, got {path}: {above} is not writable for you; "
            f"{ADVICE[errno.EACCES]}"
        )


def check_folder(name: str, path: Path) -> None:
    """Refuse a folder that files could not be put into, whether it is there already or has to be made."""
    if not path.exists():
        check_writable(name, path)
    elif not path.is_dir():
        raise BadInput(f"{name}: expected a folder, got {path}, which is a file")
    else:
        check_writable(name, path / "file")


def explain_os_error(problem: OSError) -> str:
    """What went wrong at which place, and what to do, without numbers of errors."""
    reason = problem.strerror.lower() if problem.strerror else str(problem)
    place = f"{_text(problem.filename)}: " if problem.filename is not None else ""
    advice = ADVICE.get(problem.errno or 0)
    return f"{place}{reason}" + ("" if advice is None else f"; {advice}")


def _text(name: object) -> str:
    return os.fsdecode(name) if isinstance(name, str | bytes) else str(name)
