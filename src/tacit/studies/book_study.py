"""A study as a section of the book: figure, table, verdicts, settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.errors import BadInput
from tacit.pages import Block, Cell, Code, Details, Figure, Prose, Ruling, Section, Table, Verdict, Verdicts
from tacit.pages.drawings import inlined
from tacit.studies.claims import Heard, Judged, Read
from tacit.studies.results import Kept, columns_of_figures
from tacit.studies.study import Claim, Study

MOST_LETTERS = 200  # of a setting: a long list says no more than its beginning


def study_section(read: Read, folder: Path) -> Section:
    """With figure and table where the folder has them; else how to make them."""
    return Section(read.study.title, [Prose(_shows(read.study)), *_results(read, folder)], id=read.study.name)


def ruling_id(study: Study, claim: Claim) -> str:
    """Where a study's verdict on a claim is."""
    return f"{study.name}-{claim.id.lower()}"


def _shows(study: Study) -> str:
    """What a study's own module says that it is, and where the paper has it."""
    module = sys.modules.get(getattr(study.run, "__module__", ""))
    about = " ".join((getattr(module, "__doc__", None) or "").split("\n\n")[0].split())
    return f"{about} `{study.name}`, {study.place}.".strip()


def _results(read: Read, folder: Path) -> list[Block]:
    failed = f" It could not be made this time: {read.failed}." if read.failed else ""
    if read.stale:
        what = "Its results cannot be read" if read.kept is None else "Its table is not what this version reads"
        return [Prose(f"{what}: {read.stale}.{failed} This makes it again:"), Code(read.command)]
    if read.kept is None:
        claims = f" It speaks to {_listed(read.study.claims)}." if read.study.claims else ""
        return [Prose(f"Not run here.{claims}{failed} This makes it:"), Code(read.command)]
    earlier = f"Not made again this time: {read.failed}. These are results of an earlier run."
    return [
        *([Prose(earlier)] if read.failed else []),
        *_figure(read, read.kept, folder),
        *_table(read.kept),
        *_verdicts(read),
        _settings(read, read.kept),
    ]


def drawing(kept: Kept, folder: Path) -> str | None:
    """The figure in a folder, None if it has none; refused by its name if a page could not hold it."""
    place = folder / f"{kept.settings['name']}.svg"
    content = kept.figure(place)
    if content is None:
        return None
    try:
        svg = content.decode()
        inlined(svg, "")
    except UnicodeDecodeError:
        raise BadInput(f"{place}: expected a figure in UTF-8, got other bytes") from None
    except BadInput as problem:
        raise BadInput(f"{place}: {problem}") from None
    return svg


def _figure(read: Read, kept: Kept, folder: Path) -> list[Block]:
    """A figure that cannot be shown takes nothing from the table, which the verdicts are of."""
    try:
        svg = drawing(kept, folder)
    except (BadInput, OSError) as problem:
        return [Prose(f"Its figure cannot be shown: {problem}. This makes it again:"), Code(read.command)]
    data = "Synthetic data. " if kept.settings["synthetic"] else ""
    return [] if svg is None else [Figure(svg, f"{data}The figures are in `{read.study.name}.csv`.")]


def _note(kept: Kept) -> str:
    """What the data was. Made-up data is called so, whatever the study itself says."""
    note = str(kept.settings.get("shown", {}).get("note") or kept.words)
    return note if not kept.settings["synthetic"] or "synthetic" in note else f"{note} (synthetic)"


def _table(kept: Kept) -> list[Table]:
    shown = kept.settings.get("shown")
    if not shown:
        return []
    columns, rows = shown["columns"], shown["rows"]
    return (
        [Table(columns, rows, numbers=columns_of_figures(columns, rows), caption=_note(kept))] if rows else []
    )


def _verdicts(read: Read) -> list[Verdicts]:
    """By claim, in the order in which they were judged."""
    heard = [Heard(read, finding) for finding in read.findings]
    claims = {each.finding.claim.id: each.finding.claim for each in heard}
    rulings = [
        _ruling(Judged(claim, [each for each in heard if each.finding.claim.id == name], ()))
        for name, claim in claims.items()
    ]
    return [Verdicts(rulings)] if rulings else []


def _ruling(judged: Judged) -> Ruling:
    claim = judged.claim
    facts: list[tuple[str, Cell]] = []
    for rule, found in judged.by_rule:
        facts.append(("rule", rule))
        facts += [(judged.mark(each), each.words) for each in found]
    against = ("against", claim.place) if claim.ours else ("published", f"{claim.published} ({claim.place})")
    name = ruling_id(judged.heard[0].read.study, claim)
    return Ruling(claim.id, claim.words, Verdict(judged.verdict), [*facts, against], id=name)


def _settings(read: Read, kept: Kept) -> Details:
    of = kept.settings
    rows = [
        ("data", f"{'synthetic, ' if of['synthetic'] else ''}{of['data']}"),
        ("unit and relation", f"{of['unit']}, {of['relation']}"),
        ("seeds", _spelled(of["seeds"])),
        *((name.replace("_", " "), _spelled(value)) for name, value in sorted(of["parameters"].items())),
        ("minutes", f"{of['minutes']:g}"),
        ("tacit", str(of["code_version"])),
    ]
    return Details("Settings and command", [Code(read.command), Table(("setting", "value"), rows)])


def _spelled(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(each, int | float | str) for each in value):
        text = ", ".join(map(str, value))
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]} ..."


def _listed(claims: Sequence[Claim]) -> str:
    return ", ".join(claim.id for claim in claims)
