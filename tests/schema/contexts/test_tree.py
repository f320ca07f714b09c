"""Trees of categories: what they tell about themselves, and how a bad one is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import BadInput
from tacit.schema.contexts.tree import Tree

FOOD = Tree.of({"All": None, "Food": "All", "Coffee": "Food", "Tea": "Food", "Sport": "All"})


def test_a_tree_knows_its_root_paths_depths_and_leaves() -> None:
    assert FOOD.root == "All"
    assert FOOD.height == 2
    assert FOOD.path("Tea") == ("Tea", "Food", "All")
    assert FOOD.parent("All") is None
    assert FOOD.children("Food") == ("Coffee", "Tea")
    assert FOOD.leaves() == ("Coffee", "Tea", "Sport")
    assert FOOD.leaves("Sport") == ("Sport",)
    assert [FOOD.depth(node) for node in FOOD.nodes] == [0, 1, 1, 2, 2]
    assert "Coffee" in FOOD
    assert "Cocoa" not in FOOD
    assert len(FOOD) == 5


def test_paths_hang_below_a_root_without_a_name() -> None:
    tree = Tree.of_paths(["Food > Coffee", "Food>Tea", "Sport"])
    assert tree == Tree.of({"Food": "*", "Coffee": "Food", "Tea": "Food", "Sport": "*"})
    assert tree.root == "*"


def test_the_order_of_lines_does_not_make_another_tree() -> None:
    assert Tree(reversed(FOOD.pairs)) == FOOD
    assert hash(Tree(reversed(FOOD.pairs))) == hash(FOOD)


def test_a_tree_may_be_as_deep_as_it_likes() -> None:
    deep = Tree.of({"0": None} | {str(i): str(i - 1) for i in range(1, 50_000)})
    assert deep.height == 49_999
    assert deep.leaves() == ("49999",)
    assert len(deep.path("49999")) == 50_000


@given(st.lists(st.integers(0, 30), max_size=30))
def test_parents_come_before_children_and_leaves_part_the_tree(above: list[int]) -> None:
    tree = Tree.of({"0": None} | {str(i): str(a % i) for i, a in enumerate(above, start=1)})
    place = {node: at for at, node in enumerate(tree.nodes)}
    for node in tree.nodes[1:]:
        assert place[str(tree.parent(node))] < place[node]
        assert node in tree.children(str(tree.parent(node)))
        assert tree.depth(node) == len(tree.path(node)) - 1
    for node in tree.nodes:
        below = [leaf for child in tree.children(node) for leaf in tree.leaves(child)]
        assert list(tree.leaves(node)) == (below or [node])


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("a", "c"), ("b", "a"), ("c", "b")], "got the cycle a -> c -> b -> a"),
        ([("top", None), ("x", "y"), ("y", "x"), ("z", "x")], "got the cycle x -> y -> x"),
        ([("a", "a")], "got the cycle a -> a"),
        (
            [("top", None), ("Coffee", "Fod")],
            "node 'Coffee': expected its parent to be a node of the tree, got 'Fod'",
        ),
        ([("top", None), ("a", "top"), ("a", "top")], "node 'a': expected it once in the tree, got it twice"),
        ([("top", None), ("peak", None)], "expected one root, got 2: 'top', 'peak'"),
        ([("top", None), ("a", "*")], "expected one root, got 2: '*', 'top'"),
        ([("top", None), ("*", "top")], "node '*': expected it to be the root, got a parent 'top'"),
        ([], "expected a tree of at least one node, got none"),
        ([("", None)], "expected the name of a node to be a text that is not empty"),
        ([(7, None)], "expected the name of a node to be a text that is not empty, got 7"),
        ([("a", 7)], "node 'a': expected its parent to be a text, got 7"),
    ],
)
def test_a_bad_tree_is_refused_in_one_line_that_names_the_node(pairs: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(BadInput) as refusal:
        Tree(pairs)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (
            ["Food>Bar", "Nightlife>Bar"],
            "node 'Bar': expected it once in the tree, got it below 'Food' and below",
        ),
        (["Food>"], "path 'Food>': expected a name on each side of '>', got none"),
    ],
)
def test_bad_paths_are_refused(paths: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Tree.of_paths(paths)


def test_a_long_cycle_is_one_short_line() -> None:
    with pytest.raises(BadInput, match=r"n0 -> n4999 -> .* -> \.\.\. 4993 more \.\.\. -> n1 -> n0$") as refusal:
        Tree([(f"n{at}", f"n{(at - 1) % 5000}") for at in range(5000)])
    assert len(str(refusal.value)) < 200


def test_a_cycle_in_paths_is_found_as_a_node_twice() -> None:
    with pytest.raises(BadInput, match="node 'a'"):
        Tree.of_paths(["a>b>a"])


@pytest.mark.parametrize("ask", [FOOD.parent, FOOD.children, FOOD.depth, FOOD.path, FOOD.leaves])
def test_a_node_that_is_not_there_is_refused_and_not_repeated(ask: object) -> None:
    """It may be a person's own value."""
    with pytest.raises(BadInput, match="expected a node of the tree, got one that is not in it") as refusal:
        ask("Cocoa")  # type: ignore[operator]
    assert "Cocoa" not in str(refusal.value)
