"""A device: which events count, its exact answer and how far it can be from zero, its one upload per round."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit.entropy import Entropy, Simulation
from tacit.errors import BadInput, EntropyMisuse, Refused
from tacit.gather.client.contributions import Contributions, Event, answer_question
from tacit.gather.client.reporter import MemoryDeviceStore, Outbox, Reporter
from tacit.gather.protocol import credentials
from tacit.gather.protocol.credentials import PartyRole, SealingKey
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.groups import Group
from tacit.gather.protocol.noise import ServerNoise, UserNoise
from tacit.gather.protocol.promises import CountBounds
from tacit.gather.protocol.rounds import Question, Round, report_binding
from tacit.gather.protocol.sharing import sharing_scheme
from tacit.gather.protocol.uploads import Upload, upload_size
from tacit.privacy.noise.distributions import Skellam
from tacit.privacy.noise.shares import PolyaShares, SkellamShares
from tacit.schema.contexts.hierarchy import Levels
from tests.support.exact_tests import assert_matches_pmf
from tests.support.gather_rounds import PROMISE, PROXY_KEY, PURE, QUESTION, SECRET, SERVER_KEY, a_round

DEVICE = b"device of 16 byt"
KEY = credentials.issue_device_key(SECRET, DEVICE)


SPARE = Fraction(1, 100)


def a_reporter(outbox: Outbox | None = None, **changes: Any) -> Reporter:
    known = {"proxy_key": PROXY_KEY.public, "server_key": SERVER_KEY.public}
    named: dict[str, Any] = {"device": DEVICE, "key": KEY, "entropy": Entropy(), **known}
    return Reporter(outbox=outbox or MemoryDeviceStore(), **(named | changes))


def node_of(levels: Levels, context: tuple[Any, ...]) -> int:  # noqa: ARG001 (one level here)
    """Contexts are their own nodes."""
    return int(context[0])


def events_of(*shown: tuple[int, int, bool]) -> tuple[Event, ...]:
    return tuple(Event((node,), ad, clicked) for node, ad, clicked in shown)


def slow_answer(question: Question, contributions: Contributions, each: int) -> list[int]:
    """By the definition, a cell at a time."""
    nodes = question.nodes.tolist()
    entries = [
        (node, ad)
        for place, node in enumerate(nodes)
        for ad in question.ad[question.offsets[place] : question.offsets[place + 1]].tolist()
    ]
    seen = [(event.context[0], event.ad, event.clicked) for event in contributions.events]
    totals = [sum(node == where for where, _, _ in seen) for node in nodes]
    clicks = [seen.count((node, ad, True)) for node, ad in entries]
    no_clicks = [seen.count((node, ad, False)) for node, ad in entries]
    return [min(count, each) for count in totals + clicks + no_clicks]


SHOWN = st.tuples(st.integers(-1, 10), st.integers(0, 8), st.booleans())


@given(shown=st.lists(SHOWN, max_size=12), each=st.integers(1, 5))
def test_answers_are_those_of_the_definition(shown: list[tuple[int, int, bool]], each: int) -> None:
    contributions = Contributions(events_of(*shown), most=12)
    found = answer_question(QUESTION, contributions, node_of, each)
    assert found.dtype == np.int64
    assert found.tolist() == slow_answer(QUESTION, contributions, each)


def test_an_answer_by_hand() -> None:
    shown = events_of((2, 7, True), (2, 7, True), (2, 7, False), (2, 3, True), (5, 1, True), (9, 4, False))
    found = answer_question(QUESTION, Contributions(shown, 6), node_of, each=2)
    assert found[QUESTION.totals].tolist() == [
        2,
        1,
        1,
    ]  # four at node 2, clipped; nobody asked of ad 3
    assert found[QUESTION.clicks].tolist() == [0, 2, 0, 0, 0]
    assert found[QUESTION.no_clicks].tolist() == [0, 1, 0, 0, 1]
    with pytest.raises(BadInput, match="each"):
        answer_question(QUESTION, Contributions(shown, 6), node_of, each=0)


def farthest_answers(most: int, each: int, nodes: int, ads: int) -> tuple[int, int]:
    """The greatest squared L2 and L1 distance from zero, over all choices of `most` events."""
    question = Question(
        (0,), np.arange(nodes), np.arange(nodes + 1) * ads, np.tile(np.arange(ads), nodes).astype(np.int64)
    )
    kinds = list(itertools.product(range(nodes), range(ads), (True, False)))
    squares, sums = 0, 0
    for shown in itertools.combinations_with_replacement(kinds, most):
        counts = answer_question(question, Contributions(events_of(*shown), most), node_of, each)
        squares, sums = max(squares, int((counts**2).sum())), max(sums, int(counts.sum()))
    return squares, sums


@pytest.mark.parametrize(("most", "each"), [(m, r) for m in range(1, 5) for r in range(1, m + 1)])
def test_sensitivity_by_enumeration(most: int, each: int) -> None:
    whole, rest = divmod(most, each)
    nodes = -(-most // each)  # as many as the worst case needs
    squares, sums = farthest_answers(most, each, nodes, ads=1)
    assert squares == 2 * (whole * each**2 + rest**2)
    assert squares <= 2 * most * each  # equal where each divides most
    assert (squares == 2 * most * each) == (rest == 0)
    assert sums == 2 * most


def test_few_cells_bind_before_the_bounds_do() -> None:
    assert farthest_answers(most=3, each=1, nodes=1, ads=1) == (1 + 2, 1 + 2)  # a total, click, no-click
    assert farthest_answers(most=3, each=2, nodes=1, ads=2) == (
        4 + 5,
        2 + 3,
    )  # the total is clipped


def test_without_the_bound_on_a_cell_the_sensitivity_is_larger() -> None:
    """The twin of the enumeration: clipping to m in place of r must be seen."""
    assert farthest_answers(most=3, each=3, nodes=3, ads=1)[0] == 18 > 2 * 3 * 1


def test_every_choice_of_events_is_as_likely() -> None:
    shown = events_of(*((node, 0, False) for node in range(5)))
    entropy, trials = Simulation("choices"), 5000
    chosen = Counter(
        tuple(event.context[0] for event in Contributions.choose(shown, 2, entropy).events)
        for _ in range(trials)
    )
    pairs = list(itertools.combinations(range(5), 2))  # in rising order: the choice keeps the order of events
    assert_matches_pmf(chosen, {pair: Fraction(1, comb(5, 2)) for pair in pairs})
    first = Counter({pairs[0]: trials})
    with pytest.raises(AssertionError):  # the first two, always
        assert_matches_pmf(first, {pair: Fraction(1, comb(5, 2)) for pair in pairs})


def test_contributions_are_kept_as_they_were() -> None:
    shown = (
        Event(((40.7644, -73.9745), "Coffee"), 3, True),
        Event(((1.0, -0.0), "größer", ("a", "b"), 7, True), 0, False),
    )
    chosen = Contributions.choose(shown, 5, Entropy())
    assert chosen == Contributions(shown, 5)
    assert Contributions.from_bytes(chosen.to_bytes()) == chosen
    many = Contributions(events_of(*((1, ad, True) for ad in range(3000))), 5000)
    assert Contributions.from_bytes(many.to_bytes()) == many
    assert Contributions.choose((), 3, Entropy()).events == ()


def test_events_that_could_not_be_kept_are_refused() -> None:
    for context in ([1], (float("nan"),), ({"a"},), (None,), (2**60,), (np.float64(1.0),)):
        with pytest.raises(BadInput, match="context"):
            Event(context, 0, True)  # type: ignore[arg-type]
    for ad, clicked in ((-1, True), (2**60, True), (0, 1), (True, True)):
        with pytest.raises(BadInput):
            Event((1,), ad, clicked)  # type: ignore[arg-type]
    shown = events_of((1, 0, True), (2, 0, True))
    with pytest.raises(BadInput, match="at most 1 event"):
        Contributions(shown, 1)
    for most in (0, 10**6, True):
        with pytest.raises(BadInput, match="most"):
            Contributions.choose(shown, most, Entropy())


def opened(round: Round, data: bytes) -> NDArray[np.int64]:
    """What both parties together find in an upload: the values, with any noise of the device."""
    upload = Upload.from_bytes(data)
    assert upload.digest == round.digest
    assert credentials.check_report_tag(SECRET, upload.device, upload.signed_bytes, upload.tag)
    bound, form = [report_binding(upload.digest, upload.report_id)], sharing_scheme(round)
    proxy = PROXY_KEY.open(upload.sealed_proxy, role=PartyRole.PROXY, binding=bound[0])
    server = SERVER_KEY.open(upload.sealed_server, role=PartyRole.SERVER, binding=bound[0])
    parts = [
        form.prepare(role, [plain], bound, bytes(32)).shares[0]
        for role, plain in ((PartyRole.PROXY, proxy), (PartyRole.SERVER, server))
    ]
    return round.group.lift(round.group.add(*parts))


@pytest.mark.parametrize(
    "round",
    [
        *(a_round(group=group) for group in Group),
        a_round(group=Group.FIELD64, bounds=CountBounds(each=4, total=8)),
    ],
    ids=["ring32", "ring64", "field64", "with a proof"],
)
def test_an_upload_holds_the_values(round: Round) -> None:
    values = np.array([4, 0, 0, 3, *[0] * 8, 1])
    data = a_reporter().upload(round, values)
    assert len(data) == upload_size(round)
    assert opened(round, data).tolist() == values.tolist()
    assert Upload.from_bytes(data).device == DEVICE


def test_a_retry_sends_the_very_same_bytes() -> None:
    outbox, round, values = MemoryDeviceStore(), a_round(), np.zeros(13, np.int64)
    first = a_reporter(outbox).upload(round, values)
    again = a_reporter(outbox).upload(round, values + 1)  # restarted, and mistaken
    assert again == first
    assert a_reporter(outbox).upload(replace(round, level=1), values) != first
    assert a_reporter().upload(round, values) != first


def test_an_upload_that_was_kept_meanwhile_is_the_one_to_send() -> None:
    class KeptElsewhere(MemoryDeviceStore):
        def find(self, digest: bytes) -> bytes | None:  # noqa: ARG002 (as if another process were as far)
            return None

    outbox, round = KeptElsewhere(), a_round()
    first = outbox.keep(round.digest, b"by another process")
    assert a_reporter(outbox).upload(round, np.zeros(13, np.int64)) == first


def test_nothing_is_sent_that_was_not_kept_first() -> None:
    class Full(MemoryDeviceStore):
        def keep(self, digest: bytes, upload: bytes) -> bytes:  # noqa: ARG002
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        a_reporter(Full()).upload(a_round(), np.zeros(13, np.int64))


@pytest.mark.parametrize(
    "shares", [SkellamShares(Fraction(1200), 100, SPARE), PolyaShares(Fraction(20), 100, SPARE)], ids=str
)
def test_a_device_adds_its_share_of_the_noise(shares: SkellamShares | PolyaShares) -> None:
    round = a_round(
        cells=1000,
        parties=100,
        smallest_batch=10,
        question=bytes(32),
        noise=UserNoise(shares),
        promise=PROMISE if isinstance(shares, SkellamShares) else PURE,
    )
    values = np.zeros(1000, np.int64)
    values[::250] = 2
    reporter = a_reporter(entropy=Simulation("noise of a device"), simulated=True)
    noise = opened(round, reporter.upload(round, values)) - values
    law = shares.share
    tail = 1 - sum(law.pmf(x) for x in range(-2, 3))
    pmf = {**{x: law.pmf(x) for x in range(-2, 3)}, 9: tail}
    assert_matches_pmf(Counter(x if abs(x) <= 2 else 9 for x in noise.tolist()), pmf)
    with pytest.raises(AssertionError):  # the twin that leaves its noise out
        assert_matches_pmf(Counter([0] * 1000), pmf)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.full(13, 5), "from 0 to 4"),
        (np.full(13, -1), "from 0 to 4"),
        (np.ones(13, np.int64), "add up to at most 8"),
        (np.zeros(12, np.int64), "13 values"),
        (np.zeros(13), "int64"),
        (np.zeros((13, 1), np.int64), "13 values"),
    ],
)
def test_values_that_the_round_does_not_allow_are_refused(values: NDArray[Any], words: str) -> None:
    outbox, round = MemoryDeviceStore(), a_round()
    with pytest.raises(BadInput, match=words):
        a_reporter(outbox).upload(round, values)
    assert outbox.find(round.digest) is None


def test_values_are_held_to_the_rounds_bounds() -> None:
    round = a_round(group=Group.FIELD64, bounds=CountBounds(each=4, total=5))
    reporter = a_reporter()
    for values, words in (
        (np.full(13, 5), "0 to 4"),
        ((np.arange(13) < 6).astype(np.int64), "at most 5"),
    ):
        with pytest.raises(BadInput, match=words):
            reporter.upload(round, values)


@pytest.mark.parametrize("party", ["proxy_key", "server_key"])
def test_a_device_seals_to_no_other_parties_than_those_it_knows(party: str) -> None:
    """A proxy that hands out rounds with a key of its own as the server's would open both parts."""
    round, values = a_round(), np.zeros(13, np.int64)
    stolen = a_round(**{party: SealingKey.generate().public})
    outbox = MemoryDeviceStore()
    reporter = a_reporter(outbox)
    with pytest.raises(Refused) as refusal:
        reporter.upload(stolen, values)
    assert refusal.value.reason is MessageVerdict.UNAUTHENTICATED
    assert outbox.find(stolen.digest) is None
    assert opened(round, reporter.upload(round, values)).tolist() == values.tolist()
    with pytest.raises(BadInput, match="server_key"):
        a_reporter(outbox, server_key=b"short")
    with pytest.raises(BadInput, match="proxy_key"):
        a_reporter(outbox, proxy_key=b"short")


