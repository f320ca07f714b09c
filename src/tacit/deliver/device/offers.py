"""A device's way to heads, menus and tokens: whoever sent them, they are checked before they are used."""

from __future__ import annotations

from collections.abc import Iterable

from tacit.bill.protocol.batches import CohortStatement
from tacit.bill.protocol.directory import EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane
from tacit.bill.protocol.offers import MOST_TOKENS, Offer, OfferRequest
from tacit.bill.protocol.tokens import SECRET_BYTES, blind, finalize, token_message, token_nonce
from tacit.deliver.device.journal import DeviceJournal, ImpressionRecord, ImpressionState, KeptMenu
from tacit.deliver.device.menu_book import (
    MenuBook,
    OpenMenu,
    listed_from_bytes,
    listed_to_bytes,
    menu_place,
    refuse_second,
)
from tacit.deliver.device.parties import AdChannel
from tacit.errors import BillRefused
from tacit.privacy.randomness import Source
from tacit.schema.contexts.hierarchy import Node
from tacit.sealing import KEY_BYTES

UNSHOWN = (ImpressionState.NEW, ImpressionState.ISSUED, ImpressionState.CHOSEN)


class OfferClient:
    """Heads, menus and tokens of one device. Of what it asks, the ad server learns the generalised context, the
    lane and how many tokens; the proxy an address and a length."""

    def __init__(
        self, book: MenuBook, journal: DeviceJournal, channel: AdChannel, source: Source, skew_seconds: int
    ) -> None:
        self._book, self._journal, self._channel, self._source = book, journal, channel, source
        self._skew = skew_seconds
        self._kept_heads: dict[int, bytes] = {}  # what was signed
        self._kept_menus: set[bytes] = set()
        self._public_only: set[tuple[int, Node]] = set()
        self._cohorts: dict[bytes, int | None] = {}
        self._scarce: set[bytes] = set()  # menus of which fewer tokens were left than we asked for
        self._gone: set[bytes] = set()  # and those of which none was

    def current_head(self, now: int) -> EpochHead:
        """The head of the epoch that is open, from the book or the proxy."""
        head = self._book.current(now)
        return self._keep_head(head) if head is not None else self._fetch_head(now)

    def moved_on(self, now: int) -> bool:
        """Whether another epoch is open by now than the one that the ad server called stale."""
        stale = self._book.current(now)
        if stale is None:
            return False  # the proxy has just said so itself
        self._book.drop_head(stale.epoch)
        return self._fetch_head(now).epoch != stale.epoch

    def _fetch_head(self, now: int) -> EpochHead:
        head = self._book.check_head(self._channel.head())
        if not head.opens - self._skew <= now < head.closes + self._skew:
            raise BillRefused(
                BillVerdict.STALE_EPOCH,
                f"expected this device's clock between {head.opens} and {head.closes}, when epoch {head.epoch} "
                f"is open, or up to {self._skew} s beside, got {now}: set the clock, or ask the proxy's "
                "operator for the current epoch",
            )
        return self._keep_head(head)

    def _keep_head(self, head: EpochHead) -> EpochHead:
        """The first head of an epoch is the only one, also after a restart."""
        if head.epoch not in self._kept_heads:
            kept = self._journal.keep_head(head.epoch, head.expires, head.to_bytes())
            self._kept_heads[head.epoch] = EpochHead.from_bytes(kept).body
        if self._kept_heads[head.epoch] != head.body:
            refuse_second(head.epoch)
        self._book.add_head(head)
        return head

    def menu(self, head: EpochHead, node: Node, lane: Lane) -> OpenMenu:
        """The one menu of a context and lane: from the book, the journal, or the ad server."""
        place = menu_place(node, lane)
        found = self._book.at(head.epoch, place)
        if found is None:
            kept = self._journal.last_menu_at(place, head.epoch + 1)
            if kept is not None and kept.epoch == head.epoch:
                self._kept_menus.add(kept.menu_id)
                return self._book.add_menu(head, listed_from_bytes(kept.data), node, lane)
            offer = self._ask(OfferRequest(head.epoch, lane, node, (), self._source.bytes(KEY_BYTES)))
            if offer.listed is None:
                raise BillRefused(BillVerdict.MALFORMED, "expected a menu in the answer, got none")
            found = self._book.add_menu(head, offer.listed, node, lane)
        return self._keep_menu(found, node)

    def check_menu(self, head: bytes, listed: bytes, node: Node, now: int) -> bytes:
        """The id of a menu that somebody else handed on, where both parties signed its epoch, its directory
        lists it, it is of this context, and its epoch is the one that this device goes by; BillRefused
        otherwise.

        Nothing of it is entered: a device that asked for tokens of a menu which it was never sent through the
        proxy could be told apart by that, and so could one that went to an epoch because it was handed its
        head. Both parties may have signed several that are open at once.
        """
        sent, given = self._book.check_head(head), listed_from_bytes(listed)
        current = self.current_head(now)
        if sent.epoch != current.epoch:
            raise BillRefused(
                BillVerdict.STALE_EPOCH,
                f"expected a menu of epoch {current.epoch}, which this device goes by, got another",
            )
        if sent.body != current.body:
            refuse_second(sent.epoch)
        self._book.check_menu(current, given, node, given.menu.lane)
        return given.menu.menu_id

    def _keep_menu(self, found: OpenMenu, node: Node) -> OpenMenu:
        """The same, in the journal once it is used."""
        own = found.menu
        if own.menu_id not in self._kept_menus:
            place = menu_place(node, own.lane)
            self._journal.keep_menu(KeptMenu(own.menu_id, own.epoch, place, listed_to_bytes(found.listed)))
            self._kept_menus.add(own.menu_id)
        return found

    def personal_menu(self, head: EpochHead, node: Node) -> OpenMenu | None:
        """The menu of the personal lane; None where the ad server has none for this context, as where too few
        ask for one. Asked for once per context and epoch."""
        if (head.epoch, node) in self._public_only:
            return None
        try:
            return self.menu(head, node, Lane.PERSONAL)
        except BillRefused as refused:
            if refused.reason != BillVerdict.UNKNOWN_CONTEXT:
                raise
        self._public_only.add((head.epoch, node))
        return None

    def kept_menu(self, menu_id: bytes) -> OpenMenu | None:
        """A menu that this device has had, also before a restart; None where it has forgotten it, or where it
        was signed by parties that are no longer those that it knows."""
        found = self._book.menu(menu_id)
        kept = None if found is not None else self._journal.menu(menu_id)
        if kept is None:
            return found
        head = self._book.head(kept.epoch)
        if head is None:
            data = self._journal.head(kept.epoch)
            try:
                head = None if data is None else self._book.check_head(data)
            except BillRefused:
                head = None
            if head is None:
                return None
            self._book.add_head(head)
        listed = listed_from_bytes(kept.data)
        return self._book.add_menu(head, listed, listed.menu.node, listed.menu.lane)

    def unshown(self, menu: OpenMenu) -> list[ImpressionRecord]:
        """Tokens of a menu for which nothing was shown yet, from being asked for to being chosen for."""
        return list(self._journal.impressions(UNSHOWN, menu.menu.menu_id))

    def token(self, menu: OpenMenu, unshown: list[ImpressionRecord], at_once: int) -> ImpressionRecord:
        """An unused token of a menu: one that is there, else the first of `at_once` that are fetched."""
        ready, waiting = _unused(unshown)
        return ready[0] if ready else self._fetch(menu, waiting, at_once)[0]

    def tokens(self, menu: OpenMenu, count: int) -> list[ImpressionRecord]:
        """`count` tokens of a menu that are not used, fetched where there are fewer; as many as are to be had.

        What was asked for and not answered is asked for again, as it was: the ad server signs it the same, and
        no token is issued in vain. Secrets are kept before anything leaves.
        """
        ready, waiting = _unused(self.unshown(menu))
        lacking = count - len(ready)
        if lacking <= 0:
            return ready
        try:
            return ready + self._fetch(menu, waiting, lacking)
        except BillRefused as refused:
            if refused.reason != BillVerdict.NONE_LEFT:
                raise
            return ready

    def ran_out(self, menu: OpenMenu, unshown: list[ImpressionRecord]) -> bool:
        """Whether no token of a menu is here, and none is to be had. There never is again: a menu's tokens are
        counted once, when its epoch opens."""
        return menu.menu.menu_id in self._gone and not _unused(unshown)[0]

    def _fetch(self, menu: OpenMenu, waiting: list[ImpressionRecord], count: int) -> list[ImpressionRecord]:
        """As many tokens as are wanted, or one where fewer are left; BillRefused(NONE_LEFT) where none is."""
        menu_id = menu.menu.menu_id
        if menu_id in self._gone:
            raise BillRefused(BillVerdict.NONE_LEFT)
        count = 1 if menu_id in self._scarce else min(count, MOST_TOKENS)
        fresh = [self._draw(menu) for _ in range(count - len(waiting))]
        if fresh:
            self._journal.commit(fresh)
        asked = [*waiting, *fresh][:count]
        for some in (asked, asked[:1]) if count > 1 else (asked,):
            try:
                return self._issue(menu, some)
            except BillRefused as refused:
                if refused.reason != BillVerdict.NONE_LEFT:
                    raise
                self._scarce.add(menu_id)
        self._gone.add(menu_id)
        raise BillRefused(BillVerdict.NONE_LEFT)

    def finish_tokens(self, menu: OpenMenu) -> None:
        """Ask again for what was asked for and not answered."""
        _, waiting = _unused(self.unshown(menu))
        if waiting:
            self._issue(menu, waiting[:MOST_TOKENS])

    def _draw(self, menu: OpenMenu) -> ImpressionRecord:
        secret = self._source.bytes(SECRET_BYTES)
        own, head = menu.menu, menu.head
        blinded = blind(menu.listed.token_key, token_message(token_nonce(secret), own.menu_id), self._source)
        return ImpressionRecord.new(
            secret, blinded, menu_id=own.menu_id, epoch=head.epoch, expires=head.expires,
            cohort=own.smallest_cohort,
        )  # fmt: skip

    def _issue(self, menu: OpenMenu, asked: list[ImpressionRecord]) -> list[ImpressionRecord]:
        own, key = menu.menu, menu.listed.token_key
        blinded = tuple(each.blinded for each in asked)
        offer = self._ask(
            OfferRequest(
                own.epoch, own.lane, own.node, blinded, self._source.bytes(KEY_BYTES), known=own.menu_id
            )
        )
        if len(offer.signatures) != len(asked):
            raise BillRefused(BillVerdict.MALFORMED, "expected a signature for each token that was asked for")
        issued = [
            each.issued(finalize(key, token_message(each.nonce, own.menu_id), signature, each.inverse))
            for each, signature in zip(asked, offer.signatures, strict=True)
        ]
        self._journal.commit(issued)
        return issued

    def _ask(self, request: OfferRequest) -> Offer:
        sealed = request.sealed_to(self._book.keys.server_sealing)
        return Offer.decrypted(self._channel.offer(sealed), request.answer_key)

    def statement(self, record: ImpressionRecord) -> CohortStatement | None:
        """What the proxy signed of the batch that a report left in; None while it says nothing that counts."""
        try:
            data = self._channel.statement(record.nonce)
            if data is None:
                return None
            statement = self._book.check_statement(data)
        except (OSError, BillRefused):
            return None
        fits = (statement.menu_id, statement.epoch) == (record.menu_id, record.epoch)
        return statement if fits else None

    def past_cohort(self, menu: OpenMenu) -> int | None:
        """How large batches of this context were, by the proxy's signatures: in this epoch so far, else in the
        latest that this device knows a menu of. None where nothing is known. Asked for once per menu."""
        own = menu.menu
        if own.menu_id not in self._cohorts:
            before = self._journal.last_menu_at(menu_place(own.node, own.lane), own.epoch)
            seen = [(own.epoch, own.menu_id)] + ([] if before is None else [(before.epoch, before.menu_id)])
            try:
                sizes = [self._signed_sizes(epoch, menu_id) for epoch, menu_id in seen]
            except OSError:
                return None  # asked for again next time
            self._cohorts[own.menu_id] = next((usual_size(each) for each in sizes if each), None)
        return self._cohorts[own.menu_id]

    def _signed_sizes(self, epoch: int, menu_id: bytes) -> list[int]:
        said = self._channel.statements(epoch)
        own = [data for data in said if CohortStatement.from_bytes(data).menu_id == menu_id]
        return [self._book.check_statement(data).reports for data in own]


def _unused(unshown: list[ImpressionRecord]) -> tuple[list[ImpressionRecord], list[ImpressionRecord]]:
    """Tokens that are ready, and those that were asked for and not answered."""
    ready = [each for each in unshown if each.state is ImpressionState.ISSUED]
    return ready, [each for each in unshown if each.state is ImpressionState.NEW]


def usual_size(sizes: Iterable[int]) -> int:
    """The largest size that at least nine in ten reports were in batches of, or of larger ones: the few that
    an expiring epoch leaves over do not decide it.

    >>> usual_size([100, 120, 3]), usual_size([100, 30])
    (100, 30)
    """
    ordered = sorted(sizes, reverse=True)
    covered, total = 0, sum(ordered)
    for size in ordered:
        covered += size
        if 10 * covered >= 9 * total:
            return size
    raise AssertionError("all of them cover all")
