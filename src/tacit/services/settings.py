"""Settings of the parties: one TOML file per party, and parties.toml with what everybody may know.

A key that nobody reads is refused by its name. The settings of a proxy or a server:

    [listen]
    host = "127.0.0.1"
    port = 8471
    certificate = "proxy.crt"            # with private_key: speaks TLS
    private_key = "proxy.key"
    behind_tls = true                    # instead of them: a reverse proxy on this machine or network ends TLS

    [store]
    gathered = "proxy.sqlite"            # a path, or postgresql+psycopg://...
    questions = "questions"              # the proxy only: a folder
    ledger = "proxy-ledger.sqlite"
    witness = "proxy-ledger.witness"     # needed where the ledger is in PostgreSQL
    keep_days = 30                       # days after which a settled round's reporters are deleted

    [secrets]                            # files that only their owner may read
    sealing = "proxy.sealing"
    pair = "pair.secret"
    enrolment = "enrolment.secret"       # the proxy only
    operator = "operator.secret"         # the server only

    [other]                              # the other party
    url = "https://server.example:8472"
    trust = "server.crt"                 # instead of the system's authorities

    [pace]                               # changes no promise
    commit_wait_ms = 5

    [billing]                            # the party bills impressions, too: see `billing_settings`
    [pacing]                             # how far over budget campaigns can go: there too
    [openrtb]                            # the ad server answers exchanges: see `ads.openrtb_settings`
    [statistics]                         # the ad server only: rounds by schedule; see `statistics_settings`
    [metrics]                            # and [log]: for those who run it; see `operations.settings`

parties.toml, which devices and operators read, has a table per party:

    [proxy]
    url = "https://proxy.example"
    public_key = "64 hexadecimal digits" # what devices seal to
    signing_key = "64 hexadecimal digits" # what devices that show ads check signatures by
    trust = "proxy.crt"                  # instead of the system's authorities

    [server]
    ...

Paths are relative to the file's folder. URLs are https, except on this very machine.

The environment can name the settings file (TACIT_PROXY_SETTINGS, TACIT_SERVER_SETTINGS), and say what the file
leaves to it: a text "env:NAME" is the value of the variable NAME, so that a container's file can leave open
where its database is. Secrets stay in files.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tacit import expect
from tacit.config import ConfigTable, error_prefix, read_toml
from tacit.errors import BadInput
from tacit.files import OTHERS_MODE
from tacit.services.ads.openrtb_settings import OpenRtbSettings, read_openrtb
from tacit.services.billing_settings import BillingSettings, read_billing, read_public_key
from tacit.services.connection_limits import is_loopback
from tacit.services.operations.settings import TABLES, OperationsSettings, read_operations
from tacit.services.signatures import SECRET_BYTES, Party
from tacit.services.statistics_settings import StatisticsSettings, read_statistics


def check_url(name: str, spelled: str) -> str:
    """The URL without a slash at its end; plain http is refused for any machine but this one."""
    url = spelled.rstrip("/")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https") or parts.query or parts.fragment or "@" in url:
        raise BadInput(f"{name}: expected https://HOST:PORT, got another text")
    if parts.scheme == "http" and not is_loopback(host):
        raise BadInput(f"{name}: expected https:// for another machine, got http://")
    return url


VARIABLES = {Party.PROXY: "TACIT_PROXY_SETTINGS", Party.SERVER: "TACIT_SERVER_SETTINGS"}
TOP = ("listen", "store", "secrets", "other", "pace", "billing", "pacing", "openrtb", "statistics", *TABLES)
LISTEN = ("host", "port", "certificate", "private_key", "behind_tls")
OTHER = ("url", "trust")
STORE = {
    Party.PROXY: ("gathered", "questions", "ledger", "witness", "keep_days"),
    Party.SERVER: ("gathered", "ledger", "witness", "keep_days"),
}
KEEP_DAYS = 30
SECRETS = {Party.PROXY: ("sealing", "pair", "enrolment"), Party.SERVER: ("sealing", "pair", "operator")}


@dataclass(frozen=True)
class ListenSettings:
    host: str
    port: int
    certificate: Path | None = None
    private_key: Path | None = None
    behind_tls: bool = False


@dataclass(frozen=True)
class OtherParty:
    """Where the other party answers; `trust` is the certificate (or authority) it must show."""

    url: str
    trust: Path | None = None


@dataclass(frozen=True)
class ServicePace:
    """How fast and in what portions. None of it changes what is promised, only how long it takes."""

    commit_wait_ms: int = 5  # how long an upload waits for others to be stored with it
    commit_most: int = 500  # uploads stored at once
    held_bytes_most: int = 128 * 2**20  # of uploads held in memory; more are told to come again
    connections_most: int = 800  # at the same time, each of them a file of the process
    address_connections_most: int = 200  # of them from one address (of IPv6: one /64); without behind_tls only
    head_seconds: int = 10  # for a request to say what it wants
    body_seconds: int = 60  # for the rest of it
    answer_seconds: int = 120  # for the answer to be made and read
    job_reports: int = 500  # reports sent to the server at once
    look_every_ms: int = 1_000  # how often rounds are looked at
    timeout_seconds: int = 30  # for the other party's answer
    tolerance_seconds: int = 60  # by which the other party's clock may differ from ours
    drain_seconds: int = 0  # from a wish to end, which /readyz tells load balancers, until nobody new is let in

    def __post_init__(self) -> None:
        for each in fields(self):
            least = 0 if each.name in ("commit_wait_ms", "drain_seconds") else 1
            expect.whole(f"pace.{each.name}", getattr(self, each.name), at_least=least)


@dataclass(frozen=True)
class PartySettings:
    """A party's settings; secrets are read already, and never shown."""

    party: Party
    listen: ListenSettings
    gathered: str
    ledger: str
    witness: str | None
    questions: Path | None
    keep_days: int
    other: OtherParty
    pace: ServicePace
    secrets: Mapping[str, bytes] = field(repr=False)
    billing: BillingSettings | None = None
    operations: OperationsSettings = field(default_factory=OperationsSettings)
    openrtb: OpenRtbSettings | None = None
    statistics: StatisticsSettings | None = None

    @property
    def is_demonstration(self) -> bool:
        """Whether the market is made up, and this very machine alone is answered: messages are shown to nobody
        else."""
        is_near = is_loopback(self.listen.host) and not self.listen.behind_tls
        return is_near and self.billing is not None and self.billing.synthetic


