"""Who adds noise to a round's counts, and by which law. All laws are whole-numbered and exact."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit.errors import BadInput
from tacit.gather.protocol.encoding import fraction_text, parse_fraction
from tacit.privacy.noise.distributions import DiscreteGaussian, DiscreteLaplace, Polya, Skellam
from tacit.privacy.noise.exact_sampler import FIRST_DIGITS, WIDEST
from tacit.privacy.noise.shares import PolyaShares, SkellamShares

ServerLaw = Skellam | DiscreteGaussian | DiscreteLaplace
Law = ServerLaw | Polya
PlainNoise = tuple[Any, ...]

LEAST_PARAMETER = Fraction(1, 10**6)  # less is no noise

_SERVERS, _USERS = "servers", "users"
_SERVER_LAWS: dict[str, type[ServerLaw]] = {
    "skellam": Skellam,
    "discrete-gaussian": DiscreteGaussian,
    "discrete-laplace": DiscreteLaplace,
}
_SHARES: dict[str, type[SkellamShares | PolyaShares]] = {"skellam": SkellamShares, "polya": PolyaShares}
_SAME_VARIANCE_FROM = 9  # sigma squared from which a discrete Gaussian's variance is sigma squared to 1e-70


@dataclass(frozen=True)
class ServerNoise:
    """Each of the two servers adds a whole draw of `law` to each count; devices add nothing.

    Guarantee:  against everyone but the two servers, that of two independent draws of `law`; against either
                server, which knows its own draw, that of one draw of `law` on each count (see the law's own
                text), whatever any number of devices do.
    Neighbours: the contribution of one device set to zero (zero-out): which devices reported is public.
    Assumes:    the two servers do not collude, and the other one draws honestly and once.
    Source:     the argument is that of distributed noise in Dwork et al. 2006 (EUROCRYPT, Our Data, Ourselves),
                with two parties that each add all of it.
    """

    law: ServerLaw

    def __post_init__(self) -> None:
        if type(self.law) not in _SERVER_LAWS.values():
            raise BadInput(f"expected a law of {', '.join(_SERVER_LAWS)}, got {self.law!r}")
        _expect_drawable(self.law, _parameter(self.law))

    @property
    def device_law(self) -> Law | None:
        """What each device adds to each of its counts: nothing."""
        return None

    def server_law(self, answered: int) -> Law | None:  # noqa: ARG002 (the same for any number)
        """What each server adds to each count of the sum."""
        return self.law

    def published_variance(self, answered: int) -> float:  # noqa: ARG002
        """The variance of the noise in each published count."""
        return 2 * _variance(self.law)

    @property
    def most_variance(self) -> float:
        """The published variance at whichever number of answers it is greatest."""
        return 2 * _variance(self.law)

    def to_plain(self) -> PlainNoise:
        word = next(word for word, law in _SERVER_LAWS.items() if type(self.law) is law)
        return _SERVERS, word, fraction_text(_parameter(self.law))


@dataclass(frozen=True)
class UserNoise:
    """Each device adds a share of the law, and each server the whole of what is missing when some stay away.

    Guarantee:  against each server, the public, and any one device beside the silent ones, that of the whole
                law on each count (see `shares`); the one device, which can subtract its own share, counts
                towards `silent`: a round leaves room for it.
    Neighbours: the contribution of one device set to zero (zero-out): which devices reported is public. It
                still reports, and adds its share of the noise.
    Assumes:    the servers do not collude and the other one adds what is missing; at most the fraction
                `silent` of the agreed devices leaves its noise out or tells it. Nothing enforces that: a proxy
                that invents devices, or devices that lie, count towards `silent`.
    Source:     as the shares': arXiv 2110.04995 (Skellam), doi 10.1109/TDSC.2015.2484326 (Polya).
    """

    shares: SkellamShares | PolyaShares

    def __post_init__(self) -> None:
        if type(self.shares) not in _SHARES.values():
            raise BadInput(f"expected SkellamShares or PolyaShares, got {self.shares!r}")
        _expect_drawable(self.shares.part(Fraction(1)), _parameter(self.shares))

    @property
    def device_law(self) -> Law | None:
        """What each device adds to each of its counts."""
        return self.shares.share

    def server_law(self, answered: int) -> Law | None:
        """What each server adds to each count of the sum, if `answered` devices did; None: nothing."""
        return self.shares.missing_law(answered)

    def published_variance(self, answered: int) -> float:
        """The variance of the noise in each published count, if no device was silent."""
        return self.shares.total_variance(answered)

    @property
    def most_variance(self) -> float:
        """The published variance at whichever number of answers it is greatest."""
        return self.shares.total_variance(self.shares.parties - self.shares.noisy)

    def to_plain(self) -> PlainNoise:
        shares = self.shares
        parts = (fraction_text(_parameter(shares)), shares.parties, fraction_text(shares.silent))
        return _USERS, next(word for word, kind in _SHARES.items() if type(shares) is kind), *parts


RoundNoise = ServerNoise | UserNoise


def noise_from_plain(plain: PlainNoise) -> RoundNoise:
    """The noise that `to_plain` wrote; BadInput for anything else."""
    match plain:
        case (str(by), str(word), str(parameter)) if by == _SERVERS and word in _SERVER_LAWS:
            return ServerNoise(_SERVER_LAWS[word](parse_fraction(parameter)))
        case (str(by), str(word), str(whole), int(parties), str(silent)) if by == _USERS and word in _SHARES:
            return UserNoise(_SHARES[word](parse_fraction(whole), parties, parse_fraction(silent)))
    raise BadInput("expected noise by servers or users of a known law, got something else")


def _parameter(law: ServerLaw | SkellamShares | PolyaShares) -> Fraction:
    match law:
        case DiscreteGaussian():
            return law.sigma_squared
        case DiscreteLaplace() | PolyaShares():
            return law.scale
        case Skellam() | SkellamShares():
            return law.variance


def _variance(law: ServerLaw) -> float:
    if isinstance(law, DiscreteGaussian) and law.sigma_squared >= _SAME_VARIANCE_FROM:
        return float(law.sigma_squared)
    return float(law.variance)


def _expect_drawable(law: Law, parameter: Fraction) -> None:
    """Before a table of the law is made, which a hostile round could make fill the memory."""
    if parameter < LEAST_PARAMETER:
        raise BadInput(f"expected a variance or scale of at least {LEAST_PARAMETER}, got less")
    try:
        reach = law.reach(FIRST_DIGITS)
    except OverflowError:
        reach = float("inf")
    if not reach <= WIDEST:
        raise BadInput(f"expected noise that stays within {WIDEST:,}, got a wider law")