def test_a_device_answers_no_round_whose_noise_does_not_keep_its_promise() -> None:
    outbox = MemoryDeviceStore()
    for bare in (
        a_round(noise=ServerNoise(Skellam(Fraction(1, 10**6)))),
        a_round(promise=replace(PROMISE, epsilon=Fraction(1))),
        a_round(promise=replace(PROMISE, levels=100)),
        a_round(promise=replace(PROMISE, delta=Fraction(0))),
    ):
        with pytest.raises(Refused, match="keeps") as refusal:
            a_reporter(outbox).upload(bare, np.zeros(13, np.int64))
        assert refusal.value.reason is MessageVerdict.PROMISE_NOT_KEPT
        assert outbox.find(bare.digest) is None


def test_a_seeded_source_is_for_simulations_only() -> None:
    with pytest.raises(EntropyMisuse, match="simulated=True"):
        a_reporter(entropy=Simulation(1))
    a_reporter(entropy=Simulation(1), simulated=True)


def test_a_reporter_needs_its_own_name_and_key() -> None:
    for device, key in ((b"short", KEY), (DEVICE, b"short")):
        with pytest.raises(BadInput, match="bytes"):
            a_reporter(device=device, key=key)


def test_a_part_does_not_open_for_another_report_or_round() -> None:
    round = a_round()
    upload = Upload.from_bytes(a_reporter().upload(round, np.zeros(13, np.int64)))
    other = replace(round, level=1).digest
    for key, sealed, role, bound in (
        (PROXY_KEY, upload.sealed_proxy, PartyRole.PROXY, report_binding(other, upload.report_id)),
        (SERVER_KEY, upload.sealed_server, PartyRole.SERVER, report_binding(round.digest, bytes(16))),
        (SERVER_KEY, upload.sealed_proxy, PartyRole.PROXY, report_binding(round.digest, upload.report_id)),
    ):
        with pytest.raises(Refused):
            key.open(sealed, role=role, binding=bound)
