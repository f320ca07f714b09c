"""The keys of a collaboration, sorted into one folder a party: what is in it is that party's alone.

authority/   authority.crt, authority.key        put away: whoever has the key can pose as either party
room/        room.crt, room.key                  TLS: who the room is
             room.signing                        Ed25519: signs agreements, and the audit log's receipts
             room.secret                         flips labels and seeds noise; whoever has it can undo both
             token.key                           makes tokens of record ids; both parties hold it
             authority.crt, parties.toml         public
platform/    platform.crt, platform.key, platform.signing, token.key, authority.crt, parties.toml
             platform.mask                       hides record ids in a private intersection
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tacit import expect
from tacit import private as private_files
from tacit.cleanroom.wire import signing
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.services.room.certificates import DAYS, Authority, party_name
from tacit.services.signing import SECRET_BYTES

MOST_DAYS = 36_500

PARTIES = """\
# Public: the parties' names, as on their certificates, and the keys that their signatures are checked with.
platform = "{platform}"
room = "{room}"
platform_key = "{platform_key}"
room_key = "{room_key}"
"""

MEANS = {
    "authority.crt": "public; both check each other's certificates with it",
    "authority.key": "put away or destroyed: whoever has it can pose as either party",
    "room.crt": "public; shown to the platform",
    "room.key": "the room's alone",
    "room.signing": "the room's alone: signs agreements and receipts",
    "room.secret": "the room's alone, kept for good: whoever has it can undo flips and noise",
    "platform.crt": "public; shown to the room",
    "platform.key": "the platform's alone",
    "platform.signing": "the platform's alone: signs agreements",
    "platform.mask": "the platform's alone, kept for good: hides its record ids in a private intersection",
    "token.key": "both parties': makes tokens of record ids; nobody else's",
    "parties.toml": "public: names and public keys",
}


@dataclass(frozen=True)
class KeyFile:
    """One file that was made, whose it is, and what may happen to it."""

    path: Path
    holder: str
    means: str
    private: bool


def write(
    folder: Path, *, platform: str, room: str, now: int, entropy: Entropy, days: int = DAYS
) -> list[KeyFile]:
    """Make all of them; refuses a folder in which one of them is already, before it writes any."""
    if party_name("--platform", platform) == party_name("--room", room):
        raise BadInput(f"--platform and --room: expected two names, got {room} for both")
    if expect.whole("--days", days, at_least=1) > MOST_DAYS:
        raise BadInput(f"--days: expected at most {MOST_DAYS}, got {days}")
    authority = Authority(f"tacit trial of {platform} and {room}", now=now, days=days)
    certified = {"room": authority.room(room), "platform": authority.platform(platform)}
    signing_secrets = {party: entropy.bytes(signing.KEY_BYTES) for party in certified}
    public = {
        f"{party}_key": signing.public_key(signing.private_key(secret))
        for party, secret in signing_secrets.items()
    }
    shared_secrets = {"token.key": _hex(entropy.bytes(SECRET_BYTES))}
    told = PARTIES.format(platform=platform, room=room, **public).encode()
    files: dict[str, tuple[bytes, bool]] = {
        "authority/authority.crt": (authority.own.certificate, False),
        "authority/authority.key": (authority.own.private_key, True),
        "room/room.secret": (_hex(entropy.bytes(SECRET_BYTES)), True),
        "platform/platform.mask": (_hex(entropy.bytes(SECRET_BYTES)), True),
    }
    for party, each in certified.items():
        files[f"{party}/{party}.crt"] = (each.certificate, False)
        files[f"{party}/{party}.key"] = (each.private_key, True)
        files[f"{party}/{party}.signing"] = (_hex(signing_secrets[party]), True)
        files[f"{party}/token.key"] = (shared_secrets["token.key"], True)
        files[f"{party}/authority.crt"] = (authority.own.certificate, False)
        files[f"{party}/parties.toml"] = (told, False)
    for name in files:
        if (folder / name).exists():
            raise BadInput(f"--out: expected a folder without {name}, got one: keys are never written over")
    for name, (content, private) in sorted(files.items()):
        new_file(folder / name, content, private=private)
    return [
        KeyFile(folder / name, name.partition("/")[0], MEANS[Path(name).name], private)
        for name, (_, private) in sorted(files.items())
    ]


def new_file(path: Path, content: bytes, *, private: bool) -> None:
    """A file that is not there yet: its owner's alone, or everybody's to read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    with private_files.opened(path, "xb", readable=not private) as file:
        file.write(content)


def _hex(secret: bytes) -> bytes:
    return secret.hex().encode() + b"\n"