def settings_path(party: Party, given: Path | None) -> Path:
    """The settings file: as given, or as the environment names it."""
    if given is not None:
        return given
    named = os.environ.get(VARIABLES[party], "")
    if not named:
        raise BadInput(f"expected a settings file, or its path in {VARIABLES[party]}, got neither")
    return Path(named)


def load_settings(path: Path, party: Party) -> PartySettings:
    """Settings and the secrets they name; refuses unknown keys, and secrets that others may read."""
    with error_prefix(str(path)):
        return _parse(_said_by_environment(read_toml(path, "settings")), party, path.resolve().parent)


VARIABLE = re.compile(r"env:([A-Z][A-Z0-9_]{0,99})")


def _said_by_environment(record: Any, name: str = "") -> Any:
    """The same record, texts "env:NAME" as the environment says them; a whole number where it spells one."""
    if isinstance(record, Mapping):
        under = f"{name}." if name else ""
        return {key: _said_by_environment(value, f"{under}{key}") for key, value in record.items()}
    if not isinstance(record, str) or not record.startswith("env:"):
        return record
    found = VARIABLE.fullmatch(record)
    value = "" if found is None else os.environ.get(found[1], "")
    if not value:
        wanted = "env:NAME of capital letters" if found is None else f"the variable {found[1]} to be set"
        raise BadInput(f"{name}: expected {wanted}, got {'another text' if found is None else 'none'}")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 16 else value


def _parse(record: Mapping[str, Any], party: Party, folder: Path) -> PartySettings:
    ConfigTable(record, "", TOP)
    _refuse_others(record, party)
    store = ConfigTable.under(record, "store", STORE[party], folder)
    secrets = ConfigTable.under(record, "secrets", SECRETS[party], folder)
    pace = ConfigTable.under(record, "pace", [each.name for each in fields(ServicePace)], folder).everything()
    listen = _listen(ConfigTable.under(record, "listen", LISTEN, folder))
    if listen.behind_tls and "address_connections_most" in pace:
        raise BadInput(
            "pace.address_connections_most: expected no such key with behind_tls = true, got one: every "
            "connection then has the reverse proxy's address, and it has to limit those of others"
        )
    witness = store.optional_file("witness")
    if witness is None and store.place("ledger").startswith("postgresql"):
        raise BadInput("store.witness: expected a path, which a ledger in PostgreSQL needs, got no such key")
    places = {f"store.{key}": store.place(key) for key in ("gathered", "ledger")}
    return PartySettings(
        party=party,
        listen=listen,
        gathered=places["store.gathered"],
        ledger=places["store.ledger"],
        witness=None if witness is None else str(witness),
        questions=store.file("questions") if party is Party.PROXY else None,
        keep_days=store.whole("keep_days", at_most=36_500, default=KEEP_DAYS),
        other=_other(ConfigTable.under(record, "other", OTHER, folder)),
        pace=ServicePace(**pace),
        secrets={key: read_secret_file(f"secrets.{key}", secrets.file(key)) for key in SECRETS[party]},
        billing=read_billing(record, party, folder, others=places, behind_tls=listen.behind_tls),
        operations=read_operations(record, folder, behind_tls=listen.behind_tls, read_secret=read_secret_file),
        openrtb=_openrtb(record, party, folder),
        statistics=_statistics(record, party, folder),
    )


def _openrtb(record: Mapping[str, Any], party: Party, folder: Path) -> OpenRtbSettings | None:
    if party is not Party.SERVER and "openrtb" in record:
        raise BadInput("openrtb: expected no such table of a proxy, got one")
    return read_openrtb(record, folder, read_secret=read_secret_file, check_url=check_url)


