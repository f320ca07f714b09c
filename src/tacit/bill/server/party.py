"""The ad server as a party of billing: it opens epochs, offers menus with tokens, and charges batches.

It never meets a device: requests come sealed through the proxy, and reports in shuffled batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tacit.bill.protocol.batches import Batch, Receipt
from tacit.bill.protocol.directory import NO_SIGNATURE, Directory, DirectoryLeaf, EpochHead
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import OpeningKey, SigningKey
from tacit.bill.protocol.menus import NOTHING, Lane, PricedMenu, context_bytes
from tacit.bill.protocol.offers import ListedMenu, Offer, OfferRequest, encrypted_refusal
from tacit.bill.protocol.reports import ImpressionReport
from tacit.bill.protocol.tokens import HASH_BYTES, encode_pss, token_message, token_nonce
from tacit.bill.server.store import (
    AdStore,
    EpochLimits,
    KeptMenu,
    RedeemedBatch,
    RedeemedReport,
    StoredEpoch,
)
from tacit.bill.server.token_keys import TokenKey
from tacit.display import brief
from tacit.errors import BadInput, BillRefused
from tacit.privacy.randomness import Source

OWN_TOKEN = b"tacit/own-token/1"


@dataclass(frozen=True)
class EpochTimes:
    """When an epoch's menus are offered, and until when its reports are taken, in seconds."""

    opens: int
    closes: int
    expires: int


class DirectoryLink(Protocol):
    """The way to the proxy; OSError where it does not answer."""

    def countersign(self, directory: bytes) -> bytes:
        """The head with both signatures; the same one for the same directory."""


class TokenCounter(Protocol):
    """Knows how many tokens of a menu may still be signed."""

    def take(self, menu_id: bytes, count: int) -> bool:
        """Whether so many may be signed now; they then count as signed. All or none."""

    def forget(self, menus: Iterable[bytes]) -> None:
        """No more tokens of these menus are asked for."""

    def end(self) -> None:
        """No more tokens are asked for at all."""


class AdServerOnlooker(Protocol):
    """Told of what an ad server opened, when it did: of all that it learns, for a demonstration. Any thread may
    tell it, so that it must not wait."""

    def request(self, sealed: bytes, request: OfferRequest) -> None:
        """A request as it came, and what it asks for."""

    def batch(self, data: bytes, batch: RedeemedBatch, menu: PricedMenu) -> None:
        """A batch as it came, what its reports are worth, and the menu that they are of."""


@dataclass(frozen=True, eq=False)
class _OpenMenu:
    listed: ListedMenu
    key: TokenKey | None  # None once it was deleted


@dataclass(frozen=True, eq=False)
class _OpenEpoch:
    """An epoch in memory."""

    head: EpochHead
    directory: Directory
    menus: dict[tuple[bytes, Lane], _OpenMenu]
    by_id: dict[bytes, _OpenMenu]
    opening: OpeningKey | None


