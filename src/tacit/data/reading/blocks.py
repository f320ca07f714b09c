"""A text file as blocks of whole lines, plain or compressed, without ever holding all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from tacit.errors import BadInput

BLOCK_BYTES = 4 * 2**20
LONGEST_LINE = 2**20
UTF8_MARK = b"\xef\xbb\xbf"
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}


@dataclass(frozen=True)
class Block:
    """Some whole lines, the last of which may lack its end."""

    lines: bytes
    first_line: int
    position: int  # bytes of the file, as it lies on disk, that were read up to here

    @property
    def count(self) -> int:
        return self.lines.count(b"\n") + (not self.lines.endswith(b"\n"))

    def without_first_line(self) -> Block:
        _, _, rest = self.lines.partition(b"\n")
        return replace(self, lines=rest, first_line=self.first_line + 1)

    def without_mark(self) -> Block:
        """Without the three bytes that some editors put before UTF-8."""
        return replace(self, lines=self.lines.removeprefix(UTF8_MARK))


def blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The file's lines in order, numbered from 1."""
    with closing(pa.OSFile(str(path))) as file:
        compression = compression_of(path)
        stream = file if compression is None else pa.CompressedInputStream(file, compression)
        rest, line = b"", 1
        while True:
            try:
                read = stream.read(block_bytes)
            except OSError as problem:
                raise BadInput(
                    f"{path}: expected a whole {compression or 'plain'} file, got an end or an error after "
                    f"line {line - 1}: {_one_line(problem)}"
                ) from None
            if not read:
                break
            whole = rest + read
            _refuse_long_lines(path, whole, line)
            end = whole.rfind(b"\n") + 1
            if end == 0:
                rest = whole
                continue
            block = Block(whole[:end], line, file.tell())
            yield block
            line += block.count
            rest = whole[end:]
        if rest:
            yield Block(rest, line, file.tell())


def first_line(path: Path) -> bytes:
    """The first line, without its end; empty for an empty file."""
    for block in blocks(path, 2**16):
        return block.lines.split(b"\n", 1)[0].removesuffix(b"\r").removeprefix(UTF8_MARK)
    return b""


def compression_of(path: Path) -> str | None:
    """By the file's first bytes, whatever it is called."""
    with path.open("rb") as file:
        start = file.read(4)
    return next((name for magic, name in COMPRESSIONS.items() if start.startswith(magic)), None)


def _refuse_long_lines(path: Path, lines: bytes, first_line: int) -> None:
    """Wherever a line lies, so that no choice of block decides; it hops over the shorter ones."""
    start = 0
    while len(lines) - start > LONGEST_LINE:
        end = lines.rfind(b"\n", start, start + LONGEST_LINE + 1)
        if end < 0:
            line = first_line + lines.count(b"\n", 0, start)
            raise BadInput(f"{path}: expected lines of at most {LONGEST_LINE} bytes, got more at line {line}")
        start = end + 1


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())
