"""A device's upload, once per round: two sealed parts, of which the proxy can open one."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache

import msgpack

from tacit.errors import BadInput
from tacit.gather.protocol.credentials import DEVICE_BYTES, TAG_BYTES
from tacit.gather.protocol.encoding import (
    MessageKind,
    decode_message,
    encode_message,
    expect_bytes,
    malformed_if_refused,
    refuse_malformed,
)
from tacit.gather.protocol.rounds import DIGEST_BYTES, REPORT_ID_BYTES, Round
from tacit.gather.protocol.sharing import sharing_scheme
from tacit.sealing import SEAL_OVERHEAD


@dataclass(frozen=True)
class Upload:
    """One device's report of one round."""

    digest: bytes  # of the round
    report_id: bytes
    device: bytes
    sealed_proxy: bytes
    sealed_server: bytes
    tag: bytes  # by the device's key over all of the above

    def __post_init__(self) -> None:
        expect_bytes("digest", self.digest, DIGEST_BYTES)
        expect_bytes("report_id", self.report_id, REPORT_ID_BYTES)
        expect_bytes("device", self.device, DEVICE_BYTES)
        expect_bytes("tag", self.tag, TAG_BYTES)
        for name in ("sealed_proxy", "sealed_server"):
            sealed = getattr(self, name)
            if type(sealed) is not bytes or len(sealed) <= SEAL_OVERHEAD:
                raise BadInput(f"expected {name} of more than {SEAL_OVERHEAD} bytes, got fewer or no bytes")

    @cached_property
    def _bytes(self) -> bytes:
        sealed = self.sealed_proxy, self.sealed_server
        return encode_message(MessageKind.UPLOAD, self.digest, self.report_id, self.device, *sealed, self.tag)

    def to_bytes(self) -> bytes:
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Upload:
        fields = decode_message(MessageKind.UPLOAD, data, bytes, bytes, bytes, bytes, bytes, bytes)
        with malformed_if_refused():
            found = cls(*fields)
        vars(found)["_bytes"] = data  # its one spelling, so nothing needs to be written again
        return found

    @property
    def signed_bytes(self) -> bytes:
        """All bytes before the tag, which is last."""
        return self._bytes[:-TAG_BYTES]


@dataclass(frozen=True)
class UploadLayout:
    """Where every good upload of a round has its fields: all have the same sizes, and a message one spelling.

    `between` are the bytes around the fields. An upload that has them, and the size, is one that
    `Upload.from_bytes` would read; looking takes a fiftieth of the time.
    """

    size: int
    digest: slice
    report_id: slice
    device: slice
    sealed_proxy: slice
    sealed_server: slice
    tag: slice
    between: tuple[bytes, ...]
    around: struct.Struct  # cuts `between` out of an upload

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, round: Round) -> UploadLayout:
        scheme = sharing_scheme(round)
        sizes = (
            DIGEST_BYTES,
            REPORT_ID_BYTES,
            DEVICE_BYTES,
            scheme.proxy_bytes + SEAL_OVERHEAD,
            scheme.server_bytes + SEAL_OVERHEAD,
            TAG_BYTES,
        )
        blank = Upload(*map(bytes, sizes)).to_bytes()
        # msgpack writes a field as its length and its bytes: from the end, each is as far as both are long.
        fields: list[slice] = []
        end = len(blank)
        for size in reversed(sizes):
            fields.append(slice(end - size, end))
            end -= len(msgpack.packb(bytes(size), use_bin_type=True))
        fields.reverse()
        starts = (0, *(field.stop for field in fields))
        gaps = [field.start - start for start, field in zip(starts, fields, strict=False)]
        around = struct.Struct("".join(f"{gap}s{size}x" for gap, size in zip(gaps, sizes, strict=True)))
        digest, report_id, device, sealed_proxy, sealed_server, tag = fields
        between = around.unpack(blank)
        return cls(len(blank), digest, report_id, device, sealed_proxy, sealed_server, tag, between, around)

    def fits(self, data: bytes) -> bool:
        return len(data) == self.size and self.around.unpack(data) == self.between


def upload_digest(data: bytes) -> bytes:
    """What stands where uploads have their round's digest; Refused(MALFORMED) where none can."""
    if type(data) is not bytes or len(data) < _DIGEST.stop:
        refuse_malformed("expected an upload")
    return data[_DIGEST]


_DIGEST = slice(5, 5 + DIGEST_BYTES)  # after the array's length, kind, version, and the digest's own length


def upload_size(round: Round) -> int:
    """The exact size of a good upload; anything longer is refused before it is parsed."""
    return UploadLayout.of(round).size
