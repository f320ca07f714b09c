"""HAProxy on this machine before two workers, with the configuration of deploy/compose but for addresses."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from pathlib import Path

from tests.support.repository import ROOT
from tests.support.service_certificates import a_certificate
from tests.support.service_processes import PATIENCE_SECONDS, free_ports

CONFIGURATION = ROOT / "deploy" / "compose" / "haproxy.cfg"


def adapted(text: str, folder: Path, plain: int, secured: int, relayed: int, workers: list[str]) -> str:
    """The same on loopback: three ports, of which one is plain for parties that have no certificates here, and
    one takes the word of whoever calls for their address (the PROXY protocol); the workers' addresses, and a
    socket on which it says what it knows."""
    bind = re.search(r"^    bind :8472 ssl crt (\S+)", text, re.MULTILINE)
    assert bind is not None
    secure = f"    bind 127.0.0.1:{secured} ssl crt {folder / 'server.crt'}"
    others = f"    bind 127.0.0.1:{plain}\n    bind 127.0.0.1:{relayed} accept-proxy\n"
    text = text.replace(bind[0], others + secure)
    for place, worker in enumerate(workers, start=1):
        found = f"server ads-{place} ads-{place}:8472\n"
        assert text.count(found) == 2
        text = text.replace(found, f"server ads-{place} {worker.removeprefix('http://')}\n")
    text = text.replace("inter 2s", "inter 50ms")
    return text.replace("global\n", f"global\n    stats socket {folder / 'told'} level admin\n")


class Haproxy:
    """The process; ended by its id."""

    def __init__(self, program: str, folder: Path, port: int, workers: list[str]) -> None:
        self.folder, self.refused = folder, list[str]()
        self.secured, self.relayed = free_ports(2)
        self._names = {f"ads-{place}": worker for place, worker in enumerate(workers, start=1)}
        a_certificate(folder / "server.crt", folder / "server.crt.key")
        configuration = folder / "haproxy.cfg"
        text = CONFIGURATION.read_text()
        configuration.write_text(adapted(text, folder, port, self.secured, self.relayed, workers))
        self._process = subprocess.Popen(
            [program, "-db", "-f", configuration], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        end = time.monotonic() + PATIENCE_SECONDS
        while not (folder / "told").exists():
            assert self._process.poll() is None, self._process.communicate()
            assert time.monotonic() < end, "HAProxy did not begin"
            time.sleep(0.02)

    def command(self, text: str) -> str:
        """What it says to an operator's command."""
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(str(self.folder / "told"))
            asked.sendall(f"{text}\n".encode())
            return b"".join(iter(lambda: asked.recv(65_536), b"")).decode()

    def _statistics(self) -> list[list[str]]:
        return [line.split(",") for line in self.command("show stat").splitlines() if line]

    def ready(self) -> set[str]:
        """The workers that are up by /readyz."""
        rows = self._statistics()
        status = rows[0].index("status")
        return {
            self._names[row[1]]
            for row in rows
            if row[0] == "ready" and row[1] in self._names and row[status].startswith("UP")
        }

    def end(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=PATIENCE_SECONDS)
