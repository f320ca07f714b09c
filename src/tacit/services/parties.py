"""What everybody may know of both parties, from parties.toml: where they are, and the keys to seal to.

[proxy]
url = "https://proxy.example"
public_key = "64 hexadecimal digits"
trust = "proxy.crt"                  # instead of the system's authorities

[server]
...
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tacit.errors import BadInput
from tacit.gather.wire.sealing import KEY_BYTES
from tacit.services.addresses import url_of
from tacit.services.reading import Section
from tacit.services.settings import expect_trust
from tacit.toml import read_toml

NAME = "parties.toml"


@dataclass(frozen=True)
class Known:
    """One party, as others know it."""

    url: str
    public_key: bytes
    trust: Path | None


@dataclass(frozen=True)
class Parties:
    proxy: Known
    server: Known


def load(path: Path) -> Parties:
    try:
        record, folder = read_toml(path, "settings"), path.resolve().parent
        Section(record, "", ("proxy", "server"), folder)
        return Parties(*(_known(record, name, folder) for name in ("proxy", "server")))
    except BadInput as refusal:
        raise BadInput(f"{path}: {refusal}") from None


def _known(record: dict[str, object], name: str, folder: Path) -> Known:
    section = Section(record, name, ("url", "public_key", "trust"), folder)
    try:
        key = bytes.fromhex(section.text("public_key"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise BadInput(f"{name}.public_key: expected {2 * KEY_BYTES} hexadecimal digits, got another text")
    trust = section.file_if_any("trust")
    if trust is not None:
        expect_trust(f"{name}.trust", trust)
    return Known(url_of(f"{name}.url", section.text("url")), key, trust)