def _statistics(record: Mapping[str, Any], party: Party, folder: Path) -> StatisticsSettings | None:
    if party is Party.PROXY and "statistics" in record:
        raise BadInput("statistics: expected no such table in a proxy's settings, got one: the server asks")
    return read_statistics(record, folder)


def _refuse_others(record: Mapping[str, Any], party: Party) -> None:
    if (found := _owner(record)) not in (None, party):
        raise BadInput(f"expected a {party}'s settings, got a {found}'s")


def _owner(record: Mapping[str, Any]) -> Party | None:
    """Whose settings these are, by the secret that only one of the parties has."""
    secrets = record.get("secrets")
    for party, own in ((Party.PROXY, "enrolment"), (Party.SERVER, "operator")):
        if isinstance(secrets, Mapping) and own in secrets and secrets.keys() <= set(SECRETS[party]):
            return party
    return None


def load_either_settings(path: Path) -> PartySettings:
    """Settings of whichever party they are of."""
    with error_prefix(str(path)):
        party = _owner(read_toml(path, "settings"))
    return load_settings(path, party or Party.PROXY)


def _listen(section: ConfigTable) -> ListenSettings:
    certificate, private_key = section.optional_file("certificate"), section.optional_file("private_key")
    if (certificate is None) != (private_key is None):
        raise BadInput("listen: expected certificate and private_key, or neither, got one of them")
    if certificate is not None and private_key is not None:
        _refuse_readable_by_others("listen.private_key", private_key)
        check_readable("listen.certificate", certificate)
        with _pem("listen.certificate", certificate):
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, private_key)
    host, behind_tls = section.text("host", "127.0.0.1"), section.flag("behind_tls")
    if behind_tls and certificate is not None:
        raise BadInput("listen: expected behind_tls = true or a certificate, got both")
    if certificate is None and not behind_tls and not is_loopback(host):
        raise BadInput(
            f"listen.host: expected a certificate and private_key to listen on {host}, or behind_tls = true "
            "where a reverse proxy in front of it speaks TLS, got neither"
        )
    return ListenSettings(host, section.whole("port", at_most=65_535), certificate, private_key, behind_tls)


def _other(section: ConfigTable) -> OtherParty:
    trust = section.optional_file("trust")
    if trust is not None:
        check_certificate("other.trust", trust)
    return OtherParty(check_url("other.url", section.text("url")), trust)


def check_certificate(name: str, path: Path) -> None:
    """Refuse what is no certificate, before anybody is called."""
    check_readable(name, path)
    with _pem(name, path):
        ssl.create_default_context(cafile=str(path))


@contextmanager
def _pem(name: str, path: Path) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError:
        raise BadInput(
            f"{name}: expected a certificate (and its own key) in PEM at {path}, got others"
        ) from None


def read_secret_file(name: str, path: Path) -> bytes:
    """A secret of 32 bytes, as 64 hexadecimal digits in a file that only its owner may read."""
    _refuse_readable_by_others(name, path)
    try:
        secret = bytes.fromhex(path.read_text().strip())
    except ValueError:  # what is in the file must not be repeated
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise BadInput(f"{name}: expected {2 * SECRET_BYTES} hexadecimal digits in {path}, got another text")
    return secret


def _refuse_readable_by_others(name: str, path: Path) -> None:
    mode = check_readable(name, path)
    if mode & OTHERS_MODE:
        raise BadInput(
            f"{name}: expected a file that only its owner may read (chmod 600), got mode "
            f"{mode & 0o777:o} at {path}"
        )


def check_readable(name: str, path: Path) -> int:
    """The mode of a file that is there and can be read."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_mode
    except OSError as problem:
        raise BadInput(f"{name}: expected a file at {path}, got {(problem.strerror or '').lower()}") from None


PARTIES_FILE = "parties.toml"


@dataclass(frozen=True)
class KnownParty:
    """One party, as others know it."""

    url: str
    public_key: bytes
    trust: Path | None
    signing_key: bytes | None = None


@dataclass(frozen=True)
class Parties:
    proxy: KnownParty
    server: KnownParty


def load_parties(path: Path | str) -> Parties:
    """Both parties as everybody may know them, from a parties.toml; devices and operators read it."""
    path = expect.path("path", path)
    with error_prefix(str(path)):
        record, folder = read_toml(path, "settings"), path.resolve().parent
        ConfigTable(record, "", ("proxy", "server"))
        return Parties(*(_known_party(record, name, folder) for name in ("proxy", "server")))


def _known_party(record: dict[str, object], name: str, folder: Path) -> KnownParty:
    section = ConfigTable.under(record, name, ("url", "public_key", "signing_key", "trust"), folder)
    key = read_public_key(section, "public_key")
    signing = read_public_key(section, "signing_key") if "signing_key" in section else None
    trust = section.optional_file("trust")
    if trust is not None:
        check_certificate(f"{name}.trust", trust)
    return KnownParty(check_url(f"{name}.url", section.text("url")), key, trust, signing)
