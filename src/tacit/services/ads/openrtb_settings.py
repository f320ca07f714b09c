"""The table [openrtb] of an ad server's settings: with it, exchanges may ask this server for bids.

    [openrtb]
    url = "https://ads.example"          # where exchanges reach this server: notices are addressed there
    contexts = "contexts.toml"           # the market's hierarchy of contexts
    currency = "USD"                     # of the market's money
    seat = "tacit"                       # as which this server bids
    cattax = 1                           # the taxonomy of campaigns' categories, and of the values below
    vendor = 755                         # our id in the TCF's list of vendors; without: none
    charge_on = "burl"                   # which notice is charged: burl, billing; or nurl, winning
    notice_seconds = 3600                # for so long after a bid
    network_ms = 20                      # of a request's tmax, for the way there and back

    [[openrtb.attribute]]                # how a request's fields become a context; what has none is not told
    name = "city"
    from = ["device.geo.city", "device.geo.region"]
    values = { northport = "Northport", "no" = "North" }

    [[openrtb.exchange]]
    name = "example"
    secret = "example.secret"            # 64 hexadecimal digits, in a file that only its owner may read
    reasons = false                      # answer 200 with `nbr` where there is no bid, instead of 204
    clients = false                      # believe it where it says that a page has the device's client
    requests_per_second = 2000           # that each worker answers it, more are told to come again; 0: no limit

The first field of `from` with a value in the table counts; upper and lower case are one. A value of the table
is a node of the attribute's tree, exact or coarser.

A bid with a personal menu has no notice: its device reports. Who says falsely that there is a client is not
charged for what is shown, so only exchanges that are trusted with it (`clients`) are sent personal menus.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.config import ConfigTable
from tacit.deliver.consent.tc_string import MOST_VENDOR
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import SetOf, Steps
from tacit.schema.contexts.hierarchy import Hierarchy, Node, load_hierarchy
from tacit.schema.contexts.tree import ANYTHING
from tacit.services.ads.openrtb_messages import BidRequest, Geo, Place

OPENRTB = (
    "url", "contexts", "currency", "seat", "cattax", "vendor", "charge_on", "notice_seconds", "network_ms",
    "attribute", "exchange",
)  # fmt: skip
ATTRIBUTE = ("name", "from", "values")
EXCHANGE = ("name", "secret", "reasons", "clients", "requests_per_second")
GEO = ("country", "region", "metro", "city")
CATEGORIES = ("cat", "sectioncat", "pagecat")
MOST_PER_SECOND = 1_000_000
MOST_SPELLED = 100  # characters of a value that is looked up

Read = Callable[[BidRequest], Sequence[str]]


def _read_geo(name: str) -> Read:
    def read(request: BidRequest) -> Sequence[str]:
        geo: Geo | None = None if request.device is None else request.device.geo
        found = None if geo is None else getattr(geo, name)
        return () if found is None else (found,)

    return read


def _read_place(kind: str, name: str) -> Read:
    def read(request: BidRequest) -> Sequence[str]:
        place: Place | None = getattr(request, kind)
        found = None if place is None else getattr(place, name)
        return () if found is None else (found,) if isinstance(found, str) else found

    return read


FIELDS: Mapping[str, Read] = {
    **{f"device.geo.{name}": _read_geo(name) for name in GEO},
    "site.domain": _read_place("site", "domain"),
    "app.bundle": _read_place("app", "bundle"),
    **{f"{kind}.{name}": _read_place(kind, name) for kind in ("site", "app") for name in CATEGORIES},
}
"""What of a request can become part of a context."""


@dataclass(frozen=True)
class AttributeSource:
    """How one attribute of a context is read from a request."""

    fields: tuple[str, ...]
    values: Mapping[str, str]

    def node_of(self, request: BidRequest, cattax: int) -> str | None:
        """A node of the attribute's tree; None where the request says none that is in the table."""
        for name in self.fields:
            if name.rpartition(".")[2] in CATEGORIES:
                place = request.site if name.startswith("site.") else request.app
                if place is not None and (place.cattax or 1) != cattax:
                    continue
            for spelled in FIELDS[name](request):
                if len(spelled) <= MOST_SPELLED and (found := self.values.get(spelled.strip().casefold())):
                    return found
        return None


@dataclass(frozen=True)
class RequestContexts:
    """What requests say, as contexts of the market: only values of the settings' own tables are kept.

    Guarantee:  whatever a request says, what is told of it is a tuple of nodes of the settings' tables, and a
                context is one of the hierarchy's levels above that tuple.
    Neighbours: any two requests whose fields the tables map alike.
    Assumes:    nothing.
    Source:     generalised contexts as in Hardt and Nath, CCS 2012, section 5.1.
    """

    hierarchy: Hierarchy
    sources: tuple[AttributeSource | None, ...]
    cattax: int = 1

    def told(self, request: BidRequest) -> tuple[str | None, ...]:
        """One node per attribute; None where nothing is known of it."""
        return tuple(
            None if source is None else source.node_of(request, self.cattax) for source in self.sources
        )

    def nodes(self, told: Sequence[str | None]) -> list[Node]:
        """Contexts that hold of what was told, the finest first; the last tells nothing."""
        names = tuple(attribute.name for attribute in self.hierarchy.attributes)
        found: dict[Node, None] = {}
        for levels in self.hierarchy.levels():
            said = []
            for attribute, value, level in zip(self.hierarchy.attributes, told, levels, strict=True):
                if value is None:
                    said.append(ANYTHING)
                else:
                    given = (value,) if isinstance(attribute, SetOf) else value
                    said.append(attribute.generalise(given, level))
            found[Node(levels, tuple(said), names)] = None
        return list(found)