class AdServer:
    """Signs tokens blindly, offers each context its one menu, charges each token once, at its entry's price.

    Guarantee:  a batch is charged in one transaction, at the whole prices of the menus' entries: every accepted
                report once, and nothing else. The same batch again changes nothing and gets the same receipt.
                Of a request it learns the generalised context; of a report the menu and the entry, which no
                token links to a request (`protocol.tokens`), and which is private as the menu's mechanism is.
    Neighbours: any two private states of a device with the same disclosed context.
    Assumes:    what `protocol.tokens` and the proxy (`bill.proxy.party`) assume. Devices of a farm can ask for
                real offers and report what they like: each report is charged once, as it says.
    Source:     Laro et al. 2023, algorithm 2 and appendices A and B; RFC 9474.
    """

    def __init__(
        self,
        key: SigningKey,
        opening: OpeningKey,
        store: AdStore,
        source: Source,
        *,
        proxy_public: bytes,
        make_key: Callable[[], TokenKey] = TokenKey.generate,
        skew_seconds: int = 60,
        tokens: TokenCounter | None = None,
        onlooker: AdServerOnlooker | None = None,
    ) -> None:
        """Without a counter of tokens, as many of each menu are signed as are asked for."""
        self._key, self._opening, self._store, self._source = key, opening, store, source
        self._proxy_public, self._make_key, self._skew = proxy_public, make_key, skew_seconds
        self._tokens, self._onlooker = tokens, onlooker
        self._epochs: dict[int, _OpenEpoch] = {}

    def __repr__(self) -> str:
        return brief(self, store=self._store, epochs=sorted(self._epochs))

    def sign(self, label: bytes, body: bytes) -> bytes:
        """What devices must know to be this server's; it passes under no other label."""
        return self._key.sign(label, body)

    @property
    def public_keys(self) -> tuple[bytes, bytes]:
        """What everybody checks signatures by: this ad server's and its proxy's."""
        return self._key.public, self._proxy_public

    @property
    def request_key(self) -> bytes:
        """What devices seal their requests to."""
        return self._opening.public

    def open_epoch(
        self,
        menus: Sequence[PricedMenu],
        times: EpochTimes,
        link: DirectoryLink,
        limits: EpochLimits | None = None,
    ) -> EpochHead:
        """Begin an epoch with these menus, all of it: keys are drawn, and kept, before the proxy is told, and
        with them how many tokens may be signed.

        Called again after a failure on the way, it goes on with what was kept.
        """
        if not menus or any(menu.epoch != menus[0].epoch for menu in menus):
            raise BadInput("expected the menus of one epoch, at least one, got others")
        epoch = menus[0].epoch
        stored = self._store.epoch(epoch)
        if stored is None:
            stored = self._draw_epoch(menus, times)
            self._store.keep_epoch(epoch, stored, limits)
        elif sorted(kept.menu.menu_id for kept in stored.menus) != sorted(menu.menu_id for menu in menus):
            raise BillRefused(BillVerdict.CONFLICT, f"epoch {epoch} is there already, with other menus")
        if stored.head is None:
            self._countersign(epoch, stored, link)
        return self.load_epoch(epoch).head

    def load_epoch(self, epoch: int) -> _OpenEpoch:
        """An epoch that is published, from the store where it is not in memory."""
        found = self._epochs.get(epoch)
        # What was not countersigned may be another epoch to the proxy: nothing is charged by it.
        if found is None or found.head.by_proxy == NO_SIGNATURE:
            stored = self._store.epoch(epoch)
            if stored is None or stored.head is None:
                raise BillRefused(BillVerdict.STALE_EPOCH, f"epoch {epoch} is not open here")
            found = self._epochs[epoch] = _open(stored)
        return found

    def unload_epochs(self, expired_before: int) -> None:
        """Let go of epochs in memory, and so of their keys; those in the store `forget_keys` deletes."""
        for epoch, found in list(self._epochs.items()):  # others load some meanwhile
            if found.head.expires < expired_before:
                self._epochs.pop(epoch, None)
                if self._tokens is not None:
                    self._tokens.forget(found.by_id)

    def end(self) -> None:
        """Let go of what goes on beside it; nothing is offered any more."""
        if self._tokens is not None:
            self._tokens.end()

    def offers(self, requests: Sequence[bytes], now: int) -> list[bytes]:
        """Answers to several requests; empty for one that cannot be opened, whose device nobody can answer."""
        answers = []
        for sealed in requests:
            try:
                answers.append(self.offer(sealed, now))
            except BillRefused:
                answers.append(b"")
        return answers

    def offer(self, sealed: bytes, now: int) -> bytes:
        """The answer to a sealed request, which only its device can read; a refusal too, but for a request that
        cannot be opened."""
        request = OfferRequest.opened_by(self._opening, sealed)
        if self._onlooker is not None:
            self._onlooker.request(sealed, request)
        try:
            offer = self._make_offer(request, now)
        except BillRefused as refused:
            return encrypted_refusal(BillVerdict(refused.reason), request, self._source)
        return offer.encrypted(request.answer_key, self._source)

    def _make_offer(self, request: OfferRequest, now: int) -> Offer:
        epoch = self._epochs.get(request.epoch) or self._find_newer(request.epoch)
        if epoch is None or not epoch.head.opens - self._skew <= now < epoch.head.closes + self._skew:
            raise BillRefused(BillVerdict.STALE_EPOCH)
        for other in list(self._epochs.values()):  # one with a higher number takes its place once it is open
            later, is_out = other.head, other.head.by_proxy != NO_SIGNATURE
            if is_out and later.epoch > request.epoch and later.opens + self._skew <= now < later.closes:
                raise BillRefused(BillVerdict.STALE_EPOCH)
        found = epoch.menus.get((context_bytes(request.node), request.lane))
        if found is None:
            raise BillRefused(BillVerdict.UNKNOWN_CONTEXT)
        if found.key is None:
            raise BillRefused(BillVerdict.STALE_EPOCH)
        if request.blinded:
            self.count_tokens(found.listed.menu, len(request.blinded))
        signatures = tuple(found.key.sign_blinded(each, self._source) for each in request.blinded)
        return Offer(signatures, None if request.known == found.listed.menu.menu_id else found.listed)

    def _find_newer(self, number: int) -> _OpenEpoch | None:
        """An epoch that another process opened a moment ago: it is kept before the proxy can tell a device."""
        if number <= max(list(self._epochs), default=-1):
            return None
        stored = self._store.epoch(number)
        if stored is not None:
            self._epochs[number] = _open(stored)
        return self._epochs.get(number)

    def count_tokens(self, menu: PricedMenu, count: int) -> None:
        """Count tokens of a menu as signed, before any of them is; BillRefused(NONE_LEFT) where they are more
        than may be. One that is asked for again counts again."""
        if self._tokens is not None and not self._tokens.take(menu.menu_id, count):
            raise BillRefused(BillVerdict.NONE_LEFT)

    def redeem(self, data: bytes) -> bytes:
        """Charge a batch; its receipt, the same however often it comes."""
        batch = Batch.from_bytes(data)
        statement = batch.statement
        statement.check(self._proxy_public)
        known = self._store.receipt(statement.batch_id)
        epoch = None if known is not None else self.load_epoch(statement.epoch)
        if epoch is not None and statement.menu_id not in epoch.by_id:
            raise BillRefused(BillVerdict.UNKNOWN_MENU, "expected a batch of a menu of its epoch")
        if epoch is not None and epoch.opening is None:
            # No receipt: what devices were told is taken must not be rejected for good.
            raise BillRefused(BillVerdict.EXPIRED, f"the keys of epoch {statement.epoch} were deleted here")
        reports = () if epoch is None else tuple(self._check(each, batch, epoch) for each in batch.reports)
        redeemed = RedeemedBatch(
            statement.batch_id, statement.menu_id, statement.to_bytes(), b"".join(batch.reports), reports
        )

        def sign(verdicts: bytes) -> bytes:
            return Receipt.sign(self._key, statement.batch_id, verdicts).to_bytes()

        receipt = self._store.redeem(redeemed, sign)
        if self._onlooker is not None and epoch is not None:
            self._onlooker.batch(data, redeemed, epoch.by_id[statement.menu_id].listed.menu)
        return receipt

    def _check(self, data: bytes, batch: Batch, epoch: _OpenEpoch) -> RedeemedReport:
        """What a report is worth, whatever the proxy found: each party believes its own eyes."""
        try:
            report = ImpressionReport.from_bytes(data)
            found = epoch.by_id.get(report.menu_id)
            if found is None or report.menu_id != batch.statement.menu_id:
                return RedeemedReport(BillVerdict.UNKNOWN_MENU)
            assert epoch.opening is not None, "looked at before"
            if not report.has_token_of(found.listed.token_key):
                return RedeemedReport(BillVerdict.FORGED)
            opening = report.open(epoch.opening)
        except BillRefused as refused:
            return RedeemedReport(BillVerdict(refused.reason))
        menu = found.listed.menu
        price = menu.price_micros(opening.index)
        if price is None:
            return RedeemedReport(BillVerdict.NO_SUCH_ENTRY)
        campaign = None if opening.index == NOTHING else menu.entries[opening.index - 1].campaign
        return RedeemedReport(
            BillVerdict.ACCEPTED, report.nonce, opening.index, price, campaign, opening.secret
        )

    def own_report(self, epoch: int, menu_id: bytes, index: int, bid: bytes) -> bytes:
        """A report, with a real token, that an entry of a public-lane menu was shown: of an impression that no
        device reports, but an exchange tells of. It takes the way of all others, through the proxy.

        The token counts against the menu's limit like a device's, and is signed unblinded. Which of a batch's
        reports are of this kind the ad server knows: they hide nobody, and in the public lane there is nothing
        to hide.

        A bid, by the nonce that was drawn for it, has one token for ever, which follows from this server's key:
        two reports of it are charged once, though nobody remembers the first.
        """
        opened = self.load_epoch(epoch)
        found = opened.by_id.get(menu_id)
        if found is None:
            raise BillRefused(BillVerdict.UNKNOWN_MENU)
        if found.key is None:
            raise BillRefused(BillVerdict.EXPIRED, f"the keys of epoch {epoch} were deleted here")
        menu = found.listed.menu
        if menu.lane is not Lane.PUBLIC or menu.price_micros(index) is None:
            raise BillRefused(BillVerdict.NO_SUCH_ENTRY)
        self.count_tokens(menu, 1)
        # Of the same bytes there is one signature (Ed25519), and nobody else can make it.
        secret = hashlib.sha256(self._key.sign(OWN_TOKEN, menu_id + bid)).digest()
        message = token_message(token_nonce(secret), menu_id)
        bits = 8 * len(found.listed.token_key.modulus) - 1
        token = found.key.sign_blinded(encode_pss(message, bits, self._source.bytes(HASH_BYTES)), self._source)
        return ImpressionReport.make(menu_id, secret, token, index, opened.head.sealing_key).to_bytes()

    def _draw_epoch(self, menus: Sequence[PricedMenu], times: EpochTimes) -> StoredEpoch:
        keys = [self._make_key() for _ in menus]
        opening = OpeningKey.generate()
        leaves = [DirectoryLeaf.of(menu, key.public) for menu, key in zip(menus, keys, strict=True)]
        directory = Directory.make(
            leaves, epoch=menus[0].epoch, opens=times.opens, closes=times.closes, expires=times.expires,
            sealing_key=opening.public,
        )  # fmt: skip
        signed = directory.with_head(directory.head.signed_by_server(self._key))
        kept = tuple(KeptMenu(menu, key.to_bytes()) for menu, key in zip(menus, keys, strict=True))
        return StoredEpoch(signed.to_bytes(), None, kept, opening.to_bytes())

    def _countersign(self, epoch: int, stored: StoredEpoch, link: DirectoryLink) -> None:
        """Have an epoch countersigned and published. It is in memory before the proxy can tell a device of it,
        and not offered to anybody unless it did: devices use no menu under one signature."""
        opened = self._epochs[epoch] = _open(stored)
        head = EpochHead.from_bytes(link.countersign(stored.directory))
        head.check(self._key.public, self._proxy_public)
        if head.body != Directory.from_bytes(stored.directory).head.body:
            raise BillRefused(
                BillVerdict.CONFLICT, f"the proxy countersigned another directory of epoch {epoch}"
            )
        self._store.publish_epoch(epoch, head.to_bytes())
        self._epochs[epoch] = replace(opened, head=head)


def _open(stored: StoredEpoch) -> _OpenEpoch:
    directory = Directory.from_bytes(stored.directory)
    head = directory.head if stored.head is None else EpochHead.from_bytes(stored.head)
    kept = {each.menu.menu_id: each for each in stored.menus}
    menus, by_id = {}, {}
    for place, leaf in enumerate(directory.leaves):
        own = kept[leaf.menu_id]
        key = TokenKey.from_bytes(own.token_key) if own.token_key else None
        found = _OpenMenu(ListedMenu(own.menu, leaf.token_key, place, directory.proof(place)), key)
        menus[context_bytes(leaf.node), leaf.lane] = by_id[leaf.menu_id] = found
    opening = OpeningKey(stored.sealing_key) if stored.sealing_key else None
    return _OpenEpoch(head, directory, menus, by_id, opening)
