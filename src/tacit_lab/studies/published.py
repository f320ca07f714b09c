"""Published files in a folder, by the names under which they circulate."""

from __future__ import annotations

from pathlib import Path

from tacit.errors import BadInput

ENDINGS = (".parquet", ".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")


def published_file(data: Path, name: str) -> Path:
    """The file of a log in a folder of published files: NAME.csv, NAME.tsv.gz, NAME.parquet and so on; else the
    largest whose name begins so, as extracts do that are in circulation: criteo_search_219_partners.parquet."""
    if (exact := exact_file(data, name)) is not None:
        return exact
    start = f"{_plain(name)}-"
    alike = [each for each in _files_in(data) if _plain(each.name).startswith(start)]
    if not alike:
        raise BadInput(f"expected {name}.csv, .tsv, .txt (or .gz) or .parquet in {data}, got none of them")
    return max(alike, key=lambda each: (each.stat().st_size, each.name))


def exact_file(data: Path, name: str) -> Path | None:
    """The file of exactly this name; none if there is no such."""
    return next((each for ending in ENDINGS if (each := data / f"{name}{ending}").is_file()), None)


def has_file(data: Path, name: str) -> bool:
    """Whether `published_file` would find one."""
    try:
        published_file(data, name)
    except BadInput:
        return False
    return True


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _files_in(folder: Path) -> list[Path]:
    return [place for place in folder.iterdir() if place.is_file() and place.name.endswith(ENDINGS)]
