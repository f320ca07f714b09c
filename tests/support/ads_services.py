"""An ad server with all its parts and a proxy, in one process: what `tacit serve ads` runs, on a clock of ours.

world = AdsWorld(tmp_path)
world.wait_for_epoch()
world.get("/ads/campaigns", world.key(AccessRole.OPERATOR)).json()
world.end()
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tacit.deliver.campaigns.access import AccessRole, make_key
from tacit.deliver.campaigns.store import MACHINE, Author
from tacit.deliver.server.pacing import PacingSettings
from tacit.entropy import Entropy
from tacit.services import trial
from tacit.services.ads.parts import PARTS, Gathering, RunningAds
from tacit.services.background import AppPart
from tacit.services.settings import load_settings
from tacit.services.signatures import Party
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore
from tests.support.billing_services import BillingWorld
from tests.support.service_worlds import OPERATOR, SERVER_URL


class AdsWorld(BillingWorld):
    """Both parties, with campaigns, menus and whatever else the ad server's app has."""

    running: RunningAds

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **{"pacing": PacingSettings(), **options})

    def more_parts(self) -> list[AppPart]:
        folder = self.folder / "trial"
        if not folder.exists():
            trial.write_trial(folder, proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
        settings = load_settings(folder / "server.toml", Party.SERVER)
        gate = self.gate(Party.OPERATOR, Party.SERVER, OPERATOR)
        clock = self.clock_of(Party.SERVER)
        gathering = Gathering(SqlServerStore.open(settings.gathered), LedgerStore.open(settings.ledger))
        self.running = RunningAds.of(
            settings,
            self.ads,
            self.server,
            self.keeper,
            gate,
            Entropy(),
            clock,
            gathering,
            self.pacer,
            self.send_report,
        )
        return [part(self.running) for part in PARTS]

    def send_report(self, report: bytes) -> None:
        """To the proxy, over the network of this process."""
        self.channel().report(report)

    def key(self, role: AccessRole, advertiser: str | None = None, *, ends: int | None = None) -> str:
        """A new key, as it is spelled."""
        spelled, kept = make_key(role, advertiser, Entropy().bytes, now=self.now, ends=ends)
        self.running.campaigns.add_key(kept, Author(MACHINE, self.now))
        return spelled

    def ask(self, method: str, path: str, key: str | None = None, **more: Any) -> httpx.Response:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        headers |= more.pop("headers", {})
        return self.client.request(method, f"{SERVER_URL}{path}", headers=headers, **more)

    def get(self, path: str, key: str | None = None, **more: Any) -> httpx.Response:
        return self.ask("GET", path, key, **more)

    def post(self, path: str, key: str | None = None, **more: Any) -> httpx.Response:
        return self.ask("POST", path, key, **more)
