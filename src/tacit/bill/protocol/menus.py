"""Menus: what may be shown in one context, epoch and lane, at which whole price, with the reasons.

A menu is a function of context and epoch, not of the request: prices are made of public data alone, so the
auction runs once, and every request of that context gets the same entries at the same prices. A report then
says (menu, index), and the price adds nothing.

Index 0 is always "show nothing", at price 0. Entries follow from 1 on, the best public score first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tacit import expect
from tacit.bill.protocol.encoding import Reader, Writer, begin_message, read_message, refuse_malformed
from tacit.display import brief
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node
from tacit.schema.impressions import NO_BIDDER, OWN_BID, RESERVE_PRICE, price_reason_words

NOTHING = 0
"""The index of showing nothing."""

MOST_ENTRIES = 250
MOST_MICROS = 2**53
MOST_PRICE_MICROS = 2**40
"""Of one impression: a million and more, and eight million charges of it still add up within 63 bits."""

CONTEXT_BYTES = 160
"""The longest context: requests are padded to it, so that none tells its own by its length."""

_ID = b"tacit/menu/1"
_NO_RANK = 255
_WHOLES = (
    ("epsilon_micros", 0, 2**32 - 1),
    ("reserve_micros", 0, MOST_MICROS),
    ("smallest_cohort", 1, 2**32 - 1),
)


class Lane(expect.Choice):
    """Whether the device may choose by private data; in the public lane it shows the only entry."""

    PUBLIC = "public"
    PERSONAL = "personal"


LANES = tuple(Lane)  # their places are on the wire


@dataclass(frozen=True)
class MenuEntry:
    """One candidate, and all reasons for its price.

    campaign      who pays
    price_micros  what one impression costs
    bid_micros    what the campaign bid
    rate          the public chance that its bid is for (a click's, say) in this context
    setter        the campaign whose public score made the price, or a code of `schema.impressions`
    """

    campaign: int
    price_micros: int
    bid_micros: int
    rate: float
    setter: int

    def __post_init__(self) -> None:
        if not 0 <= expect.integer("campaign", self.campaign) < 2**63:
            raise BadInput("expected a campaign in 0..2^63-1, got another number")
        if not 0 <= expect.integer("price_micros", self.price_micros) <= MOST_PRICE_MICROS:
            raise BadInput(f"campaign {self.campaign}: expected price_micros in 0..2^40, got another number")
        if not 0 <= expect.integer("bid_micros", self.bid_micros) <= MOST_MICROS:
            raise BadInput(f"campaign {self.campaign}: expected bid_micros in 0..2^53, got another number")
        expect.kind("rate", self.rate, float, int)
        if not 0 <= self.rate <= 1:
            raise BadInput(f"campaign {self.campaign}: expected a rate in [0, 1], got {self.rate!r}")
        if not min(NO_BIDDER, RESERVE_PRICE, OWN_BID) <= expect.integer("setter", self.setter) < 2**63:
            raise BadInput(f"campaign {self.campaign}: expected who set its price, got {self.setter}")


@dataclass(frozen=True)
class PricedMenu:
    """All that is offered for one context in one epoch and lane, the same for everybody who asks.

    node             the context, as generalised as it is told
    rule             how entries are priced, in the words of the bill: "second price per impression"
    mechanism        how devices choose: a word of `deliver`, or "public" where nothing private is read
    epsilon_micros   what one choice may spend of a device's privacy, in millionths; 0 in the public lane
    smallest_cohort  reports of this menu that are waited for before a batch of them is released
    reserve_micros   the least public score that takes part
    nothing_rank     the public rank of showing nothing, where that is a candidate worth `nothing_micros`
    finer            rates at nodes below, by entry's index, for devices that know where they are
    prior            how far devices' scores may be from public ones, as `deliver` writes it
    """

    epoch: int
    lane: Lane
    node: Node
    entries: tuple[MenuEntry, ...]
    rule: str
    mechanism: str
    epsilon_micros: int
    smallest_cohort: int
    reserve_micros: int = 0
    ctr_floor: float = 0.0
    nothing_micros: float | None = None
    nothing_rank: int | None = None
    finer: Mapping[Node, Mapping[int, float]] = field(default_factory=dict, repr=False)
    prior: str = field(default="{}", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lane", Lane(self.lane))
        if not 0 <= expect.integer("epoch", self.epoch) < 2**32:
            raise BadInput("expected an epoch in 0..2^32-1, got another number")
        if not 1 <= len(self.entries) <= MOST_ENTRIES:
            raise BadInput(f"{self.node}: expected 1 to {MOST_ENTRIES} entries, got {len(self.entries)}")
        if len({entry.campaign for entry in self.entries}) < len(self.entries):
            raise BadInput(f"{self.node}: expected each campaign once, got one twice")
        if len(context_bytes(self.node)) > CONTEXT_BYTES:
            raise BadInput(f"{self.node}: expected a context of at most {CONTEXT_BYTES} bytes, got more")
        for name, least, most in _WHOLES:
            if not least <= expect.integer(name, getattr(self, name)) <= most:
                raise BadInput(f"{self.node}: expected {name} in {least}..{most}, got another number")
        if not 0 <= self.ctr_floor <= 1:
            raise BadInput(f"{self.node}: expected ctr_floor in [0, 1], got {self.ctr_floor!r}")
        if self.nothing_micros is not None and not 0 <= self.nothing_micros <= MOST_MICROS:
            raise BadInput(f"{self.node}: expected nothing_micros in 0..2^53, got {self.nothing_micros!r}")
        if (self.nothing_micros is None) != (self.nothing_rank is None):
            raise BadInput(f"{self.node}: expected worth and rank of nothing, or neither, got one of them")
        if self.nothing_rank is not None and not 0 <= self.nothing_rank <= len(self.entries):
            raise BadInput(f"{self.node}: expected nothing among the entries, got rank {self.nothing_rank}")
        private = len(self.entries) > 1 or self.epsilon_micros or self.nothing_micros is not None
        if self.lane is Lane.PUBLIC and private:
            raise BadInput(f"{self.node}: expected one entry and epsilon 0 in the public lane, got more")
        indices = range(1, len(self.entries) + 1)
        for table in self.finer.values():
            if any(index not in indices or not 0 <= rate <= 1 for index, rate in table.items()):
                raise BadInput(f"{self.node}: expected finer rates in [0, 1] of its entries, got others")

    def __repr__(self) -> str:
        return brief(self, context=str(self.node), epoch=self.epoch, lane=self.lane, entries=len(self.entries))

    @cached_property
    def data(self) -> bytes:
        """The menu as it is sent, hashed and kept."""
        return self.to_bytes()

    @cached_property
    def menu_id(self) -> bytes:
        """SHA-256 of all of it: another price is another menu."""
        return hashlib.sha256(_ID + self.data).digest()

    def price_micros(self, index: int) -> int | None:
        """What is charged where this index was shown; None where there is no such entry."""
        if index == NOTHING:
            return 0
        return self.entries[index - 1].price_micros if 0 < index <= len(self.entries) else None

    def reason(self, index: int) -> str:
        """Why the price of an index is what it is, in public terms."""
        if index == NOTHING:
            return "nothing was shown"
        return price_reason_words(self.rule, index, self.entries[index - 1].setter)

    def public_lane(self) -> PricedMenu:
        """The same context for who did not agree, or has nothing left to spend: its public best alone."""
        return replace(
            self, lane=Lane.PUBLIC, entries=self.entries[:1], mechanism="public", epsilon_micros=0,
            nothing_micros=None, nothing_rank=None, ctr_floor=0.0, finer={}, prior="{}", smallest_cohort=1,
        )  # fmt: skip

    def to_bytes(self) -> bytes:
        writer = begin_message().number("I", self.epoch).number("B", LANES.index(self.lane))
        writer.blob(context_bytes(self.node)).text(self.rule).text(self.mechanism)
        writer.number("I", self.epsilon_micros).number("I", self.smallest_cohort)
        writer.number("Q", self.reserve_micros).number("d", self.ctr_floor)
        writer.number("B", _NO_RANK if self.nothing_rank is None else self.nothing_rank)
        writer.number("d", 0.0 if self.nothing_micros is None else self.nothing_micros)
        writer.text(self.prior).number("B", len(self.entries))
        for entry in self.entries:
            writer.number("Q", entry.campaign).number("Q", entry.price_micros).number("Q", entry.bid_micros)
            writer.number("d", entry.rate).number("q", entry.setter)
        writer.number("H", len(self.finer))
        for node in sorted(self.finer):
            writer.blob(context_bytes(node)).number("B", len(self.finer[node]))
            for index, rate in sorted(self.finer[node].items()):
                writer.number("B", index).number("d", rate)
        return writer.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> PricedMenu:
        menu = read_message(data, "menu", _parse_menu)
        if menu.data != data:
            refuse_malformed("expected a menu in its only spelling")
        return menu


def _parse_menu(reader: Reader) -> PricedMenu:
    epoch, lane = reader.number("I"), reader.number("B")
    if lane >= len(LANES):
        refuse_malformed("expected a lane")
    node, rule, mechanism = parse_context(reader.blob()), reader.text(), reader.text()
    epsilon_micros, smallest_cohort = reader.number("I"), reader.number("I")
    reserve_micros, ctr_floor = reader.number("Q"), reader.double()
    nothing_rank, nothing_micros = reader.number("B"), reader.double()
    prior = reader.text()
    entries = tuple(
        MenuEntry(
            reader.number("Q"), reader.number("Q"), reader.number("Q"), reader.double(), reader.number("q")
        )
        for _ in range(reader.number("B"))
    )
    finer: dict[Node, dict[int, float]] = {}
    for _ in range(reader.number("H")):
        below = parse_context(reader.blob())
        finer[below] = {reader.number("B"): reader.double() for _ in range(reader.number("B"))}
    has_nothing = nothing_rank != _NO_RANK
    return PricedMenu(
        epoch=epoch, lane=LANES[lane], node=node, entries=entries, rule=rule, mechanism=mechanism,
        epsilon_micros=epsilon_micros, smallest_cohort=smallest_cohort, reserve_micros=reserve_micros,
        ctr_floor=ctr_floor, nothing_micros=nothing_micros if has_nothing else None,
        nothing_rank=nothing_rank if has_nothing else None, finer=finer, prior=prior,
    )  # fmt: skip


def context_bytes(node: Node) -> bytes:
    """A context's one spelling: for each attribute its level and its value."""
    expect.kind("context", node, Node)
    writer = Writer().number("B", len(node.levels))
    for level, value in zip(node.levels, node.values, strict=True):
        writer.number("B", level).text(value)
    return writer.to_bytes()


def parse_context(data: bytes) -> Node:
    """The context that `context_bytes` wrote; names of attributes, which are for reading, do not travel."""
    reader = Reader(data)
    said = [(reader.number("B"), reader.text()) for _ in range(reader.number("B"))]
    reader.end()
    if not said:
        refuse_malformed("expected a context of at least one attribute")
    return Node(tuple(level for level, _ in said), tuple(value for _, value in said))
