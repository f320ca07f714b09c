"""What came of a simulated round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.gather.wire.refusals import Refusal


@dataclass(frozen=True)
class Traffic:
    """Bytes on the wire: from devices to the proxy, from the proxy to the server and back."""

    uploads: int = 0
    to_server: int = 0
    from_server: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.uploads + other.uploads, self.to_server + other.to_server, self.from_server + other.from_server
        )


@dataclass(frozen=True)
class PartySeconds:
    """Time by party, as the clock that was handed in counts it."""

    devices: float = 0.0
    proxy: float = 0.0
    server: float = 0.0

    def __add__(self, other: PartySeconds) -> PartySeconds:
        return PartySeconds(self.devices + other.devices, self.proxy + other.proxy, self.server + other.server)


@dataclass(frozen=True, eq=False)
class Simulated:
    """A round: who took part, what was refused and why, and the release beside the exact sum."""

    devices: int
    present: int
    uploads: int
    accepted: int
    refused: Mapping[Refusal, int]
    foreseen: Mapping[Refusal, int]  # what the misbehaviour should have led to
    lied: int  # accepted reports with counts that no honest device has
    without_noise: int  # accepted reports that left the device's noise out
    exact: NDArray[np.int64]  # (cells,) over the accepted reports, as honest devices would have counted
    shift: int  # what liars added to the first count
    released: NDArray[np.int64] | None  # (cells,); None: too few reports
    variance_stated: float  # of the noise in each released count, as the round publishes it
    variance_expected: float  # the same, less what devices left out
    traffic: Traffic
    seconds: PartySeconds

    @property
    def as_foreseen(self) -> bool:
        """Whether exactly the bad uploads were refused, each for its reason."""
        return dict(self.refused) == dict(self.foreseen)

    @property
    def noise(self) -> NDArray[np.int64] | None:
        """(cells,) what is in the release beside the exact sum and the lies."""
        if self.released is None:
            return None
        noise = self.released - self.exact
        noise[0] -= self.shift
        return noise

    @property
    def variance_seen(self) -> float | None:
        """Mean square of the noise: its law has mean 0."""
        return None if self.noise is None else float(np.mean(self.noise.astype(np.float64) ** 2))

    @property
    def largest_error(self) -> int | None:
        """Of any released count against the exact one, lies included."""
        return None if self.released is None else int(np.abs(self.released - self.exact).max())

    def as_json(self) -> dict[str, Any]:
        return {
            "devices": self.devices,
            "present": self.present,
            "uploads": self.uploads,
            "accepted": self.accepted,
            "refused": {str(reason.name).lower(): count for reason, count in sorted(self.refused.items())},
            "refused_as_foreseen": self.as_foreseen,
            "accepted_lies": self.lied,
            "accepted_without_noise": self.without_noise,
            "released": self.released is not None,
            "noise_variance_stated": self.variance_stated,
            "noise_variance_expected": self.variance_expected,
            "noise_variance_seen": self.variance_seen,
            "largest_error": self.largest_error,
            "bytes_uploaded": self.traffic.uploads,
            "bytes_to_server": self.traffic.to_server,
            "bytes_from_server": self.traffic.from_server,
            "seconds_devices": self.seconds.devices,
            "seconds_proxy": self.seconds.proxy,
            "seconds_server": self.seconds.server,
        }
