"""Campaigns in files: in TOML, with advertisers, and in CSV, a row per campaign and context that it bids on.

    filed = read_campaign_file("campaigns.toml")          # or .csv
    Path("campaigns.csv").write_text(campaigns_as_csv(filed))

In TOML a campaign is a table [[campaign]] with the keys of its record, and times may be dates:

    [[advertiser]]
    name = "Bean & Leaf"
    contact = "ads@bean.example"

    [[campaign]]
    number = 7                                # without one it is new, and gets a number
    version = 3                               # of what was seen; without it, whatever is there is replaced
    advertiser = "Bean & Leaf"
    title = "Spring roast"
    event = "click"
    budget_micros = 50_000_000
    schedule = { starts = 2027-03-01T00:00:00Z }
    bids = [
      { micros = 400_000 },
      { micros = 650_000, context = { levels = [1, 1], values = ["North", "Food"] } },
    ]

In CSV the cells of a campaign are the same in all its rows, but for `context` and `bid_micros`. A context is
1:North/1:Food, a level and a value per attribute, and none means anywhere; where cells hold several, | stands
in between; a backslash goes before a /, | or \\ of a value. A text that a spreadsheet would compute is written
with an apostrophe in front, which is not read. What is wrong names its table or row, and its key.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tacit import expect
from tacit.config import error_prefix, parse_toml
from tacit.deliver.campaigns.campaign import (
    ALLOWED,
    SCHEDULE,
    AdCampaign,
    ContextBid,
    Schedule,
    context_as_json,
    expect_keys,
    read_context,
)
from tacit.deliver.campaigns.store import Advertiser
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Node

MOST_FILE_BYTES = 2**24
COLUMNS = (
    "number", "version", "advertiser", "title", "event", "status", "budget_micros", "daily_micros", "starts",
    "ends", "hours", "utc_offset_minutes", "categories", "caps", "blocked", "context", "bid_micros",
)  # fmt: skip
NEEDED_COLUMNS = ("advertiser", "title", "event", "bid_micros")
OF_A_BID = ("context", "bid_micros")
NUMBERS = ("number", "version", "budget_micros", "daily_micros", "utc_offset_minutes")
COMPUTED = tuple("=+-@\t'")  # what cells begin with that spreadsheets compute, and what marks those that do not


@dataclass(frozen=True)
class FiledCampaign:
    """A campaign of a file: new, where it is not `numbered`; `version` is the one that was seen, or None."""

    campaign: AdCampaign
    numbered: bool = True
    version: int | None = None


@dataclass(frozen=True)
class CampaignFile:
    advertisers: tuple[Advertiser, ...] = ()
    campaigns: tuple[FiledCampaign, ...] = ()


def read_campaign_file(path: str | Path) -> CampaignFile:
    """What a file says, which is TOML or CSV by its name; BadInput says where it is wrong."""
    path = expect.path("path", path)
    kinds = {".toml": parse_campaign_toml, ".csv": parse_campaign_csv}
    if path.suffix.lower() not in kinds:
        raise BadInput(f"{path}: expected a file NAME.toml or NAME.csv, got another name")
    try:
        with path.open("rb") as file:
            content = file.read(MOST_FILE_BYTES + 1)
    except OSError as problem:
        got = (problem.strerror or "nothing").lower()
        raise BadInput(f"{path}: expected a file of campaigns here, got {got}") from None
    with error_prefix(str(path)):
        if len(content) > MOST_FILE_BYTES:
            raise BadInput(f"expected at most {MOST_FILE_BYTES} bytes, got more")
        return kinds[path.suffix.lower()](content)


# TOML


def parse_campaign_toml(content: bytes) -> CampaignFile:
    said = expect_keys("file", parse_toml(content), (), ("advertiser", "campaign"))
    advertisers, campaigns = list[Advertiser](), list[FiledCampaign]()
    for place, table in enumerate(_tables(said, "advertiser"), start=1):
        with error_prefix(f"advertiser {place}"):
            advertisers.append(Advertiser.from_json(table))
    for place, table in enumerate(_tables(said, "campaign"), start=1):
        with error_prefix(f"campaign {place}"):
            record = {**expect_keys("campaign", table, (), ("version", *ALLOWED))}
            if isinstance(record.get("schedule"), Mapping):
                when = record["schedule"]
                record["schedule"] = {**when, **{k: _second(when[k]) for k in ("starts", "ends") if k in when}}
            campaigns.append(read_filed(record))
    return _whole(advertisers, campaigns)


def _tables(said: Mapping[str, Any], name: str) -> list[Any]:
    given = said.get(name, [])
    if not isinstance(given, list):
        raise BadInput(f"{name}: expected tables [[{name}]], got another value")
    return given


def _second(given: Any) -> Any:
    """Seconds since 1970 of a date; what is none is left to the record."""
    if not isinstance(given, datetime):
        return given
    if given.tzinfo is None or given.microsecond:
        raise BadInput(
            "schedule: expected whole seconds with their offset, as 2027-03-01T00:00:00Z, got others"
        )
    return int(given.timestamp())


def read_filed(record: Mapping[str, Any]) -> FiledCampaign:
    """A campaign of its record with `version`, and without `number` where it is to get one."""
    record = {**record}
    version, numbered = record.pop("version", None), "number" in record
    if version is not None and expect.whole("version", version, at_least=1) >= 2**63:
        raise BadInput("version: expected 1..2^63-1, got another number")
    if version is not None and not numbered:
        raise BadInput("version: expected none without a number, got one")
    return FiledCampaign(AdCampaign.from_json({"number": 0, **record}), numbered, version)


def _whole(advertisers: Sequence[Advertiser], campaigns: Sequence[FiledCampaign]) -> CampaignFile:
    """A file in which nothing is said twice."""
    for name, twice in (
        ("advertiser", [each.name for each in advertisers]),
        ("campaign", [each.campaign.number for each in campaigns if each.numbered]),
    ):
        seen = set[Any]()
        for each in twice:
            if each in seen:
                raise BadInput(f"{name}: expected each once, got {each!r} twice")
            seen.add(each)
    return CampaignFile(tuple(advertisers), tuple(campaigns))


def campaigns_as_toml(filed: CampaignFile) -> str:
    """A file as `parse_campaign_toml` reads it."""
    tables = []
    for advertiser in filed.advertisers:
        tables.append(["[[advertiser]]", *(f"{k} = {_spell(v)}" for k, v in advertiser.as_json().items() if v)])
    for each in filed.campaigns:
        record = each.campaign.as_json()
        if not each.numbered:
            del record["number"]
        if each.version is not None:
            record = {"number": record.pop("number"), "version": each.version, **record}
        when = {key: value for key, value in record.pop("schedule").items() if value}
        bids = record.pop("bids")
        said = {**record, **({"schedule": when} if when else {})}
        lines = [f"{k} = {_spell(v, k)}" for k, v in said.items() if v not in (None, [])]
        tables.append(["[[campaign]]", *lines, "bids = [", *(f"  {_spell(bid)}," for bid in bids), "]"])
    return "\n\n".join("\n".join(table) for table in tables) + ("\n" if tables else "")


def _spell(value: Any, key: str = "") -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)  # printable texts are spelled alike in both
        case list():
            return "[" + ", ".join(_spell(each) for each in value) + "]"
        case dict():
            said = [f"{k} = {_spell(v, k)}" for k, v in value.items() if v is not None]
            return "{ " + ", ".join(said) + " }"
        case _ if key in ("starts", "ends"):
            return spell_second(value)
    return str(value)


def spell_second(second: int) -> str:
    """As a date where there is one: 2027-03-01T00:00:00Z."""
    try:
        return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
    except (ValueError, OverflowError, OSError):  # beyond year 9999
        return str(second)


# CSV


def parse_campaign_csv(content: bytes) -> CampaignFile:
    try:
        text = content.decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except UnicodeDecodeError:
        raise BadInput("expected CSV in UTF-8, got another text") from None
    except csv.Error as problem:
        raise BadInput(f"expected CSV, got {problem}") from None
    header, found = (rows[0] if rows else []), dict[Any, list[tuple[int, dict[str, str]]]]()
    for name in header:
        if name not in COLUMNS:
            raise BadInput(f"row 1: {expect.unknown_key(name[:60], name[:60], COLUMNS)}")
    for name in NEEDED_COLUMNS:
        if header.count(name) != 1:
            raise BadInput(f"row 1: expected one column {name}, got {header.count(name)}")
    if len(set(header)) < len(header):
        raise BadInput("row 1: expected each column once, got one twice")
    for place, cells in enumerate(rows[1:], start=2):
        if not cells:
            continue
        if len(cells) != len(header):
            raise BadInput(f"row {place}: expected {len(header)} cells, got {len(cells)}")
        row = {name: cell.removeprefix("'") for name, cell in zip(header, cells, strict=True)}
        found.setdefault(row.get("number") or (row["advertiser"], row["title"]), []).append((place, row))
    campaigns = [_read_rows(each) for each in found.values()]
    return _whole((), campaigns)


def _read_rows(rows: Sequence[tuple[int, Mapping[str, str]]]) -> FiledCampaign:
    first, said = rows[0]
    bids = []
    for place, row in rows:
        for name, cell in row.items():
            if name not in OF_A_BID and cell != said[name]:
                raise BadInput(
                    f"row {place}: {name}: expected what row {first} says of the campaign, got another"
                )
        with error_prefix(f"row {place}"):
            context = parse_context("context", row.get("context", ""))
            bid = ContextBid(_number("bid_micros", row["bid_micros"]), context)
            bids.append({"micros": bid.micros, "context": context_as_json(context)})
    with error_prefix(f"row {first}"):
        record: dict[str, Any] = {name: said[name] for name in ("advertiser", "title", "event")}
        record |= {name: _number(name, said[name]) for name in NUMBERS if said.get(name)}
        when = {name: record.pop(name) for name in SCHEDULE if name in record}
        when |= {name: parse_second(name, said[name]) for name in ("starts", "ends") if said.get(name)}
        when["hours"] = parse_hours("hours", said.get("hours", ""))
        if said.get("status"):
            record["status"] = said["status"]
        record["categories"] = [_unescaped(each) for each in _split(said.get("categories", ""), "|")]
        record["caps"] = [parse_cap("caps", each) for each in _split(said.get("caps", ""), "|")]
        record["blocked"] = [
            context_as_json(parse_context("blocked", each)) for each in _split(said.get("blocked", ""), "|")
        ]
        return read_filed({**record, "schedule": when, "bids": bids})


def _number(name: str, cell: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", cell):
        raise BadInput(f"{name}: expected a whole number, got {cell[:40]!r}")
    return int(cell)


def parse_second(name: str, cell: str) -> int:
    if re.fullmatch(r"[0-9]{1,19}", cell):
        return int(cell)
    try:
        return int(_second(datetime.fromisoformat(cell)))
    except ValueError:  # BadInput is one, too
        raise BadInput(
            f"{name}: expected seconds since 1970 or 2027-03-01T00:00:00Z, got {cell[:40]!r}"
        ) from None


def parse_hours(name: str, cell: str) -> list[int]:
    """8-17 32: hours 8 to 17, and hour 32."""
    found: list[int] = []
    for each in cell.split():
        match = re.fullmatch(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", each)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise BadInput(f"{name}: expected hours of the week as 8-17 32-41, got {each[:40]!r}")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def parse_cap(name: str, cell: str) -> dict[str, int]:
    match = re.fullmatch(r"([0-9]{1,10})/([0-9]{1,10})", cell)
    if match is None:
        raise BadInput(f"{name}: expected IMPRESSIONS/SECONDS, got {cell[:40]!r}")
    return {"impressions": int(match[1]), "seconds": int(match[2])}


def parse_context(name: str, spelled: str) -> Node | None:
    """The context of 1:North/1:Food; None of an empty text.

    >>> parse_context("context", "1:North/0:Tea")
    Node(levels=(1, 0), values=('North', 'Tea'))
    """
    levels, values = list[int](), list[str]()
    for each in _split(spelled, "/"):
        level, colon, value = each.partition(":")
        if not (colon and re.fullmatch(r"[0-9]{1,3}", level)):
            raise BadInput(f"{name}: expected LEVEL:VALUE/LEVEL:VALUE..., got {spelled[:60]!r}")
        levels.append(int(level))
        values.append(_unescaped(value))
    return read_context(name, {"levels": levels, "values": values}) if levels else None


def spell_context(node: Node | None) -> str:
    if node is None:
        return ""
    return "/".join(f"{level}:{_escaped(value)}" for level, value in zip(node.levels, node.values, strict=True))


def _split(cell: str, by: str) -> list[str]:
    """The parts of a cell; what a backslash stands before does not part them, and stays as it is."""
    parts, behind = [""], False
    for character in cell:
        if character == by and not behind:
            parts.append("")
        else:
            parts[-1] += character
        behind = character == "\\" and not behind
    if behind:
        raise BadInput("expected a character behind each backslash, got none")
    return parts if cell else []


def _escaped(value: str) -> str:
    return re.sub(r"([\\/|])", r"\\\1", value)


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value)


def campaigns_as_csv(filed: CampaignFile) -> str:
    """A file as `parse_campaign_csv` reads it; advertisers are named, and no more."""
    into = io.StringIO()
    writer = csv.writer(into, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in filed.campaigns:
        campaign, when = each.campaign, each.campaign.schedule
        same = (
            campaign.number if each.numbered else None, each.version, _marked(campaign.advertiser),
            _marked(campaign.title), campaign.event, campaign.status, campaign.budget_micros,
            campaign.daily_micros,
            None if when.starts is None else spell_second(when.starts),
            None if when.ends is None else spell_second(when.ends),
            _spell_hours(when), when.utc_offset_minutes or None,
            _marked("|".join(_escaped(each) for each in campaign.categories)),
            "|".join(f"{cap.impressions}/{cap.seconds}" for cap in campaign.caps),
            "|".join(spell_context(node) for node in campaign.blocked),
        )  # fmt: skip
        writer.writerows([*same, spell_context(bid.node), bid.micros] for bid in campaign.bids)
    return into.getvalue()


def _marked(text: str) -> str:
    return f"'{text}" if text.startswith(COMPUTED) else text


def _spell_hours(when: Schedule) -> str:
    runs: list[list[int]] = []
    for hour in when.hours:
        if runs and runs[-1][-1] == hour - 1:
            runs[-1].append(hour)
        else:
            runs.append([hour])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def filed_records(filed: CampaignFile) -> dict[str, Any]:
    """A file as the API's import takes it."""
    campaigns = []
    for each in filed.campaigns:
        record = each.campaign.as_json()
        if not each.numbered:
            del record["number"]
        campaigns.append({"campaign": record, "version": each.version})
    return {"advertisers": [each.as_json() for each in filed.advertisers], "campaigns": campaigns}


def by_number(
    campaigns: Iterable[FiledCampaign],
) -> tuple[list[tuple[AdCampaign, int | None]], list[AdCampaign]]:
    """Those that have a number, with the versions that were seen; and those that are to get one."""
    told = list(campaigns)
    return (
        [(each.campaign, each.version) for each in told if each.numbered],
        [each.campaign for each in told if not each.numbered],
    )
