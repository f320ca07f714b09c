"""Neither party's store tells a marked device's counts; both stores together tell them at once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest

from tacit.entropy import Simulation
from tacit.gather.protocol.credentials import PartyRole
from tacit.gather.protocol.groups import Residues
from tacit.gather.protocol.noise import ServerNoise
from tacit.gather.protocol.rounds import report_binding
from tacit.gather.protocol.sharing import sharing_scheme
from tacit.gather.protocol.uploads import Upload
from tacit.gather.proxy.store import ProxyPhase
from tacit.privacy.noise.distributions import Skellam
from tests.support.exact_tests import ALPHA
from tests.support.gather_worlds import DURING, PROXY_KEY, SERVER_KEY, World, a_round, name, noise_of

TRIALS = 120
LAW = Skellam(Fraction(10_000))
ROUND = a_round(cells=2, noise=ServerNoise(LAW))
GROUP = ROUND.group
OTHERS = [[1, 0], [0, 1], [1, 1]]
"""The marked device is device 0, and counts 1 or 0 in both cells: against noise of sd 100, a release tells its
coin with a chance of half a percent above guessing, which no test of 120 trials can show."""


class View:
    """All that a party has of a run: every byte that it keeps, and every vector that it can make of them."""

    def __init__(self) -> None:
        self.kept = b""
        self.vectors: list[Residues] = []

    def bits(self) -> NDArray[np.uint8]:
        """The bytes, the vectors, and every sum and difference of two vectors: as bits."""
        pairs = list(combinations(self.vectors, 2))
        made = [
            *self.vectors,
            *(GROUP.add(*pair) for pair in pairs),
            *(GROUP.subtract(*pair) for pair in pairs),
        ]
        whole = self.kept + b"".join(GROUP.to_bytes(each) for each in made)
        return np.unpackbits(np.frombuffer(whole, np.uint8))


def leaves(thing: Any) -> bytes:
    """Every byte, number and text in a store, in a fixed order."""
    if isinstance(thing, bytes):
        return thing
    if isinstance(thing, bool | int | float | str | Enum) or thing is None:
        return str(thing).encode().ljust(24)
    if is_dataclass(thing):
        return b"".join(leaves(getattr(thing, each.name)) for each in fields(thing))
    if isinstance(thing, dict):
        return b"".join(leaves(key) + leaves(thing[key]) for key in sorted(thing))
    if isinstance(thing, set):
        return b"".join(map(leaves, sorted(thing)))
    return b"".join(map(leaves, thing))


def views(coin: int, seed: str) -> tuple[View, View]:
    """A whole run in which the marked device has this coin; the proxy's and the server's view of it."""
    round = replace(ROUND, task=seed)  # another name, and with it other noise
    world = World(round, seed=seed)
    rows = [[coin, coin], *OTHERS]
    uploads = [world.upload(each, row) for each, row in enumerate(rows)]
    world.proxy.take(uploads, DURING)
    proxy, server = View(), View()
    proxy.kept = leaves(world.proxy_store._rounds)  # before the uploads are dropped, and again at the end
    jobs: list[bytes] = []
    forward = world.job
    world.job = lambda body: jobs.append(body) or forward(body)  # type: ignore[method-assign, func-returns-value]
    assert world.drive(most=2) is ProxyPhase.RELEASED
    proxy.kept += leaves(world.proxy_store._rounds)
    server.kept = leaves(world.server_store._rounds) + b"".join(jobs)

    scheme = sharing_scheme(round)
    for data in uploads:
        upload = Upload.from_bytes(data)
        bound = report_binding(round.digest, upload.report_id)
        for role, key, sealed, view in (
            (PartyRole.PROXY, PROXY_KEY, upload.sealed_proxy, proxy),
            (PartyRole.SERVER, SERVER_KEY, upload.sealed_server, server),
        ):
            plain = key.open(sealed, role=role, binding=bound)
            view.vectors.append(scheme.prepare(role, [plain], [bound], bytes(32)).shares[0])
    share = GROUP.from_bytes(world.proxy_store.share(world.digest), 2)
    result = GROUP.residues(world.server.result(world.digest, world.now).values)
    agreed = world.proxy.accepted_set(world.digest)
    for view, store, role in (
        (proxy, world.proxy_store, PartyRole.PROXY),
        (server, world.server_store, PartyRole.SERVER),
    ):
        totals = np.array([GROUP.from_bytes(each, 2) for each in store.totals(world.digest)])
        noise = GROUP.residues(noise_of(round, agreed, role, store))
        view.vectors += [GROUP.total(totals), share, result, noise]
    return proxy, server


def together(proxy: View, server: View) -> View:
    both = View()
    both.kept, both.vectors = proxy.kept + server.kept, proxy.vectors + server.vectors
    return both


def telling(view_of: Callable[[int, int], View]) -> float:
    """The chance that a fair coin agrees with some bit of the views as often as the marked coin does.

    If a view is independent of the coin, each bit agrees with it in Binomial(TRIALS, 1/2) trials, exactly.
    """
    coins = np.array([Simulation(f"coin {trial}").uniform_below(2) for trial in range(TRIALS)], np.uint8)
    bits = np.array([view_of(int(coin), trial).bits() for trial, coin in enumerate(coins)])  # (trials, bits)
    agreements = (bits == coins[:, None]).sum(axis=0)
    furthest = int(agreements[np.abs(agreements - TRIALS / 2).argmax()])
    chance: float = binomtest(furthest, TRIALS, 0.5).pvalue
    return chance * float(bits.shape[1])


@pytest.fixture(scope="module")
def runs() -> Callable[[int, int], tuple[View, View]]:
    """The same runs for every test: trial -> views."""
    made: dict[int, tuple[View, View]] = {}

    def run(coin: int, trial: int) -> tuple[View, View]:
        if trial not in made:
            made[trial] = views(coin, f"trial {trial:03}")
        return made[trial]

    return run


Runs = Callable[[int, int], tuple[View, View]]


def test_the_proxy_alone_cannot_tell(runs: Runs) -> None:
    assert telling(lambda coin, trial: runs(coin, trial)[0]) >= ALPHA


def test_the_server_alone_cannot_tell(runs: Runs) -> None:
    assert telling(lambda coin, trial: runs(coin, trial)[1]) >= ALPHA


def test_both_together_can(runs: Runs) -> None:
    """The twin: the same test finds the coin where the parties pool what they have."""
    assert telling(lambda coin, trial: together(*runs(coin, trial))) < 1e-25


def test_masks_that_come_again_would_tell_the_proxy() -> None:
    """Another twin: devices that draw the same seeds in every run hide nothing from the proxy."""
    assert telling(lambda coin, trial: views(coin, "always the same")[0]) < 1e-25  # noqa: ARG005


def test_nothing_is_logged_or_said(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    views(1, "logged")
    assert caplog.records == []
    assert capsys.readouterr() == ("", "")


def test_each_store_has_only_what_its_party_may_have() -> None:
    """No device's name at the server, no seed at the proxy, no masked vector at the server."""
    world = World(ROUND, seed="allowed")
    device = name(0x77AA55)
    upload = world.upload(0x77AA55, [1, 1])
    world.proxy.take([upload, *(world.upload(each + 1, row) for each, row in enumerate(OTHERS))], DURING)
    sealed = Upload.from_bytes(upload)
    bound = report_binding(ROUND.digest, sealed.report_id)
    masked = PROXY_KEY.open(sealed.sealed_proxy, role=PartyRole.PROXY, binding=bound)
    seed = SERVER_KEY.open(sealed.sealed_server, role=PartyRole.SERVER, binding=bound)
    before = leaves(world.proxy_store._rounds)
    world.drive()
    proxy, server = before + leaves(world.proxy_store._rounds), leaves(world.server_store._rounds)
    assert device in proxy
    assert device not in server
    for secret in (masked, seed, PROXY_KEY.to_bytes(), SERVER_KEY.to_bytes()):
        assert secret not in proxy
        assert secret not in server
    assert sealed.sealed_server not in leaves(world.proxy_store._rounds)  # dropped when the job is finished
