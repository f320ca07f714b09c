"""What a device tells whoever runs it: what it shows, and what became of its reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.menus import Lane
from tacit.deliver.device.journal import ImpressionRecord
from tacit.deliver.device.menu_book import OpenMenu
from tacit.schema.contexts.hierarchy import Node


@dataclass(frozen=True)
class ShownAd:
    """What one impression shows, and what it costs whom.

    campaign        whose ad it is; None: nothing is shown, and that is reported too
    price_micros    what the campaign is charged
    lane            personal: chosen by what the device knows; public: what everybody is shown
    epsilon_micros  what the choice spent of the device's account
    disclosed       the context that was told
    """

    campaign: int | None
    price_micros: int
    lane: Lane
    epsilon_micros: int
    disclosed: Node
    epoch: int
    menu_id: bytes = field(repr=False)
    index: int = field(repr=False)
    nonce: bytes = field(repr=False)


@dataclass(frozen=True)
class SentReports:
    """What became of reports that were to be sent.

    waiting  those that are still to be sent: nobody answered, or it was refused and may be taken later
    refused  why some were not taken
    """

    acked: int
    waiting: int
    refused: tuple[BillVerdict, ...] = ()


@dataclass(frozen=True)
class SettledReports:
    """What became of reports whose cohort was asked for: how many were settled by a signed size, how many at
    their full local epsilon, and how many wait."""

    by_size: int
    in_full: int
    waiting: int


@dataclass(frozen=True)
class RecoveredDevice:
    """What a device found after a restart.

    pending  choices that were drawn and not shown, or not known to be: show them, or leave it to the next
             `choose` at the same menu
    closed   choices whose epoch is over, or that the person no longer agrees to: nothing is charged
    """

    pending: tuple[ShownAd, ...]
    closed: int
    sent: SentReports
    settled: SettledReports


def shown_ad(record: ImpressionRecord, menu: OpenMenu) -> ShownAd:
    """What a choice that was drawn shows."""
    assert record.index is not None, "it is chosen"
    price = menu.menu.price_micros(record.index)
    assert price is not None, "the index is one of the menu's"
    return ShownAd(
        campaign=menu.campaign(record.index), price_micros=price, lane=menu.menu.lane,
        epsilon_micros=record.epsilon_micros, disclosed=menu.menu.node, epoch=record.epoch,
        menu_id=record.menu_id, index=record.index, nonce=record.nonce,
    )  # fmt: skip
