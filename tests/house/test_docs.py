"""The README and the docs do what they show: their Python and console blocks run, in order, page by page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tests.support.shown_pages import PageRun, WrongPage, agrees, blocks_of, commands_of

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
LANGUAGES = {"python", "text", "console", "toml", "csv", "py"}
"""`py` is Python that needs what is not installed here; `test_comparison.py` says where it may stand."""
UNTESTED_COMMAND = re.compile(r"^ {4,}(?:\$ )?tacit \S|\btacit\.cli\b", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_on_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    PageRun().follow(page.read_text())


def test_a_page_in_processes_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a reader types it: what runs in this process elsewhere is the same in one per command."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "contexts.md").read_text()
    assert "console" in {block.language for block in blocks_of(page)}
    PageRun(real=True).follow(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_shown_as_a_shell_shows_them(page: Path) -> None:
    """In console blocks, which run; not indented, not called from Python, not in another language."""
    text = page.read_text()
    found = blocks_of(text)
    assert len(found) == len(re.findall(r"^ *```\w", text, re.MULTILINE)), (
        "a fence that is not closed as it was opened"
    )
    assert {block.language for block in found} <= LANGUAGES
    assert all(commands_of(block) for block in found if block.language == "console")
    for block in found:
        if block.language == "console":
            text = text.replace(block.text, "")
    assert UNTESTED_COMMAND.findall(text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


GOOD = """\
A schema in `contexts.toml`:

```toml contexts.toml
[[attribute]]
name = "activity"
paths = ["Sport > Yoga", "Eating > Lunch"]
[lattice]
```

```console
$ tacit contexts contexts.toml
...
$ tacit contexts \\
    contexts.toml activity=Yoga --json  # for machines
{
...
  "...": ...
...
$ tacit contexts contexts.toml activity=Chess
tacit contexts: activity: expected ..., got a value that is not in it
$ echo $?
2
```

```python
from pathlib import Path

print(len(Path("contexts.toml").read_text()) > 9)
```

```text
True
```
"""


def test_a_page_that_shows_what_happens_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    PageRun().follow(GOOD)
    PageRun(real=True).follow(GOOD)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("contexts.toml\n...\n", "contexts.toml\nno such output\n"),  # a wrong output
        ("contexts.toml\n...\n", "contexts.toml\n...\nno such last line\n"),
        ("$ tacit contexts contexts.toml\n", "$ tacit contexts missing.toml\n"),  # a failing command
        ("$ tacit contexts contexts.toml\n", "$ tacit context contexts.toml\n"),  # no such command of tacit
        ("$ tacit contexts contexts.toml\n", "$ tacitus contexts contexts.toml\n"),  # an unknown command
        ("$ echo $?\n2\n", ""),  # a failure that is not shown
        ("$ echo $?\n2\n", "$ echo $?\n1\n"),  # another exit code
        ("$ echo $?\n2\n", "$ echo $?\n"),
        ("activity=Chess\ntacit", "activity=Yoga\ntacit"),  # a success where a failure is shown
        (
            "$ tacit contexts contexts.toml\n",
            "$ tacit serve proxy contexts.toml &\n",
        ),  # a service that does not start
        ("A schema in `contexts.toml`", "A schema"),  # a file that the reader is not told about
        ('name = "activity"', 'name = "sport"'),  # another file than the commands read
        ("True\n", "False\n"),  # a wrong output of Python
    ],
)
def test_a_page_that_shows_something_else_is_caught(
    old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert old in GOOD
    with pytest.raises(WrongPage):
        PageRun().follow(GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\n...\nz\n", "a\nz\n", True),
        ("a\n...\nz\n", "a\nb\nc\nz\n", True),
        ("a\n...\nz\n", "a\nb\n", False),
        ("took ... s\n", "took 1.5 s\n", True),
        ("took ... s\n", "took 1.5\n s\n", False),
        ("a.b\n", "axb\n", False),
        ("\na   \n\nb\n", "a\n\nb\n\n", True),
        ("a\n", "a\nb\n", False),
        ("a\nb\n", "a\n", False),
        (" a\n", "a\n", False),
    ],
)
def test_an_ellipsis_stands_for_what_varies_and_nothing_else_does(shown: str, printed: str, same: bool) -> None:
    assert agrees(shown, printed) is same
