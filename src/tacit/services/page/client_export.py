"""The client for browsers as files of a publisher's own site, and what a page needs to use it.

    parties = read_device_parties("https://ads.example/device/parties.json")
    made = export_client(Path("site/tacit"), parties)
    print(made.snippet)

Whoever serves a page's scripts can do on it what they like: a publisher that has the client and the parties on
its own site trusts nobody new, and its readers' browsers ask nobody but the proxy.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from tacit.config import error_prefix
from tacit.deliver.device.account import DeviceLimits
from tacit.errors import BadInput
from tacit.files import parse_strict_json, place_folder
from tacit.schema.contexts.device_copy import hierarchy_as_json
from tacit.schema.contexts.hierarchy import load_hierarchy
from tacit.services.page.device_files import PREBID, limits_as_json, origin_of, read_client
from tacit.services.settings import check_url, load_parties

PARTIES = "parties.json"
VERSION = 1
MOST_BYTES = 8_000_000
PATIENCE_SECONDS = 10.0
KEYS = {"proxy": ("signing",), "server": ("signing", "sealing")}
LIMITS = ("local", "central", "perChoice", "delta", "windowSeconds")
LEAF = "..."  # of a context that no value can be shown for

SNIPPET = """\
<div id="ad"></div>
<script type="module">
  import {{ openTacit }} from "{at}/tacit.js";
  const tacit = await openTacit({{ settings: "{at}/parties.json", context: {context} }});
  await tacit.show(document.querySelector("#ad"));
</script>"""

PREBID_SNIPPET = """\
<script type="module">
  import {{ openBids }} from "{at}/prebid/bids.js";
  await openBids({{ settings: "{at}/parties.json", currency: "{currency}", context: {context} }});
