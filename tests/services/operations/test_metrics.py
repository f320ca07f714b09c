"""What operators read: figures by route and reason, for nobody else, and all that alerts and boards name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import yaml

from tacit.bill.protocol.batches import Receipt
from tacit.bill.protocol.encoding import BillVerdict
from tacit.bill.protocol.keys import SigningKey
from tacit.errors import BadInput
from tacit.gather.protocol.credentials import SealingKey
from tacit.privacy.budget import Budget
from tacit.services.background import AppPart, Health, Look, Reading
from tacit.services.operations.app import LOOK_SECONDS, Operations
from tacit.services.operations.readings import BatchMeters, look_at_market, look_at_queue
from tacit.services.operations.settings import MetricsSettings, OperationsSettings
from tacit.services.settings import load_settings
from tacit.services.signatures import Party
from tacit.store.ledger import LedgerStore
from tests.support.billing_services import EPOCH_SECONDS, REPORT_SECONDS, SERVER_HOST, THERE, a_billing_world
from tests.support.operated_parties import ELSEWHERE, HERE, called, running, settings_of, write_settings
from tests.support.repository import ROOT
from tests.support.service_worlds import a_round

DEPLOY = ROOT / "deploy"
MARK = "marked-secret-of-a-device"


def names_in(text: str) -> set[str]:
    """Names of figures in PromQL, without what histograms and counters append."""
    found = set(re.findall(r"\btacit_[a-z_]+", text))
    return {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in found}


def told(client: httpx.Client) -> str:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return answer.text


def shown_by(text: str) -> set[str]:
    return {re.sub(r"_total$", "", name) for name in re.findall(r"^# TYPE (tacit_\w+) ", text, re.M)}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[Party, str]:
    """What /metrics of each party says, as `launch` makes it."""
    folder, texts = tmp_path_factory.mktemp("metrics") / "trial", {}
    paths = write_settings(folder)
    line = a_round(SealingKey.generate(), SealingKey.generate()).line
    with pytest.MonkeyPatch.context() as patch:
        for party, path in paths.items():
            settings = load_settings(path, party)
            LedgerStore.open(settings.ledger).grant(line, Budget.of(2, "1e-6"))
            with running(settings, patch) as client:
                client.get(f"/{MARK}")
                client.put(f"/billing/reports/{MARK}", content=MARK)
                client.get(
                    "/billing/head" if party is Party.PROXY else "/billing/status", headers={"x-a": MARK}
                )
                texts[party] = told(client)
                while "tacit_disk_free_bytes" not in texts[party]:  # the first look is on its way
                    texts[party] = told(client)
    return texts


def test_every_figure_that_alerts_and_boards_name_is_there(shown: dict[Party, str]) -> None:
    known = set.union(*(shown_by(text) for text in shown.values()))
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    board = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    alerts = [rule["expr"] for group in rules for rule in group["rules"]]
    panels = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(alerts) > 10
    assert len(panels) > 10
    assert names_in(" ".join([*alerts, *panels])) <= known
    assert all(expression.count(left) == expression.count(right)
               for expression in [*alerts, *panels] for left, right in ("()", "{}", "[]"))  # fmt: skip


def test_a_name_that_no_party_has_would_be_noticed(shown: dict[Party, str]) -> None:
    known = set.union(*(shown_by(text) for text in shown.values()))
    assert not names_in("rate(tacit_made_up_total[5m])") <= known
    assert names_in("tacit_http_request_seconds_bucket") <= known


def test_requests_are_counted_by_route_and_no_value_of_a_request_is_told(shown: dict[Party, str]) -> None:
    for text in shown.values():
        assert MARK not in text
    proxy = shown[Party.PROXY]
    assert 'tacit_http_requests_total{method="GET",route="other",status="404"} 1.0' in proxy
    assert 'tacit_http_requests_total{method="PUT",route="/billing/reports/{nonce}",status="400"} 1.0' in proxy
    assert 'tacit_refusals_total{reason="bill-malformed"} 1.0' in proxy
    assert 'tacit_refusals_total{reason="unauthenticated"} 1.0' in shown[Party.SERVER]
    assert 'tacit_http_request_seconds_count{route="/billing/head"} 1.0' in proxy
    assert 'tacit_build_info{party="proxy",' in proxy


def test_a_stranger_gets_nothing_and_the_bearer_of_the_secret_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path / "a", Party.PROXY)
    with running(settings, monkeypatch, ELSEWHERE) as client:
        assert client.get("/metrics").status_code == 401
    secret = tmp_path / "metrics.secret"
    secret.write_text("ab" * 32)
    secret.chmod(0o600)
    settings = settings_of(tmp_path / "b", Party.PROXY, f'\n[metrics]\nsecret = "{secret}"\n')
    with running(settings, monkeypatch, ELSEWHERE) as client:
        answers = [
            client.get("/metrics", headers={"authorization": given}).status_code
            for given in (f"Bearer {'ab' * 32}", f"Bearer {'ac' * 32}", "Bearer ", "Basic abab", "")
        ]
    assert answers == [200, 401, 401, 401, 401]


def test_behind_a_reverse_proxy_on_this_machine_nobody_is_taken_for_a_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_settings(tmp_path)[Party.PROXY]
    path.write_text(path.read_text().replace('host = "127.0.0.1"', 'host = "127.0.0.1"\nbehind_tls = true'))
    with running(load_settings(path, Party.PROXY), monkeypatch, HERE) as client:
        assert client.get("/metrics").status_code == 404


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('[metrics]\nhost = "127.0.0.1"', "metrics.port: expected a port beside metrics.host"),
        (
            '[metrics]\nhost = "0.0.0.0"\nport = 9',
            "metrics.secret: expected a file where metrics.host is 0.0.0.0",
        ),
        ("[metrics]\nport = 70000", "metrics.port: expected at most 65535, got 70000"),
        ("[metrics]\nprot = 1", "metrics.prot: .*unknown key 'prot'"),
        ('[metrics]\nsecret = "nowhere"', "metrics.secret: expected a file at .*nowhere"),
        ('[log]\nform = "xml"', "log.form: expected one of text, json|log.form: expected text or json"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_in_one_line(tmp_path: Path, table: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        settings_of(tmp_path, Party.SERVER, f"\n{table}\n")


def read(look: Look) -> dict[str, float]:
    return {each.name: each.value for each in look()}


def test_queues_budgets_and_epochs_are_told_as_they_change(tmp_path: Path) -> None:
    with a_billing_world(tmp_path, hold_seconds=60) as world:
        world.wait_for_epoch()
        seconds = [0.0]
        queue = look_at_queue(world.reports.database, lambda: world.now, lambda: seconds[0])
        market = look_at_market(world.ads.database, world.keeper, lambda: world.now)
        before = read(market)
        assert before["tacit_epoch_menus"] > 0
        assert 0 < before["tacit_epoch_covered_seconds"] <= 2 * EPOCH_SECONDS
        assert set(read(queue).values()) == {0}
        prices = world.show(3)
        world.now += 30
        waits = read(queue)
        assert (waits["tacit_reports_waiting"], waits["tacit_reports_waiting_seconds"]) == (3, 30)
        assert waits["tacit_reports_overdue_seconds"] == 0
        world.stop(SERVER_HOST)
        world.now += 30
        world.wait_until(world.reports.undelivered)
        assert read(queue)["tacit_batches_undelivered"] > 0
        seconds[0] = 8.0
        assert read(queue)["tacit_batches_undelivered_seconds"] == 8
        world.start_server()
        world.bill(3)
        assert set(read(queue).values()) == {0}
        after = read(look_at_market(world.ads.database, world.keeper, lambda: world.now))
        assert after["tacit_charged_micros"] == sum(prices)
        assert after["tacit_budget_left_micros"] <= before["tacit_budget_left_micros"]
        assert (after["tacit_batches_redeemed"], after["tacit_invoices"]) == (len(list(world.ads.batches())), 0)
        for each in world.ads.campaigns():
            world.ads.put_campaigns([replace(each, budget_micros=each.charged_micros)])
        spent = read(market)
        assert spent["tacit_campaigns_spent"] == spent["tacit_campaigns"] > 0
        assert spent["tacit_budget_left_micros"] == 0
        world.show(1, THERE, first=10)
        world.now += EPOCH_SECONDS + REPORT_SECONDS
        world.wait_until(lambda: read(market)["tacit_held_charges"] == 1)


def test_batches_are_measured_as_they_pass() -> None:
    meters = BatchMeters(lambda: 77)
    key = SigningKey.derive(bytes(32))
    verdicts = bytes([BillVerdict.ACCEPTED] * 4 + [BillVerdict.DUPLICATE])
    meters.note_receipt(Receipt.sign(key, bytes(16), verdicts).to_bytes())
    operations = Operations(Party.SERVER)
    part = AppPart(meters=[meters.cohorts, meters.judged, meters.last])
    operations.make_app([], Health({}), list, part)
    text = operations.metrics.text().decode()
    assert 'tacit_reports_judged_total{verdict="bill-accepted"} 4.0' in text
    assert 'tacit_reports_judged_total{verdict="bill-duplicate"} 1.0' in text
    assert 'tacit_cohort_reports_bucket{le="2.0"} 0.0' in text
    assert 'tacit_cohort_reports_bucket{le="5.0"} 1.0' in text
    assert "tacit_last_batch_timestamp_seconds 77.0" in text


def test_one_look_that_fails_leaves_the_others_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    def torn() -> list[Reading]:
        raise OSError("torn")

    def whole() -> list[Reading]:
        return [Reading("tacit_whole", "It is there.", 3)]

    operations = Operations(Party.SERVER, OperationsSettings(MetricsSettings(local=True)), looks=[torn, whole])
    app = operations.make_app([], Health({}), list, AppPart())
    with called(app) as client:
        text = told(client)
        while "tacit_whole" not in text:  # the first look is on its way
            text = told(client)
    assert LOOK_SECONDS > 5
    assert "tacit_whole 3.0" in text
    assert "tacit_failed_looks_total 1.0" in text
    assert "figures of /metrics are missing: unexpected OSError" in caplog.text
