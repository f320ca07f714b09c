"""From a cut to an answer: what a block tells reaches the server, and what it leaves open stays open."""

from __future__ import annotations

import pytest

from tacit.deliver.candidates.answering import CandidateServer
from tacit.deliver.candidates.payments import Bid
from tacit.deliver.client.here import Here
from tacit.deliver.client.history import History
from tacit.deliver.client.local import best
from tacit.deliver.disclosure.blocks import Block
from tacit.deliver.disclosure.contexts import context_tree, node_name
from tacit.deliver.disclosure.remainders import finest_cut_with_rests
from tacit.deliver.disclosure.setting import Requirement
from tacit.deliver.disclosure.telling import nodes_by_name, told
from tacit.deliver.estimates.backing_off import BackOff
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Node, Sequence
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree
from tacit.schema.statistics import Counts

PLACES = ("Books", "Shoes", "Clinic", "Gym", "Barber")
TOWN = Sequence(
    [Steps("place", Tree.of_paths(["Shops>Books", "Shops>Shoes", "Care>Clinic", "Body>Gym", "Body>Barber"]))],
    [(0,), (1,), (2,)],
)
ROOT = Node((2,), ("*",))


def test_a_person_who_discloses_a_block_gets_ads_for_all_that_it_leaves_possible() -> None:
    rows = [(place, ad) for ad, place in enumerate(PLACES) for _ in range(10)]
    nodes = ContextNodes.of(TOWN, {"place": [place for place, _ in rows]})
    counts = Counts.of_rows(nodes, [ad for _, ad in rows], ads=len(PLACES))
    server = CandidateServer(nodes, counts, BackOff(1), [Bid(ad, ROOT, 100) for ad in range(len(PLACES))])
    tree, names = context_tree(nodes), nodes_by_name(nodes)
    clinic = node_name(TOWN.at(["Clinic"], (0,)))
    cut = finest_cut_with_rests(tree, Requirement(2, 2, [clinic]).on(tree))
    assert cut is not None
    for ad, place in enumerate(PLACES):
        block = cut.of(node_name(TOWN.at([place], (0,))))
        said = told(block, names)
        sent = server.answer(said.node, k=5, without=said.without).sent
        possible = {names[leaf].values[0] for leaf in block.leaves(tree)}
        assert {PLACES[each] for each in sent.ads} == possible
        here = Here.of(TOWN, [place], said.node.levels)
        assert best(sent, here, History(((0,),))).ad == ad
    body, rest = (told(cut.of(node_name(TOWN.at([each], (0,)))), names) for each in ("Gym", "Clinic"))
    assert (body.node.values, body.without) == (("Body",), ())
    assert rest.node == ROOT
    assert [each.values[0] for each in rest.without] == ["Body"]


def test_a_block_of_another_tree_is_refused_by_its_node() -> None:
    nodes = ContextNodes.of(TOWN, {"place": ["Books"]})
    with pytest.raises(BadInput, match="node 'Mars': expected a node of the tree of contexts"):
        told(Block("Mars"), nodes_by_name(nodes))
