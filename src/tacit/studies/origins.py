"""Whether what a study ran on was made up, by the marks that made-up data carries: files may be made up too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tacit.studies.logs import ENDINGS
from tacit.studies.study import Asked


def made_up(asked: Asked, used: Sequence[Path] | None = None) -> bool:
    """Without files of its own a study makes its data up. Else all that it used must carry the mark: files, or
    folders of prepared columns; where a study does not say what it used, all data in the folder."""
    if asked.data is None:
        return True
    found = _data_in(asked.data) if used is None else used
    return bool(found) and all(_marked(place) for place in found)


def _data_in(folder: Path) -> list[Path]:
    return [place for place in folder.iterdir() if place.name.endswith(ENDINGS) or _is_prepared(place)]


def _marked(place: Path) -> bool:
    from tacit.data.columns import Columns
    from tacit.data.synthetic import is_synthetic

    return Columns.open(place).synthetic if _is_prepared(place) else is_synthetic(place)


def _is_prepared(place: Path) -> bool:
    from tacit.data.columns import MANIFEST

    return (place / MANIFEST).is_file()
