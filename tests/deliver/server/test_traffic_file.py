"""Counts in CSV: what is read, and what is refused with its line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.deliver.server.cohorts import Traffic
from tacit.deliver.server.traffic_file import read_traffic
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Lattice, Sequence, parse_hierarchy
from tacit.schema.contexts.tree import Tree


def read(folder: Path, text: str, hierarchy: Sequence | Lattice | None = None) -> Traffic:
    (folder / "counts.csv").write_text(text)
    return read_traffic(folder / "counts.csv", hierarchy)


def told(traffic: Traffic) -> dict[str, float]:
    return {str(node): traffic.per_day[name] for name, node in traffic.nodes.items()}


def test_columns_become_coarser_from_the_last_on(tmp_path: Path) -> None:
    traffic = read(
        tmp_path, "city,topic,count\nBerlin,Coffee,10\nBerlin,Yoga,5.5\n\nParis,Coffee,2\nParis,Coffee,1\n"
    )
    assert told(traffic) == {
        "city Berlin · topic Coffee": 10, "city Berlin · topic Yoga": 5.5, "city Paris · topic Coffee": 3,
        "city Berlin": 15.5, "city Paris": 3, "anything": 18.5,
    }  # fmt: skip


def test_a_hierarchy_says_how_contexts_become_coarser(tmp_path: Path) -> None:
    record = {
        "attribute": [
            {"name": "place", "decimals": ["exact", 1]},
            {"name": "topic", "paths": ["Food > Coffee", "Food > Tea"]},
        ],
        "sequence": {"steps": [[0, 0], [1, 0], [1, 1]]},
    }
    hierarchy = parse_hierarchy(record, tmp_path)
    text = 'count,topic,place\n10,Coffee,"52.52,13.4"\n4,Tea,"52.53,13.41"\n'
    traffic = read(tmp_path, "\ufeff" + text, hierarchy)
    assert told(traffic) == {
        "place 52.52,13.4 · topic Coffee": 10, "place 52.53,13.41 · topic Tea": 4,
        "place 52.5,13.4 · topic Coffee": 10, "place 52.5,13.4 · topic Tea": 4,
        "place 52.5,13.4 · topic Food": 14, "anything": 14,
    }  # fmt: skip


def test_counts_of_several_days_are_of_one(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text("city,count\nBerlin,70\n")
    assert read_traffic(tmp_path / "counts.csv", days=7).total == 10


CITY = Sequence((Steps("city", Tree.of_paths(["Berlin", "Paris"])),), [(0,)])


A_NUMBER = "expected a number of requests"
BAD = [
    ("", None, "expected a first line with the columns' names, one of them count, got none"),
    ("city,count\n", None, "expected at least one line of counts, got none"),
    ("city,topic\nA,B\n", None, "expected a column count beside those of contexts, got city, topic"),
    ("count\n5\n", None, "expected a column count beside those of contexts, got count"),
    ("city,city,count\na,b,1\n", None, "column city: expected it once, got it 2 times"),
    ("city,,count\na,b,1\n", None, "expected a name above each column, got none above one"),
    ("city,count\nBerlin,5\nParis\n", None, "line 3: expected 2 fields, got 1"),
    ("city,count\nBerlin,5,6\n", None, "line 2: expected 2 fields, got 3"),
    ("city,count\nBerlin,5\nParis,many\n", None, f"line 3: column count: {A_NUMBER}, got 'many'"),
    ("city,count\nBerlin,-5\n", None, f"line 2: column count: {A_NUMBER}, got '-5'"),
    ("city,count\nBerlin,nan\n", None, f"line 2: column count: {A_NUMBER}, got 'nan'"),
    ("city,count\nBerlin,1e300\n", None, f"line 2: column count: {A_NUMBER}, got '1e300'"),
    ("city,count\nBerlin,5\n ,6\n", None, "line 3: column city: expected a value, got ''"),
    ("city,count\n*,5\n", None, "line 2: column city: expected a value, got '*'"),
    ("town,count\nBerlin,5\n", CITY, "column town: expected one of city, count, got another"),
    ("count\n5\n", CITY, "column city: expected the hierarchy's attribute, got no such column"),
    ("city,count\nBerlin,5\nRome,6\n", CITY,
     "line 3: city: expected a node of its tree, got a value that is not in it"),
    ('city,count\n"Berlin,5\n', None, "expected counts in CSV, got something else"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "hierarchy", "words"), BAD)
def test_refusals_name_line_and_column(
    text: str, hierarchy: Sequence | None, words: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as refusal:
        read(tmp_path, text, hierarchy)
    assert str(refusal.value) == f"{tmp_path / 'counts.csv'}: {words}"


def test_other_files_and_lattices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected counts in CSV, got none"):
        read_traffic(tmp_path / "nothing.csv")
    (tmp_path / "counts.csv").write_bytes(b"city,count\n\xff\xfe,5\n")
    with pytest.raises(BadInput, match="expected counts in CSV, got something else"):
        read_traffic(tmp_path / "counts.csv")
    with pytest.raises(BadInput, match=r"expected a hierarchy with \[sequence\]"):
        read_traffic(tmp_path / "counts.csv", Lattice(CITY.attributes))
