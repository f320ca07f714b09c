"""What is in deploy/ fits what it deploys: settings load, variables and mounts are there, units can run."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tacit.cli import parser
from tacit.entropy import Entropy
from tacit.schema.contexts.hierarchy import load_hierarchy
from tacit.services import trial
from tacit.services.ads.campaign_menus import read_campaign_market
from tacit.services.billing_settings import AdServerSettings
from tacit.services.settings import load_parties, load_settings
from tacit.services.signatures import Party
from tacit.store.billing_ads import SqlAdStore
from tacit.store.billing_proxy import SqlBillingProxyStore
from tacit.store.gather_proxy import SqlProxyStore
from tacit.store.gather_server import SqlServerStore
from tacit.store.ledger import LedgerStore
from tests.support.ledger_places import Place
from tests.support.repository import ROOT
from tests.support.service_certificates import a_certificate

COMPOSE = ROOT / "deploy" / "compose"
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
SERVICES = {Party.SERVER: "ads-1", Party.PROXY: "proxy"}
DATABASES = {Party.SERVER: "ads-db", Party.PROXY: "proxy-db"}
WORKERS = ("ads-1", "ads-2")
IMAGE_USER = "10001"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As docs/operations.md says."""
    made = tmp_path_factory.mktemp("compose")
    trial.write_trial(made / "keys", proxy_port=8471, server_port=8472, entropy=Entropy(), billing=True)
    for name in ("server", "proxy"):
        secret = made / "keys" / f"{name}-metrics.secret"
        secret.touch(mode=0o600)
        secret.write_text("ab" * 32)
        a_certificate(made / "keys" / f"{name}.crt", made / "keys" / f"{name}.key")
        shutil.copy(COMPOSE / f"{name}.toml", made)
    return made


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    return found


@pytest.mark.parametrize("party", list(SERVICES))
def test_settings_load_with_what_compose_says(
    folder: Path, compose: dict[str, Any], party: Party, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service = compose["services"][SERVICES[party]]
    known = load_parties(folder / "keys" / "parties.toml")
    keys = {"PROXY_SIGNING_KEY": known.proxy.signing_key, "SERVER_SIGNING_KEY": known.server.signing_key}
    for name, value in service["environment"].items():
        key = keys.get(name)
        said = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)  # what compose says where nobody else does
        monkeypatch.setenv(name, said if key is None else key.hex())
    mounted = _mounted(service)
    place = tmp_path / "etc"
    for target, source in mounted.items():
        if target.startswith("/etc/tacit/"):
            copy = place / Path(target).relative_to("/etc/tacit")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / source, copy)
    found = load_settings(place / f"{party}.toml", party)  # of what the container sees, and nothing else
    if isinstance(found.billing, AdServerSettings):
        read_campaign_market(found.billing.market)
        assert found.openrtb is not None
        assert found.statistics is not None
        load_parties(found.statistics.parties)  # what rounds need is mounted, too
        load_hierarchy(found.statistics.contexts)
        assert found.openrtb.url == "https://localhost:8472"
    assert found.gathered.startswith("postgresql+psycopg://tacit:")
    assert f"@{DATABASES[party]}/" in found.gathered
    assert (found.listen.certificate is not None) != found.listen.behind_tls
    assert found.operations.metrics.port in (9471, 9472)
    assert str(found.operations.metrics.port) in service["healthcheck"]["test"][-1]
    assert mounted[service["command"][-1]] == f"./{party}.toml"
    parser().parse_args(service["command"])


def _mounted(service: dict[str, Any]) -> dict[str, str]:
    """What a container sees, by where it does."""
    return {each.split(":")[1]: each.split(":")[0] for each in service.get("volumes", [])}


def test_no_party_sees_the_others_secrets(compose: dict[str, Any]) -> None:
    seen = {name: set(_mounted(compose["services"][name]).values()) for name in (*WORKERS, "ads", "proxy")}
    for worker in WORKERS:
        assert seen[worker] & seen["proxy"] == {"./keys/pair.secret", "./keys/proxy.crt"}
    assert seen["ads"] & seen["proxy"] == {"./keys/server.crt"}
    assert seen["ads"] == {"./haproxy.cfg", "./keys/server.crt", "./keys/server.key"}
    assert not any(source in ("./keys", ".", "./") for sources in seen.values() for source in sources)


