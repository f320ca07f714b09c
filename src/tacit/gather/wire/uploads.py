"""What a device sends, once a round: two sealed parts, of which the proxy can open one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from tacit.errors import BadInput
from tacit.gather.wire.credentials import DEVICE_BYTES, TAG_BYTES
from tacit.gather.wire.encoding import Kind, decode, encode, reading, sized
from tacit.gather.wire.forms import form_of
from tacit.gather.wire.rounds import DIGEST_BYTES, REPORT_ID_BYTES, Round
from tacit.gather.wire.sealing import SEAL_OVERHEAD


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
        sized("digest", self.digest, DIGEST_BYTES)
        sized("report_id", self.report_id, REPORT_ID_BYTES)
        sized("device", self.device, DEVICE_BYTES)
        sized("tag", self.tag, TAG_BYTES)
        for name in ("sealed_proxy", "sealed_server"):
            sealed = getattr(self, name)
            if type(sealed) is not bytes or len(sealed) <= SEAL_OVERHEAD:
                raise BadInput(f"expected {name} of more than {SEAL_OVERHEAD} bytes, got fewer or no bytes")

    @cached_property
    def _bytes(self) -> bytes:
        sealed = self.sealed_proxy, self.sealed_server
        return encode(Kind.UPLOAD, self.digest, self.report_id, self.device, *sealed, self.tag)

    def to_bytes(self) -> bytes:
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Upload:
        fields = decode(Kind.UPLOAD, data, bytes, bytes, bytes, bytes, bytes, bytes)
        with reading():
            found = cls(*fields)
        vars(found)["_bytes"] = data  # its one spelling, so nothing needs to be written again
        return found

    @property
    def signed_bytes(self) -> bytes:
        """All bytes before the tag, which is last."""
        return self._bytes[:-TAG_BYTES]


@lru_cache(maxsize=256)
def upload_bytes(round: Round) -> int:
    """The exact size of a good upload; anything longer is refused before it is parsed."""
    form = form_of(round)
    return len(
        Upload(
            bytes(DIGEST_BYTES),
            bytes(REPORT_ID_BYTES),
            bytes(DEVICE_BYTES),
            bytes(form.proxy_bytes + SEAL_OVERHEAD),
            bytes(form.server_bytes + SEAL_OVERHEAD),
            bytes(TAG_BYTES),
        ).to_bytes()
    )
