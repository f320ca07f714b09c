"""Menus that a device may choose from: found in a directory that ad server and proxy signed, and planned once.

All of it is public, and a function of what the parties sent: devices may share one book, as those of a fleet
do, and none learns from it what another did.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np

from tacit.bill.protocol.batches import CohortStatement
from tacit.bill.protocol.directory import DirectoryLeaf, EpochHead, check_listed
from tacit.bill.protocol.encoding import BillVerdict, Reader, begin_message, malformed_if_refused, read_message
from tacit.bill.protocol.menus import LANES, NOTHING, Lane, PricedMenu, context_bytes
from tacit.bill.protocol.offers import ListedMenu
from tacit.bill.protocol.tokens import TOKEN_BYTES, TokenPublicKey
from tacit.deliver.device.account import MICRO
from tacit.deliver.device.choice import DeviceRates, PrivateChoice, expect_answer, prepare_choice
from tacit.deliver.device.context import DeviceContext
from tacit.deliver.device.parties import PartyKeys
from tacit.deliver.device.wallet import BudgetPolicy
from tacit.deliver.protocol.menu import Menu
from tacit.deliver.protocol.plans import Planner
from tacit.deliver.protocol.priced_menus import candidates_of, entry_index, plan_method
from tacit.display import brief
from tacit.errors import BillRefused
from tacit.privacy.randomness import Source
from tacit.privacy.units import Window
from tacit.schema.contexts.hierarchy import Node

HASH_BYTES = 32
MOST_STATEMENTS = 10_000  # that are remembered


@dataclass(frozen=True, eq=False)
class OpenMenu:
    """A menu of an open epoch that was found where it belongs, and how devices choose from it.

    choice  by the menu's own mechanism, epsilon and prior; None where nothing private is read

    Guarantee:  `choose` is pure LDP with epsilon = `epsilon_micros` / 10^6; where that is 0 nothing private is
                read at all.
    Neighbours: any two private states of a device with the same disclosed context.
    Assumes:    what `PrivateChoice` assumes: above all, one choice per payment.
    Source:     `PrivateChoice`.
    """

    head: EpochHead
    listed: ListedMenu = field(repr=False)
    candidates: Menu = field(repr=False)
    choice: PrivateChoice | None = field(repr=False)

    @property
    def menu(self) -> PricedMenu:
        return self.listed.menu

    @property
    def epsilon_micros(self) -> int:
        """What one choice spends: all that the menu asks for, or nothing where nothing can be won."""
        return 0 if self.choice is None else self.menu.epsilon_micros

    def choose(
        self,
        rates: DeviceRates,
        context: DeviceContext,
        source: Source,
        barred: Callable[[], Collection[int]] = frozenset,
    ) -> int:
        """The index of the entry to show, drawn once. `barred` are campaigns that this device would rather not
        show now: their rate is 0 in the choice. It is asked only where private data may be read."""
        expect_answer(self.candidates, context)
        if self.choice is None:
            return entry_index(self.menu, 0)
        known = np.asarray(rates(self.candidates, context))[None]
        unwanted = barred()
        if unwanted:
            known = np.where(np.isin(self.candidates.ads, sorted(unwanted)), 0.0, known)
        return entry_index(self.menu, int(self.choice.choose(known, source.words)[0]))

    def campaign(self, index: int) -> int | None:
        return None if index == NOTHING else self.menu.entries[index - 1].campaign


def menu_place(node: Node, lane: Lane) -> bytes:
    """A context and lane, in their one spelling."""
    return bytes([LANES.index(lane)]) + context_bytes(node)


class MenuBook:
    """Heads and menus that were checked, with their plans."""

    def __init__(self, keys: PartyKeys) -> None:
        self.keys = keys
        self._heads: dict[int, EpochHead] = {}
        self._menus: dict[bytes, OpenMenu] = {}
        self._at: dict[tuple[int, bytes], OpenMenu] = {}
        self._statements: dict[bytes, CohortStatement] = {}

    def __repr__(self) -> str:
        return brief(self, epochs=sorted(self._heads), menus=len(self._menus))

    def current(self, now: int) -> EpochHead | None:
        """The latest epoch that is open at this second, of those that are known."""
        found = [head for head in self._heads.values() if head.opens <= now < head.closes]
        return max(found, key=lambda head: head.epoch, default=None)

    def head(self, epoch: int) -> EpochHead | None:
        return self._heads.get(epoch)

    def at(self, epoch: int, place: bytes) -> OpenMenu | None:
        """The menu of an epoch at this context and lane, where it is known."""
        return self._at.get((epoch, place))

    def menu(self, menu_id: bytes) -> OpenMenu | None:
        return self._menus.get(menu_id)

    def forget(self, expired_before: int) -> None:
        """Let go of epochs that expired before this second."""
        for epoch in [each for each, head in self._heads.items() if head.expires < expired_before]:
            del self._heads[epoch]
        self._menus = {at: each for at, each in self._menus.items() if each.head.epoch in self._heads}
        self._at = {at: each for at, each in self._at.items() if at[0] in self._heads}

    def drop_head(self, epoch: int) -> None:
        """Ask for the head again: the ad server says that this epoch is over."""
        self._heads.pop(epoch, None)

    def check_head(self, data: bytes) -> EpochHead:
        """A head that both parties signed; BillRefused otherwise, and where it is a second one."""
        head = EpochHead.from_bytes(data)
        known = self._heads.get(head.epoch)
        if known is not None and known == head:
            return known
        try:
            head.check(self.keys.server_signing, self.keys.proxy_signing)
        except BillRefused:
            raise BillRefused(
                BillVerdict.UNAUTHENTICATED,
                f"expected epoch {head.epoch} signed by the ad server and the proxy that this app knows: "
                "compare their public keys with the app's",
            ) from None
        if known is not None and known.body != head.body:
            refuse_second(head.epoch)
        return head

    def check_statement(self, data: bytes) -> CohortStatement:
        """How large a batch was, as the proxy signed it; BillRefused otherwise."""
        found = self._statements.get(data)
        if found is None:
            found = CohortStatement.from_bytes(data)
            found.check(self.keys.proxy_signing)
            if len(self._statements) >= MOST_STATEMENTS:
                self._statements.clear()
            self._statements[data] = found
        return found

    def add_head(self, head: EpochHead) -> None:
        """Enter a head that was checked, and that the device has kept."""
        self._heads[head.epoch] = head

    def add_menu(self, head: EpochHead, listed: ListedMenu, node: Node, lane: Lane) -> OpenMenu:
        """A menu that was sent for a context and lane, checked and planned; BillRefused where it is another."""
        menu = listed.menu
        self.check_menu(head, listed, node, lane)
        opened = OpenMenu(head, listed, candidates_of(menu), None)
        if menu.lane is Lane.PERSONAL and menu.epsilon_micros:
            opened = OpenMenu(head, listed, opened.candidates, plan_menu(menu, opened.candidates))
        self._menus[menu.menu_id] = self._at[head.epoch, menu_place(node, lane)] = opened
        return opened

    def check_menu(self, head: EpochHead, listed: ListedMenu, node: Node, lane: Lane) -> None:
        """Whether it is the menu of a context and lane, in a directory that was checked; BillRefused otherwise.

        Its leaf is made anew from the menu: a menu with a key or a price of this device's own is in no
        directory that others have.
        """
        menu = listed.menu
        for name, expected, got in (
            ("epoch", head.epoch, menu.epoch), ("lane", lane, menu.lane), ("context", node, menu.node)
        ):  # fmt: skip
            if expected != got:
                raise BillRefused(BillVerdict.NOT_LISTED, f"expected a menu of {name} {expected}, got {got}")
        check_listed(DirectoryLeaf.of(menu, listed.token_key), listed.place, listed.path, head)


def refuse_second(epoch: int) -> None:
    raise BillRefused(
        BillVerdict.CONFLICT,
        f"epoch {epoch} has a second directory: a party shows devices different ones, and none of them is used",
    )


def plan_menu(menu: PricedMenu, candidates: Menu) -> PrivateChoice | None:
    """How everybody chooses from this menu: a function of it alone, so that a cohort has one law. None where
    nothing can be won by a private choice, and so nothing private is read."""
    epsilon = menu.epsilon_micros / MICRO  # read back as a decimal, exactly those millionths
    policy = BudgetPolicy(epsilon, (epsilon,), threshold=0.0, window=Window(1))
    with malformed_if_refused():
        planner = Planner(method=plan_method(menu))
        choice, _ = prepare_choice(candidates, planner, policy, policy.wallet(), now=0)
    return None if choice.plan.skipped else choice


def listed_to_bytes(listed: ListedMenu) -> bytes:
    """A menu and its proof, to be kept."""
    writer = begin_message().blob(listed.menu.data, "I").raw(listed.token_key.modulus, TOKEN_BYTES)
    writer.number("I", listed.place).number("B", len(listed.path))
    for beside in listed.path:
        writer.raw(beside, HASH_BYTES)
    return writer.to_bytes()


def listed_from_bytes(data: bytes) -> ListedMenu:
    def parse(reader: Reader) -> ListedMenu:
        menu, key = PricedMenu.from_bytes(reader.blob("I")), TokenPublicKey(reader.raw(TOKEN_BYTES))
        place = reader.number("I")
        return ListedMenu(menu, key, place, tuple(reader.raw(HASH_BYTES) for _ in range(reader.number("B"))))

    return read_message(data, "kept menu", parse)
