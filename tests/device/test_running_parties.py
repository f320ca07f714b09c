"""The device for browsers, in Node, against an ad server and a proxy that run: tokens, choices, charges.

Whatever state it dies in, nothing is drawn twice, and what is charged is what was shown, to the millionth.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tacit.bill.server.store import StoredCharge
from tacit.schema.contexts.device_copy import hierarchy_as_json
from tacit.schema.contexts.hierarchy import load_hierarchy
from tacit.services.settings import load_parties
from tacit.services.signatures import Party
from tacit.store.billing_ads import SqlAdStore
from tests.support.billing_fleets import change, charges, wait_until
from tests.support.service_processes import Launcher, Parties, some_parties

NODE = shutil.which("node")
VISIT = Path(__file__).with_name("visit.mjs")
EPOCH_SECONDS, DIED = 600, 9
HERE = ["Northport", "Coffee"]
MICRO = 1_000_000

pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node on this machine")


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    made = Launcher(tmp_path_factory.mktemp("launcher"))
    made.pass_seconds(EPOCH_SECONDS - int(time.time()) % EPOCH_SECONDS + 1)  # an epoch has just begun
    yield made
    made.end()


@pytest.fixture(scope="module")
def parties(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    """Both parties, with the menus of one context, as keys take long to draw; three reports leave at once."""
    folder = tmp_path_factory.mktemp("parties") / "trial"
    with some_parties(launcher, folder, "look_every_ms = 30", billing=True) as made:
        market = folder / "market.toml"
        for old, new in (
            ("epoch_seconds = 60 ", f"epoch_seconds = {EPOCH_SECONDS} "),
            ("smallest_cohort = 5 ", "smallest_cohort = 3 "),
            ("levels = [[1, 1], [2, 2]] ", "levels = [[2, 2]] "),
        ):
            assert old in market.read_text()
            market.write_text(market.read_text().replace(old, new))
        change(made, Party.PROXY, "hold_seconds = 2 ", "hold_seconds = 0 ")
        with (folder / "server.toml").open("a") as settings:
            settings.write("\n[pace]\nlook_every_ms = 30\n")
        made.start(Party.SERVER, Party.PROXY)
        with httpx.Client(trust_env=False) as client:
            head = f"{made.urls[Party.PROXY]}/billing/head"
            wait_until(lambda: client.get(head).status_code == 200)
        yield made


def device_settings(parties: Parties, **limits: float) -> dict[str, Any]:
    """What a device must know of the parties, as an ad server tells it."""
    known = load_parties(parties.folder / "parties.toml")
    assert known.proxy.signing_key is not None
    assert known.server.signing_key is not None
    given = {"local": 6, "central": 6, "perChoice": 2, "delta": 1e-6, "windowSeconds": 7 * 86_400}
    return {
        "version": 1,
        "proxy": {"url": known.proxy.url, "signing": known.proxy.signing_key.hex()},
        "server": {"signing": known.server.signing_key.hex(), "sealing": known.server.public_key.hex()},
        "hierarchy": hierarchy_as_json(load_hierarchy(parties.folder / "contexts.toml")),
        "disclosure": {"levels": [2, 2]},
        "limits": {**given, **limits},
        "vendor": None,
        "demonstration": True,
    }


class NodeDevice:
    """One device, whose journal is a file, and what its person saw."""

    def __init__(self, parties: Parties, folder: Path, settings: dict[str, Any]) -> None:
        self._parties, self._settings = parties, settings
        self._file, self._seen = folder / "journal", folder / "seen"

    def visit(self, count: int, *, die_at: str | None = None, likes: int = 1) -> dict[str, Any]:
        asked = {
            "settings": self._settings,
            "file": str(self._file),
            "seen": str(self._seen),
            "contexts": [HERE] * count,
            "ahead": self._parties.clock() - int(time.time()),
            "dieAt": die_at,
            "likes": likes,
            "waitSeconds": 10,
        }
        assert NODE is not None
        done = subprocess.run(
            [NODE, VISIT], input=json.dumps(asked), capture_output=True, text=True, timeout=60, check=False
        )
        if die_at is not None:
            assert done.returncode == DIED, done.stderr
            return {}
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def seen(self) -> list[dict[str, Any]]:
        """Every ad that was on the screen, each time."""
        return [json.loads(line) for line in self._seen.read_text().splitlines()]


def charged(parties: Parties) -> dict[str, StoredCharge]:
    """Every charge by its nonce, from the ad server's store."""
    settings = parties.settings(Party.SERVER)
    assert settings.billing is not None
    with closing(SqlAdStore.open(settings.billing.store)) as store:
        found = [charge for batch in store.batches() for charge in store.charges_of(batch.batch_id)]
    assert len({each.nonce for each in found}) == len(found)
    return {each.nonce.hex(): each for each in found}


def test_a_device_that_dies_in_every_state_is_charged_for_what_it_showed(
    parties: Parties, tmp_path: Path
) -> None:
    before = charged(parties)
    device = NodeDevice(parties, tmp_path, device_settings(parties))
    for die_at in ("NEW", "ISSUED", "CHOSEN", "render", "SHOWN", "ACKED"):
        # By the rates of its last start a choice that was drawn again would come out otherwise.
        device.visit(1, die_at=die_at, likes=1 if die_at == "CHOSEN" else 3)
    found = device.visit(2, likes=2)
    seen = device.seen()
    assert len(seen) == 4, "one twice: it died between showing it and writing that down"
    shown = {each["nonce"]: each for each in seen}
    assert len(shown) == 3
    for each in seen:
        assert shown[each["nonce"]] == each, "the same ad, never drawn again"
        assert (each["lane"], each["epsilonMicros"]) == ("personal", MICRO)
    assert (found["sent"]["waiting"], found["waiting"]) == (0, 0)
    assert found["localMicros"] == 3 * MICRO, "as often as was drawn"
    states = [each["state"] for each in found["records"]]
    assert states.count("SETTLED") == 3
    assert set(states) == {"ISSUED", "SETTLED"}
    made = {nonce: charge for nonce, charge in charged(parties).items() if nonce not in before}
    assert {nonce: (each.index, each.price_micros, each.campaign) for nonce, each in made.items()} == {
        nonce: (each["index"], each["priceMicros"], each["campaign"]) for nonce, each in shown.items()
    }
    count, micros = charges(parties)
    assert micros == sum(each.price_micros for each in charged(parties).values())
    assert count == len(before) + 3


def test_a_spent_account_takes_the_public_lane_and_what_leaves_has_one_length(
    parties: Parties, tmp_path: Path
) -> None:
    before = charged(parties)
    device = NodeDevice(parties, tmp_path, device_settings(parties, local=3, central=3))
    found = device.visit(6)
    lanes = [each["lane"] for each in device.seen()]
    assert lanes == ["personal"] * 3 + ["public"] * 3
    assert found["localMicros"] == 3 * MICRO
    made = {nonce: charge for nonce, charge in charged(parties).items() if nonce not in before}
    assert sum(each.price_micros for each in made.values()) == sum(
        each["priceMicros"] for each in device.seen()
    )
    lengths: dict[str, set[int]] = {}
    for kind, size in found["messages"]:
        lengths.setdefault(kind, set()).add(size)
    assert lengths["report"] == {434}
    assert len(lengths["offer"]) == 2, "one that asks for a menu, one that asks for four tokens"
    assert set(lengths) == {"head", "offer", "pack", "report", "statement"}
