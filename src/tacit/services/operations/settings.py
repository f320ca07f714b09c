"""Tables of a party's settings for those who run it: none of them changes what is promised to anybody.

    [metrics]                            # what Prometheus reads at /metrics
    host = "127.0.0.1"                   # with port: answered there, and no longer by the service itself
    port = 9471
    secret = "metrics.secret"            # 64 hexadecimal digits; callers from elsewhere show them as a bearer's

    [log]
    form = "json"                        # a line is one JSON object; without: "text"

Without [metrics] the service answers /metrics to callers on this machine, and to nobody where a reverse proxy
stands in front of it (behind_tls): everybody's requests come from this machine then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.config import ConfigTable
from tacit.errors import BadInput
from tacit.services.connection_limits import is_loopback

TABLES = ("metrics", "log")
METRICS = ("host", "port", "secret")
FORMS = ("text", "json")


@dataclass(frozen=True)
class MetricsSettings:
    """Who may read figures, and where: `local` callers on this machine, and who shows the secret."""

    local: bool = True
    secret: bytes | None = field(default=None, repr=False)
    host: str = "127.0.0.1"
    port: int | None = None


@dataclass(frozen=True)
class OperationsSettings:
    metrics: MetricsSettings = MetricsSettings()
    log_form: str = "text"


def read_operations(
    record: Mapping[str, Any], folder: Path, *, behind_tls: bool, read_secret: Callable[[str, Path], bytes]
) -> OperationsSettings:
    """The tables [metrics] and [log]; any of them may be missing."""
    log = ConfigTable.under(record, "log", ("form",), folder)
    return OperationsSettings(
        _read_metrics(ConfigTable.under(record, "metrics", METRICS, folder), behind_tls, read_secret),
        log.one_of("form", FORMS, "text"),
    )


def _read_metrics(
    table: ConfigTable, behind_tls: bool, read_secret: Callable[[str, Path], bytes]
) -> MetricsSettings:
    if ("host" in table) and "port" not in table:
        raise BadInput("metrics.port: expected a port beside metrics.host, got no such key")
    port = table.whole("port", at_most=65_535) if "port" in table else None
    path, host = table.optional_file("secret"), table.text("host", "127.0.0.1")
    if path is None and not is_loopback(host):
        raise BadInput(f"metrics.secret: expected a file where metrics.host is {host}, got no such key")
    return MetricsSettings(
        # A listener of its own is no reverse proxy's.
        local=port is not None or not behind_tls,
        secret=None if path is None else read_secret("metrics.secret", path),
        host=host,
        port=port,
    )