@dataclass(frozen=True)
class Exchange:
    """Who may ask for bids, and how often; 0: as often as it likes. Of its key a digest is kept."""

    name: str
    digest: bytes = field(repr=False)
    reasons: bool = False
    clients: bool = False
    requests_per_second: int = 0


@dataclass(frozen=True)
class OpenRtbSettings:
    """See the module."""

    url: str
    contexts: RequestContexts
    exchanges: tuple[Exchange, ...]
    currency: str = "USD"
    seat: str = "tacit"
    vendor: int | None = None
    charge_on: str = "burl"
    notice_seconds: int = 3600
    network_ms: int = 20


def key_digest(spelled: str) -> bytes:
    return hashlib.sha256(spelled.encode()).digest()


def read_openrtb(
    record: Mapping[str, Any],
    folder: Path,
    *,
    read_secret: Callable[[str, Path], bytes],
    check_url: Callable[[str, str], str],
) -> OpenRtbSettings | None:
    """The table [openrtb], if there is one."""
    if "openrtb" not in record:
        return None
    table = ConfigTable.under(record, "openrtb", OPENRTB, folder)
    if "billing" not in record:
        raise BadInput("openrtb: expected a table [billing] beside it, got none")
    currency = table.text("currency", "USD")
    if not re.fullmatch("[A-Z]{3}", currency):
        raise BadInput(f"openrtb.currency: expected a code such as USD, got {currency!r}")
    seat = table.text("seat", "tacit")
    if not (seat.isprintable() and len(seat) <= MOST_SPELLED):
        raise BadInput("openrtb.seat: expected a short printable text, got another")
    vendor = table.whole("vendor", at_least=1, at_most=MOST_VENDOR) if "vendor" in table else None
    cattax = table.whole("cattax", 1, at_least=1, at_most=10_000)
    hierarchy = load_hierarchy(table.file("contexts"))
    exchanges = [_exchange(each, read_secret) for each in _tables(table, "exchange", EXCHANGE, folder)]
    if len({each.name for each in exchanges}) < len(exchanges):
        raise BadInput("openrtb.exchange: expected names of their own, got one twice")
    if len({each.digest for each in exchanges}) < len(exchanges):
        raise BadInput("openrtb.exchange: expected secrets of their own, got one twice")
    return OpenRtbSettings(
        url=check_url("openrtb.url", table.text("url")),
        contexts=RequestContexts(hierarchy, _sources(table, hierarchy, folder), cattax),
        exchanges=tuple(exchanges),
        currency=currency,
        seat=seat,
        vendor=vendor,
        charge_on=table.one_of("charge_on", ("burl", "nurl"), "burl"),
        notice_seconds=table.whole("notice_seconds", 3600, at_least=1, at_most=30 * 86_400),
        network_ms=table.whole("network_ms", 20, at_most=10_000),
    )


def _tables(table: ConfigTable, key: str, allowed: Sequence[str], folder: Path) -> list[ConfigTable]:
    found = table.some(key).get(key, [])
    if not isinstance(found, list):
        raise BadInput(f"{table.name(key)}: expected tables [[{table.name(key)}]], got another value")
    return [
        ConfigTable(each, f"{table.name(key)} {place}", allowed, folder)
        for place, each in enumerate(found, start=1)
    ]


def _exchange(table: ConfigTable, read_secret: Callable[[str, Path], bytes]) -> Exchange:
    name = table.text("name")
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,40}", name):
        raise BadInput(f"{table.name('name')}: expected letters, digits and ._- alone, got another text")
    secret = read_secret(table.name("secret"), table.file("secret"))
    return Exchange(
        name, key_digest(secret.hex()), table.flag("reasons"), table.flag("clients"),
        table.whole("requests_per_second", 0, at_most=MOST_PER_SECOND),
    )  # fmt: skip


def _sources(table: ConfigTable, hierarchy: Hierarchy, folder: Path) -> tuple[AttributeSource | None, ...]:
    found: dict[str, AttributeSource] = {}
    by_name = {each.name: each for each in hierarchy.attributes}
    for each in _tables(table, "attribute", ATTRIBUTE, folder):
        attribute = by_name.get(each.one_of("name", tuple(by_name)))
        steps = attribute.of if isinstance(attribute, SetOf) else attribute
        if not isinstance(steps, Steps) or steps.name in found:
            raise BadInput(f"{each.name('name')}: expected an attribute with a tree, once, got another")
        names = each.needed("from", f"some of {', '.join(FIELDS)}")
        if not isinstance(names, list) or not names or not all(name in FIELDS for name in names):
            raise BadInput(f"{each.name('from')}: expected some of {', '.join(FIELDS)}, got others")
        values = each.needed("values", "a table of what exchanges say and what that is here")
        if not isinstance(values, Mapping) or not all(isinstance(node, str) for node in values.values()):
            raise BadInput(f"{each.name('values')}: expected a table of texts, got another value")
        for node in values.values():
            if node not in steps.tree:
                raise BadInput(f"{each.name('values')}: expected nodes of {steps.name}, got {node!r}")
        folded = {spelled.strip().casefold(): node for spelled, node in values.items()}
        found[steps.name] = AttributeSource(tuple(names), folded)
    return tuple(found.get(each.name) for each in hierarchy.attributes)