</script>"""


@dataclass(frozen=True)
class ClientExport:
    """What was written, and what to put on a page.

    zipped_bytes  of the modules that a page with one ad loads, each packed with gzip: Prebid's adapter is in
                  the publisher's own build, and `parties` counts by itself
    """

    folder: str
    files: tuple[str, ...]
    zipped_bytes: int
    parties_zipped_bytes: int
    snippet: str
    prebid: str
    policy: str

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "files": list(self.files)}


def read_device_parties(place: str) -> dict[str, Any]:
    """What an ad server says that devices must know, from its URL or from a file; refused where a device would
    refuse it."""
    with error_prefix(place):
        if re.match(r"https?://", place):
            body = _fetch(check_url("parties", place))
        else:
            path = Path(place)
            if not path.is_file():
                raise BadInput("expected a URL, a parties.json or a parties.toml, got no file")
            body = path.read_bytes()
        return check_device_parties(parse_strict_json(body))


def parties_from_toml(
    parties: Path, contexts: Path, levels: Sequence[int], *, vendor: int | None = None
) -> dict[str, Any]:
    """The same from what operators hand out, and the level of the hierarchy that pages tell."""
    found, hierarchy = load_parties(parties), load_hierarchy(contexts)
    with error_prefix(str(parties)):
        if found.proxy.signing_key is None or found.server.signing_key is None:
            raise BadInput("expected a signing_key of both parties, got less")
    if vendor is not None and not 0 < vendor < 2**16:
        raise BadInput(f"vendor: expected an id in 1..65535, got {vendor}")
    told = {
        "version": VERSION,
        "proxy": {
            "url": found.proxy.url,
            "signing": found.proxy.signing_key.hex(),
            "sealing": found.proxy.public_key.hex(),
        },
        "server": {
            "url": found.server.url,
            "signing": found.server.signing_key.hex(),
            "sealing": found.server.public_key.hex(),
        },
        "hierarchy": hierarchy_as_json(hierarchy),
        "disclosure": {"levels": list(levels)},
        "limits": limits_as_json(DeviceLimits()),
        "vendor": vendor,
        "demonstration": False,
    }
    return check_device_parties(told)


def check_device_parties(record: Any) -> dict[str, Any]:
    """The record, where a device can go by it; what else is in it stays."""
    if not isinstance(record, dict) or record.get("version") != VERSION:
        raise BadInput(f"expected what devices know of the parties, of version {VERSION}, got another record")
    for name, keys in KEYS.items():
        party = record.get(name)
        for key in keys:
            value = party.get(key) if isinstance(party, dict) else None
            if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
                raise BadInput(
                    f"{name}.{key}: expected a public key of 64 hexadecimal digits, got another value"
                )
    url = record["proxy"].get("url")
    record["proxy"]["url"] = check_url("proxy.url", url if isinstance(url, str) else "")
    hierarchy, disclosure, limits = (record.get(name) for name in ("hierarchy", "disclosure", "limits"))
    if hierarchy is None:
        raise BadInput(
            "hierarchy: expected how contexts generalise, got none: this market has no contexts.toml"
        )
    _check_hierarchy(hierarchy)
    if not isinstance(disclosure, dict) or disclosure.get("levels") not in hierarchy["levels"]:
        raise BadInput("disclosure.levels: expected levels of the hierarchy, got others")
    for name in LIMITS:
        value = limits.get(name) if isinstance(limits, dict) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise BadInput(f"limits.{name}: expected a number above 0, got another value")
    return record


def _check_hierarchy(record: Any) -> None:
    """In outline: who writes pages from it must find names in their places."""
    known = record if isinstance(record, dict) else {}
    attributes = known.get("attributes")
    if not isinstance(attributes, list) or not isinstance(known.get("levels"), list):
        raise BadInput("hierarchy: expected attributes and levels, got another record")
    for each in attributes:
        kind = each.get("kind") if isinstance(each, dict) else None
        if kind == "decimals":
            continue
        parents = each.get("parents") if kind in ("tree", "set") else None
        if not isinstance(parents, dict):
            raise BadInput("hierarchy.attributes: expected trees, sets and decimals, got another record")
        if not all(above is None or isinstance(above, str) for above in parents.values()):
            raise BadInput("hierarchy.attributes: expected names of what is above each name, got other values")


def export_client(
    folder: Path,
    parties: Mapping[str, Any],
    *,
    at: str = "/tacit",
    currency: str = "USD",
    overwrite: bool = False,
    commented: bool = False,
) -> ClientExport:
    """Write the client's modules, Prebid's part and the parties, all or nothing: modules bare, or commented as
    they are written."""
    base = at.rstrip("/")
    if not re.fullmatch(r"(/[\w.~-]+)*|https://[\w.-]+(:\d+)?(/[\w.~-]+)*", base, re.ASCII):
        raise BadInput("at: expected a path such as /tacit, where browsers find the folder, got another text")
    if not re.fullmatch("[A-Z]{3}", currency):
        raise BadInput(f"currency: expected a code such as USD, got {currency!r}")
    modules = read_client(commented=commented)
    if not modules:
        raise BadInput("expected the client's modules in this installation, got none")
    spelled = json.dumps(parties, separators=(",", ":"), ensure_ascii=False).encode()
    files = {**modules, PARTIES: spelled}
    kinds = (".js", ".json", "")  # and the folder of Prebid's part
    with place_folder(folder, PARTIES, what="the client", overwrite=overwrite, suffixes=kinds) as building:
        (building / PREBID).mkdir()
        for name, content in files.items():
            (building / name).write_bytes(content)
    alone = [content for name, content in modules.items() if "/" not in name]
    words = {"at": base, "currency": currency, "context": json.dumps(example_context(parties["hierarchy"]))}
    return ClientExport(
        folder=str(folder),
        files=tuple(sorted(files)),
        zipped_bytes=sum(len(gzip.compress(content, 9)) for content in alone),
        parties_zipped_bytes=len(gzip.compress(spelled, 9)),
        snippet=SNIPPET.format(**words),
        prebid=PREBID_SNIPPET.format(**words),
        policy=policy_for(parties["proxy"]["url"]),
    )


def policy_for(proxy_url: str) -> str:
    """What a page's content security policy must allow: the client's modules and its worker, which reaches the
    proxy; frames in which nothing runs, with styles and images of their own."""
    return (
        f"script-src 'self'; worker-src 'self'; connect-src 'self' {origin_of(proxy_url)}; frame-src 'self'; "
        "img-src 'self' blob: data:; style-src 'self' 'unsafe-inline'"
    )


def example_context(hierarchy: Mapping[str, Any]) -> list[Any]:
    """A context that the hierarchy knows, to be replaced by the page's own: the first leaf of each tree."""
    found: list[Any] = []
    for each in hierarchy["attributes"]:
        parents = each.get("parents") or {}
        inner = set(parents.values())
        leaf = next((name for name in parents if name not in inner), LEAF)
        found.append({"tree": leaf, "set": [leaf]}.get(each["kind"], [0, 0]))
    return found


def _fetch(url: str) -> bytes:
    try:
        with (
            httpx.Client(timeout=PATIENCE_SECONDS, follow_redirects=False) as client,
            client.stream("GET", url) as answer,
        ):
            if answer.status_code != 200:
                raise BadInput(f"expected the parties, got status {answer.status_code}")
            body = b""
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise BadInput(f"expected at most {MOST_BYTES} bytes, got more")
            return body
    except httpx.HTTPError as trouble:
        raise BadInput(f"expected an answer, got {type(trouble).__name__}") from None
