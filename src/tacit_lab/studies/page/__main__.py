"""Writes the page's figures to where the page is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tacit
from tacit.files import write_atomically
from tacit_lab.studies.page.cleanroom import cleanroom_data
from tacit_lab.studies.page.frontier import frontier_data

FOLDER = Path(tacit.__file__).parent / "services" / "page" / "web" / "data"
FILES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "frontier.json": frontier_data,
    "cleanroom.json": cleanroom_data,
}


def main() -> None:
    for name, make in FILES.items():
        text = json.dumps(make(), indent=1, ensure_ascii=False) + "\n"
        write_atomically(FOLDER / name, text.encode(), durable=False)
        print(FOLDER / name)


if __name__ == "__main__":
    main()
