"""What a room may let out, what noise it adds, and how records are matched: three closed lists."""

from __future__ import annotations

from tacit.expect import Choice


class Mode(Choice):
    """What leaves the room. One agreement has one mode; the statement of each is in `statements`."""

    STATISTIC = "statistic"
    RELEASE = "release"
    AGGREGATE = "aggregate"
    NOISED = "noised"

    @property
    def words(self) -> str:
        return _WORDS[self]

    @property
    def flips(self) -> bool:
        """Whether each label is flipped once, and only flipped labels are ever read again."""
        return self in (Mode.RELEASE, Mode.AGGREGATE)


_WORDS = {
    Mode.STATISTIC: "one noisy sum of labels times features, released once",
    Mode.RELEASE: "labels that were flipped once, handed over",
    Mode.AGGREGATE: "sums over labels that were flipped once",
    Mode.NOISED: "sums over true labels, clipped, with noise, a bounded number of times a record",
}


class Noise(Choice):
    """The law of the noise in mode noised; a statistic's is Gaussian."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"


class Join(Choice):
    """How the room finds the label of a record: by tokens under a shared key, or by private intersection."""

    TOKENS = "tokens"
    PSI = "psi"


class Role(Choice):
    """The two who sign: the platform has features and the model, the room has labels."""

    PLATFORM = "platform"
    ROOM = "room"
