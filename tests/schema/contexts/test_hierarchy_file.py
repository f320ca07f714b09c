"""Hierarchies from TOML files and trees from CSV files beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.errors import BadInput
from tacit.schema.contexts import hierarchy as reading
from tacit.schema.contexts.attributes import Decimals, MetreCells, SetOf, Steps
from tacit.schema.contexts.hierarchy import HARDT_NATH_STEPS, Lattice, Sequence
from tacit.schema.contexts.tree import Tree

CSV = "node,parent\nFood,*\nCoffee,Food\nTea,Food\n"
PLACE = '[[attribute]]\nname = "location"\ndecimals = ["exact", 4, 3, 2, 1, 0]\n'
INTEREST = '[[attribute]]\nname = "interest"\ntree = "kinds.csv"\nmost = 3\n'
QUERY = '[[attribute]]\nname = "query"\npaths = ["Food > Coffee > Starbucks", "Food > Tea"]\n'
STEPS = f"[sequence]\nsteps = {[list(each) for each in HARDT_NATH_STEPS]}\n"
KINDS = Tree.of({"Food": "*", "Coffee": "Food", "Tea": "Food"})


def write(folder: Path, text: str, tree: str = CSV) -> Path:
    (folder / "kinds.csv").write_text(tree, encoding="utf-8")
    path = folder / "contexts.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_papers_hierarchy_in_a_file(tmp_path: Path) -> None:
    expected = Sequence(
        (
            Decimals("location"),
            SetOf(Steps("interest", KINDS), 3),
            Steps("query", Tree.of_paths(["Food>Coffee>Starbucks", "Food>Tea"])),
        ),
        HARDT_NATH_STEPS,
    )
    assert reading.load_hierarchy(write(tmp_path, PLACE + INTEREST + QUERY + STEPS)) == expected


def test_the_example_in_the_documentation_is_read(tmp_path: Path) -> None:
    example = (reading.__doc__ or "").split("\n\n", 1)[1].split("Unknown keys")[0]
    (tmp_path / "businesses.csv").write_text(CSV)
    hierarchy = reading.load_hierarchy(write(tmp_path, example))
    assert [each.name for each in hierarchy.attributes] == ["location", "interest", "query"]
    assert hierarchy.levels()[-1] == (6, 2, 3)


def test_a_lattice_of_cells_and_a_tree_by_parents(tmp_path: Path) -> None:
    text = """
    [[attribute]]
    name = "location"
    metres = ["exact", 100, 500]
    [[attribute]]
    name = "query"
    parent = { All = "", Food = "All", Coffee = "Food", "Ice skating" = "All" }
    depths = [2, 1]
    [lattice]
    finest = [1, 0]
    coarsest = [2, 1]
    """
    tree = Tree.of({"All": None, "Food": "All", "Coffee": "Food", "Ice skating": "All"})
    attributes = (MetreCells("location", (None, 100, 500)), Steps("query", tree, (2, 1)))
    assert reading.load_hierarchy(write(tmp_path, text)) == Lattice(attributes, ((1, 0), (2, 1)))
    whole = text.split("finest")[0]
    assert reading.load_hierarchy(write(tmp_path, whole)) == Lattice(attributes)


@pytest.mark.parametrize("text", [CSV, "\ufeff" + CSV, CSV.replace("\n", "\r\n"), "parent , x\n"])
def test_csv_files_as_spreadsheets_write_them(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kinds.csv"
    path.write_bytes(text.encode())
    if "x" in text:
        with pytest.raises(BadInput, match="expected the columns node and parent, got no node"):
            reading.read_tree(path)
    else:
        assert reading.read_tree(path) == KINDS


PLAIN = PLACE + "[lattice]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLAIN.replace("decimals", "decimal"), "attribute 1.decimal: expected one of name, decimals, "),
        (PLAIN.replace("decimals", "decimal"), "got the unknown key 'decimal': did you mean 'decimals'?"),
        (PLAIN.replace("[lattice]", "[latice]"), "got the unknown key 'latice': did you mean 'lattice'?"),
        (PLACE + "[sequence]\nstep = []", "sequence.step: expected one of steps, got the unknown key 'step'"),
        (PLACE + "[sequence]", "sequence.steps: expected a list of levels, got no such key"),
        (PLACE, "expected either [sequence] or [lattice], got both or neither"),
        (PLAIN + "[sequence]\nsteps = [[0]]", "expected either [sequence] or [lattice], got both or neither"),
        ("[lattice]", "attribute: expected at least one table [[attribute]], got none"),
        ("attribute = [3]\n[lattice]", "attribute 1: expected a table, got 3"),
        ("lattice = 3\n" + PLACE, "lattice: expected a table, got 3"),
        (PLAIN.replace('"location"', "3"), "attribute 1: expected a name, a text in quotes, got 3"),
        (
            PLAIN.replace("decimals", "metres = [1]\ndecimals"),
            "attribute location: expected one of decimals, metres",
        ),
        (
            PLAIN.replace("[lattice]", "most = 3\n[lattice]"),
            "attribute location: expected most only with a tree",
        ),
        (PLAIN.replace('"exact", 4', '4, "exact"'), "location: decimals to have the exact place first"),
        (
            PLAIN.replace('["exact", 4, 3, 2, 1, 0]', "4"),
            "location: decimals to be a list that is not empty, got 4",
        ),
        (PLAIN.replace('"exact"', '"4"'), "each of location: decimals to be a whole number >= 0, got '4'"),
        (
            QUERY.replace("paths = ", "paths = 3 #") + "[lattice]",
            "attribute query: paths: expected a list such as",
        ),
        (
            QUERY.replace("paths = ", "parent = 3 #") + "[lattice]",
            "attribute query: parent: expected a table such as",
        ),
        (
            QUERY.replace("paths = ", 'parent = {a = "b", b = "a"} #') + "[lattice]",
            "query: node 'a': expected a way up",
        ),
        (
            QUERY.replace("paths = ", 'tree = "kinds.parquet" #') + "[lattice]",
            "tree: expected the name of a .csv file",
        ),
        (
            QUERY.replace("paths = ", 'tree = "no.csv" #') + "[lattice]",
            "attribute query: no.csv: expected a tree, got",
        ),
        (QUERY + "depths = 3\n[lattice]", "expected query: depths to be a list of whole numbers, got 3"),
        (QUERY + 'most = "3"\n[lattice]', "expected query: most to be a whole number >= 1, got '3'"),
        (
            PLACE + "[sequence]\nsteps = [[0], [2], [1]]",
            "sequence: steps: expected each coarser in one attribute",
        ),
        (PLACE + "[sequence]\nsteps = 3", "sequence: steps: expected a list, got 3"),
        (PLAIN.replace('"exact", 4', "12"), "location: expected at most 9 decimals, got 12"),
        (
            QUERY + "depths = [4, 1]\n[lattice]",
            "attribute query: expected depths of at most 3, as deep as its tree",
        ),
        (PLAIN + "finest = 3", "lattice: finest: expected a list, got 3"),
        (PLAIN + "finest = [9]", "lattice: finest: expected a level of location from 0 to 6, got 9"),
        (PLAIN + 'coarsest = ["a"]', "lattice: expected each level of coarsest to be a whole number, got 'a'"),
        (
            PLAIN + "finest = [3]\ncoarsest = [1]",
            "lattice: finest and coarsest: expected finest and then coarser",
        ),
        (
            PLAIN.replace("[[attribute]]", "[attribute]"),
            "expected tables [[attribute]], in double brackets, got",
        ),
        (PLACE + PLAIN, "attribute 'location': expected it once, got it 2 times"),
        ("[lattice", "expected TOML, got"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_that_names_the_key(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(BadInput) as refusal:
        reading.load_hierarchy(path)
    assert said in str(refusal.value)
    assert str(refusal.value).startswith(f"{path}: ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            "node,parent\na,b\nb,c\nc,a\n",
            "kinds.csv: node 'a': expected a way up to a root, got the cycle a -> b -> c",
        ),
        (
            "node,parent\nFood,*\nTea,Fod\n",
            "kinds.csv: node 'Tea': expected its parent to be a node of the tree, got",
        ),
        ("node,parent\nFood,*\nFood,*\n", "kinds.csv: node 'Food': expected it once in the tree, got it twice"),
        ("node,parent\nFood,\nSport,\n", "kinds.csv: expected one root, got 2: 'Food', 'Sport'"),
        ("node,parent\nFood\n", "kinds.csv: line 2: expected a node and its parent, got too few fields"),
        ("parent,node\nFood\n", "kinds.csv: line 2: expected a node and its parent, got too few fields"),
        ("node,parent\nFood,*,\n", "kinds.csv: line 2: expected a node and its parent, got too many fields"),
        ("node,parent,node\na,*,b\n", "kinds.csv: expected the columns node and parent, got node twice"),
        ('node,parent\n"Food,*\n', "kinds.csv: expected CSV, got"),
        ("node;parent\n", "kinds.csv: expected the columns node and parent, got no node"),
        ("", "kinds.csv: expected the columns node and parent, got no node"),
    ],
)
def test_a_bad_tree_file_is_refused_by_its_name_and_node(tmp_path: Path, tree: str, said: str) -> None:
    with pytest.raises(BadInput) as refusal:
        reading.load_hierarchy(write(tmp_path, INTEREST + "[lattice]", tree))
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no.toml: expected a hierarchy of contexts here, got no such file"):
        reading.load_hierarchy(tmp_path / "no.toml")