def test_databases_share_no_network(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert not set(services["ads-db"]["networks"]) & set(services["proxy-db"]["networks"])
    for name in ("ads", "proxy"):
        assert set(services[f"{name}-db"]["networks"]) == {name}
    for name, own in (("ads-1", {"ads"}), ("ads-2", {"ads"}), ("proxy", {"proxy"}), ("ads", set())):
        assert set(services[name]["networks"]) & {"ads", "proxy"} == own


def test_up_alone_starts_two_workers_behind_a_load_balancer_that_can_be_reached(
    compose: dict[str, Any], folder: Path
) -> None:
    services = compose["services"]
    assert not any("profiles" in services[name] for name in (*WORKERS, "ads", "proxy"))
    assert services["ads-1"] == services["ads-2"]
    assert {name: services[name].get("ports") for name in (*WORKERS, "ads", "proxy")} == {
        "ads-1": None, "ads-2": None, "ads": ["8472:8472"], "proxy": ["8471:8471"],
    }  # fmt: skip
    balanced = (COMPOSE / "haproxy.cfg").read_text()
    port = tomllib.loads((folder / "server.toml").read_text())["listen"]["port"]
    for worker in WORKERS:
        assert f"server {worker} {worker}:{port}\n" in balanced
        assert set(services[worker]["networks"]) & set(services["ads"]["networks"])
    bind = re.search(r"bind :(\d+) ssl crt (\S+)", balanced)
    assert bind is not None
    mounted = _mounted(services["ads"])
    assert bind[1] == "8472"
    assert mounted[bind[2]] == "./keys/server.crt"
    assert mounted[f"{bind[2]}.key"] == "./keys/server.key"
    other = tomllib.loads((folder / "proxy.toml").read_text())["other"]
    assert other["url"] == "https://ads:8472"  # the load balancer, which both networks know under this name
    assert mounted["/usr/local/etc/haproxy/haproxy.cfg"] == "./haproxy.cfg"


def test_who_is_no_image_of_ours_can_read_the_secrets_that_it_is_given(compose: dict[str, Any]) -> None:
    """They are files that only their owner, the user of the image, may read."""
    containerfile = (COMPOSE / "Containerfile").read_text()
    assert f"useradd --uid {IMAGE_USER}" in containerfile
    for name, service in compose["services"].items():
        secret = any(source.startswith("./keys/") for source in _mounted(service).values())
        if secret and service["image"] != "tacit":
            assert service["user"].partition(":")[0] == IMAGE_USER, name


def test_prometheus_reads_our_file_and_asks_every_worker(compose: dict[str, Any]) -> None:
    service = compose["services"]["prometheus"]
    (named,) = [each.partition("=")[2] for each in service["command"] if each.startswith("--config.file=")]
    assert _mounted(service)[str(Path(named).parent)] == "../prometheus"
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus" / Path(named).name).read_text())
    jobs = {each["job_name"]: each for each in scraped["scrape_configs"]}
    targets = {name: each["static_configs"][0]["targets"] for name, each in jobs.items()}
    assert targets == {"tacit-ads": ["ads-1:9472", "ads-2:9472"], "tacit-proxy": ["proxy:9471"]}
    for job in jobs.values():
        assert job["authorization"]["credentials_file"] in _mounted(service)
    for name in (*WORKERS, "proxy"):
        assert set(compose["services"][name]["networks"]) & set(service["networks"])
    assert (ROOT / "deploy" / "prometheus" / scraped["rule_files"][0]).exists()


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_name_commands_that_there_are(path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(path)
    program, *words = unit["Service"]["ExecStart"].replace("%i", "1").split()
    assert Path(program).name == "tacit"
    parser().parse_args(words)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_has_nothing_against_the_units() -> None:
    said = subprocess.run(["systemd-analyze", "verify", *UNITS], capture_output=True, text=True).stderr
    assert [line for line in said.splitlines() if "/opt/tacit/bin/tacit is not executable" not in line] == []


def test_every_alert_has_its_runbook() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text()
    page = (ROOT / "docs" / "operations.md").read_text().partition("## Runbooks")[2]
    missing = [name for name in re.findall(r"- alert: (\w+)", rules) if not re.search(rf"\b{name}\b", page)]
    assert missing == []


@pytest.mark.parametrize(
    ("first", "second"), [(SqlServerStore, SqlAdStore), (SqlProxyStore, SqlBillingProxyStore)]
)
def test_a_partys_stores_may_share_a_postgresql_database_in_any_order(
    postgres_place: Place, first: Any, second: Any
) -> None:
    for turn in range(2):
        stores = [kind.open(postgres_place.where) for kind in ((first, second) if turn else (second, first))]
        LedgerStore.open(postgres_place.where, witness=postgres_place.witness).overview()
        for store in stores:
            store.close()
