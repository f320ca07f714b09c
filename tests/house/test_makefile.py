"""`make` says what it installs before it does, how much and how long: a silent minute looks like a hang."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.repository import ROOT

INSTALLING = "pip install"


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("target", ["run", "dev", "bench"])
def test_every_install_is_announced_before_it_begins(target: str, tmp_path: Path) -> None:
    """In an environment that is there already, with `echo` in place of pip: nothing is installed."""
    (tmp_path / ".venv").touch()
    command = ["make", f"{tmp_path}/.{target}", f"VENV={tmp_path}", f"PIP_INSTALL=@echo {INSTALLING}"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    installs = [at for at, line in enumerate(said) if line.startswith(INSTALLING)]
    assert len(installs) == {"run": 2, "dev": 2, "bench": 3}[target]
    for at in installs:
        before = said[at - 1]
        assert not before.startswith(INSTALLING)
        assert " MB" in before
        assert "minute" in before
    assert any("torch" in said[at - 1] and "torch" in said[at] for at in installs)
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert INSTALLING not in again  # once
