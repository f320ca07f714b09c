"""Where parties and devices reach each other: https, or this very machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from tacit.errors import BadInput


def url_of(name: str, spelled: str) -> str:
    """The URL without a slash at its end; plain http is refused for any machine but this one."""
    url = spelled.rstrip("/")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https") or parts.query or parts.fragment or "@" in url:
        raise BadInput(f"{name}: expected https://HOST:PORT, got another text")
    if parts.scheme == "http" and not is_here(host):
        raise BadInput(f"{name}: expected https:// for another machine, got http://")
    return url


def is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
