"""Made `gather_v1.json`: what every party of gathering must read and write, byte for byte.

    python tests/vectors/make_gather_v1.py > tests/vectors/gather_v1.json

Bytes are spelled in hex. Changing one of these breaks devices that are in use. `bad_messages` must be refused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgpack

sys.path.insert(0, str(Path(__file__).parents[2]))

from tacit.gather.protocol import credentials
from tacit.gather.protocol.credentials import PartyRole, seal
from tacit.gather.protocol.groups import Group, mask
from tacit.gather.protocol.messages import report_set_hash
from tacit.gather.protocol.releases import noise_words
from tacit.gather.protocol.rounds import check_key_hash, report_binding
from tests.support.gather_rounds import (
    CHECK_KEY,
    PROXY_KEY,
    SECRET,
    a_round,
    messages_of_every_kind,
    rounds_of_every_kind,
)

SEED = bytes(range(100, 132))
REPORT_ID = bytes(range(16))
DEVICE = bytes(range(16, 32))


def masks(digest: bytes) -> list[dict[str, Any]]:
    bound = report_binding(digest, REPORT_ID)
    cases = [(group, purpose) for group in Group for purpose in (b"counts", b"", b"proof")]
    return [
        {
            "seed": SEED.hex(),
            "binding": bound.hex(),
            "purpose": purpose.decode(),
            "group": str(group),
            "elements": [str(each) for each in mask(SEED, bound, purpose, group, 5)],
        }
        for group, purpose in cases
    ]


def bad_messages() -> dict[str, str]:
    """Each is an agreement that somebody spelled in another way, or that is none."""
    good = messages_of_every_kind()["agreement"].to_bytes()
    kind, version, digest, count, ids_hash = msgpack.unpackb(good)
    spelled = {
        "bad_version": msgpack.packb([kind, version + 1, digest, count, ids_hash]),
        "bad_kind": msgpack.packb([kind + 1, version, digest, count, ids_hash]),
        "bad_digest_size": msgpack.packb([kind, version, digest[:-1], count, ids_hash]),
        "bad_digest_type": msgpack.packb([kind, version, "d" * 32, count, ids_hash]),
        "bad_negative_count": msgpack.packb([kind, version, digest, -1, ids_hash]),
        "bad_fractional_count": msgpack.packb([kind, version, digest, 3.0, ids_hash]),
        "bad_true_for_a_count": msgpack.packb([kind, version, digest, True, ids_hash]),
        "bad_more_fields": msgpack.packb([kind, version, digest, count, ids_hash, None]),
        "bad_fewer_fields": msgpack.packb([kind, version, digest, count]),
        "bad_map": msgpack.packb({0: kind}),
        "bad_extension": msgpack.packb(msgpack.ExtType(5, good)),
        "bad_bytes_after": good + b"\x00",
        "bad_truncated": good[:-1],
        "bad_long_number": good.replace(bytes([count]) + b"\xc4\x20", b"\xcc" + bytes([count]) + b"\xc4\x20"),
        "bad_long_bytes": good.replace(b"\xc4\x20", b"\xc5\x00\x20", 1),
        "bad_empty": b"",
    }
    return {name: each.hex() for name, each in spelled.items()}


def main() -> None:
    digest = a_round().digest
    key = credentials.issue_device_key(SECRET, DEVICE)
    ids = [bytes([number]) * 16 for number in (0, 1, 7, 200)]
    bound = report_binding(digest, REPORT_ID)
    vectors = {
        "version": 1,
        "rounds": {name: each.digest.hex() for name, each in rounds_of_every_kind().items()},
        "messages": {name: each.to_bytes().hex() for name, each in messages_of_every_kind().items()},
        "bad_messages": bad_messages(),
        "masks": masks(digest),
        "credential": {
            "secret": SECRET.hex(),
            "device": DEVICE.hex(),
            "key": key.hex(),
            "signed": b"signed".hex(),
            "tag": credentials.report_tag(key, b"signed").hex(),
        },
        "runs": {name: each.run_digest.hex() for name, each in rounds_of_every_kind().items()},
        "check": {"key": CHECK_KEY.hex(), "hash": check_key_hash(CHECK_KEY).hex()},
        "noise": [
            {
                "private": PROXY_KEY.to_bytes().hex(),
                "role": str(role),
                "digest": digest.hex(),
                "ids_hash": SEED.hex(),
                "words": [str(each) for each in noise_words(PROXY_KEY, role, a_round(), SEED)(5)],
            }
            for role in PartyRole
        ],
        "set": {
            "digest": digest.hex(),
            "ids": [each.hex() for each in ids],
            "hash": report_set_hash(digest, ids).hex(),
            "hash_of_none": report_set_hash(digest, []).hex(),
        },
        "seals": [  # other bytes every time; these must open
            {
                "private": PROXY_KEY.to_bytes().hex(),
                "public": PROXY_KEY.public.hex(),
                "role": str(role),
                "binding": bound.hex(),
                "plain": SEED.hex(),
                "sealed": seal(SEED, PROXY_KEY.public, role=role, binding=bound).hex(),
            }
            for role in PartyRole
        ],
    }
    print(json.dumps(vectors, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
