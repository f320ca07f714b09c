"""Two ad servers on one database: restarted, killed, upgraded under traffic; nothing is lost or done twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from tacit.bill.protocol.directory import EpochHead
from tacit.bill.server.store import RedeemedBatch, StoredEpoch
from tacit.entropy import Entropy
from tacit.services.billing_clients import HttpBillingOperator
from tacit.services.epochs import covered_until
from tacit.services.http_clients import SignedClient
from tacit.services.signatures import ExchangeKeys, Party
from tacit.store.billing_ads import SCHEMA, SqlAdStore
from tests.support.ad_workers import EPOCH_SECONDS, AdWorkers, some_workers
from tests.support.billing_fleets import Fleet, wait_until
from tests.support.billing_worlds import EPOCH, a_menu, a_stored_epoch, charged, redeemed, sign_receipt
from tests.support.ledger_places import Place
from tests.support.service_processes import Launcher

EXPANDING = '''"""A revision of the next release, which this one goes on beside."""
import sqlalchemy as sa
from alembic import op

revision, down_revision, compatible_from = "later", "HEAD", "HEAD"


def upgrade() -> None:
    for table in ("charges", "entries", "menus", "batches", "epochs"):
        op.add_column(f"bill_ads_{table}", sa.Column("currency", sa.Text, server_default="EUR", nullable=False))
'''


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    made = Launcher(tmp_path_factory.mktemp("launcher"))
    yield made
    made.end()


@pytest.fixture
def workers(launcher: Launcher, tmp_path: Path, postgres_server: str) -> Iterator[AdWorkers]:
    with some_workers(launcher, tmp_path / "trial", postgres_server) as made:
        made.parties.start(Party.PROXY)
        for worker in ("first", "second"):
            made.start(worker)
        yield made


@pytest.fixture
def store(workers: AdWorkers) -> Iterator[SqlAdStore]:
    billing = workers.parties.settings(Party.SERVER).billing
    assert billing is not None
    with closing(SqlAdStore.open(billing.store)) as opened:
        yield opened


class Traffic:
    """Devices that show and report one ad after the other, until it is enough."""

    def __init__(self, workers: AdWorkers, client: httpx.Client, pool: ThreadPoolExecutor, lanes: int) -> None:
        self.fleet = Fleet(workers.parties, client)
        self._enough = threading.Event()
        self._pool, self._lanes = pool, lanes

    def begin(self) -> EpochHead:
        head = self.fleet.wait_for_epoch()
        self._running = [self._pool.submit(self._go_on, lane) for lane in range(self._lanes)]
        return head

    def _go_on(self, lane: int) -> None:
        while not self._enough.is_set():
            self.fleet.visit(lane)
            time.sleep(0.2)

    def grow(self, more: int = 2) -> None:
        """Until so many more were reported."""
        before = len(self.fleet.prices)
        wait_until(lambda: len(self.fleet.prices) >= before + more)

    def end(self) -> None:
        self._enough.set()
        for each in self._running:
            each.result()


@contextmanager
def traffic(workers: AdWorkers, lanes: int = 2) -> Iterator[Traffic]:
    with httpx.Client(timeout=10, trust_env=False) as client, ThreadPoolExecutor(lanes) as pool:
        made = Traffic(workers, client, pool, lanes)
        try:
            yield made
        finally:
            made._enough.set()


def stored_heads(store: SqlAdStore) -> list[EpochHead]:
    found: list[StoredEpoch | None] = [store.epoch(epoch) for epoch in store.published_epochs(0)]
    return [EpochHead.from_bytes(each.head) for each in found if each is not None and each.head is not None]


def assert_all_was_charged(workers: AdWorkers, store: SqlAdStore, launcher: Launcher, fleet: Fleet) -> None:
    launcher.pass_seconds(2 * EPOCH_SECONDS + 600)  # all cohorts leave, however small
    wait_until(lambda: sum(line.impressions for line in store.totals()) >= len(fleet.prices))
    charged = [(line.impressions, line.total_micros) for line in store.totals()]
    assert tuple(map(sum, zip(*charged, strict=True))) == (len(fleet.prices), sum(fleet.prices))
    # A request that was on its way when the clock of all was set is of the wrong time, and was sent again.
    assert [each for each in workers.balancer.refused if "wrong-time" not in each] == []


def assert_no_gap(workers: AdWorkers, store: SqlAdStore) -> None:
    """From the first epoch on, one was open at every moment until now."""
    heads, now = stored_heads(store), workers.parties.clock()
    assert covered_until(heads, min(head.opens for head in heads)) > now


def roll(workers: AdWorkers, load: Traffic) -> None:
    """Restart one after the other; the other one serves meanwhile."""
    for worker in ("first", "second"):
        assert workers.ask_to_end(worker) == 0
        load.grow()
        workers.start(worker)
        load.grow()
        assert len(workers.owners()) == 1


@pytest.mark.slow
def test_workers_are_restarted_killed_and_upgraded_under_traffic(
    workers: AdWorkers, launcher: Launcher, store: SqlAdStore, tmp_path: Path
) -> None:
    revisions = tmp_path / "revisions"
    revisions.mkdir()
    (revisions / "revision_later.py").write_text(EXPANDING.replace("HEAD", SCHEMA.head))
    with traffic(workers) as load:
        head = load.begin()
        assert workers.ask_to_end("first") == 0
        wait_until(lambda: workers.owners() == ["second"])
        load.grow()
        workers.start("first", revisions)  # the tables are those of the next release now
        load.grow()
        assert workers.ask_to_end("second") == 0
        wait_until(lambda: workers.owners() == ["first"])
        workers.start("second")  # the old release, once more
        workers.kill("first")
        killed = time.monotonic()
        wait_until(lambda: workers.owners() == ["second"])
        assert time.monotonic() - killed < 5
        launcher.pass_seconds(EPOCH_SECONDS // 2)  # now it has to open the next epoch
        wait_until(lambda: len(store.published_epochs(0)) > 1)
        workers.start("first", revisions)
        launcher.pass_seconds(EPOCH_SECONDS // 2)
        assert load.fleet.wait_for_epoch().epoch == head.epoch + 1
        load.grow()
        assert_no_gap(workers, store)
        load.end()
        assert_commands_pass_once(workers, store, load.fleet)
        assert_all_was_charged(workers, store, launcher, load.fleet)
    for worker in ("first", "second"):
        assert workers.ask_to_end(worker) == 0
        assert "Traceback" not in workers.said(worker)


def assert_commands_pass_once(workers: AdWorkers, store: SqlAdStore, fleet: Fleet) -> None:
    """A command that somebody overheard is refused by whichever process it is repeated at."""
    secret = workers.parties.settings(Party.SERVER).secrets["operator"]
    keys = ExchangeKeys.between(secret, caller=Party.OPERATOR, called=Party.SERVER)
    body = b'{"campaign": 1, "budget_micros": 60000000}'
    now, path = workers.parties.clock(), "/billing/campaigns"
    headers = keys.request_headers("POST", path, body, now=now, nonce=b"n" * 16)
    with httpx.Client(timeout=5, trust_env=False) as client:
        said = [
            client.post(f"{workers.urls[worker]}{path}", content=body, headers=headers).status_code
            for worker in ("first", "second", "first")
        ]
        assert said == [200, 401, 401]
        # One that opens an epoch at a process that is not the owner: both offer it at once.
        [owner] = workers.owners()
        [other] = {"first", "second"} - {owner}
        calls = SignedClient(client, workers.urls[other], keys, entropy=Entropy(), clock=workers.parties.clock)
        opened = HttpBillingOperator(calls).rotate()["epoch"]
        fleet.visit(1)
        assert opened in store.published_epochs(0)


@pytest.mark.slow
def test_ten_rolling_restarts_under_more_traffic(
    workers: AdWorkers, launcher: Launcher, store: SqlAdStore
) -> None:
    with traffic(workers, lanes=6) as load:
        load.begin()
        for _ in range(10):
            roll(workers, load)
            launcher.pass_seconds(EPOCH_SECONDS // 2)
            load.grow(10)
        load.end()
        assert_no_gap(workers, store)
        assert_all_was_charged(workers, store, launcher, load.fleet)


def redeem_together(together: threading.Barrier, batch: RedeemedBatch, store: SqlAdStore) -> bytes:
    together.wait()
    return store.redeem(batch, sign_receipt(batch))


def test_a_batch_that_two_processes_get_at_once_is_charged_once(postgres_place: Place) -> None:
    menu = a_menu()
    stores = [SqlAdStore.open(postgres_place.where) for _ in range(2)]  # each with connections of its own
    stores[0].keep_epoch(EPOCH, a_stored_epoch(menu))
    for number in range(5):
        batch = redeemed(menu, [charged(menu, f"{number} {each}") for each in range(20)], number)
        together = threading.Barrier(2)

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(partial(redeem_together, together, batch), stores)
        assert first == second
        assert sum(line.impressions for line in stores[0].totals()) == 20 * (number + 1)
    for store in stores:
        store.close()
