"""From a cut to an answer: what a block tells reaches the server, and what it leaves open stays open."""

from __future__ import annotations

import pytest

from tacit.deliver.device.context import ClickHistory, DeviceContext
from tacit.deliver.device.local_choice import choose_locally
from tacit.deliver.protocol.cuts import (
    CutBlock,
    context_tree,
    disclose_block,
    finest_cut_with_remainders,
    node_name,
    nodes_by_name,
)
from tacit.deliver.protocol.disclosure import Requirement
from tacit.deliver.server.candidates import CandidateServer
from tacit.deliver.server.shrinkage import BackOff
from tacit.deliver.server.values import Bid
from tacit.errors import BadInput
from tacit.schema.contexts.attributes import Steps
from tacit.schema.contexts.hierarchy import Node, Sequence
from tacit.schema.contexts.nodes import ContextNodes
from tacit.schema.contexts.tree import Tree
from tacit.schema.counts import Counts

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
    cut = finest_cut_with_remainders(tree, Requirement(2, 2, [clinic]).on(tree))
    assert cut is not None
    for ad, place in enumerate(PLACES):
        block = cut.of(node_name(TOWN.at([place], (0,))))
        said = disclose_block(block, names)
        sent = server.answer(said.node, k=5, without=said.without).menu
        possible = {names[leaf].values[0] for leaf in block.leaves(tree)}
        assert {PLACES[each] for each in sent.ads} == possible
        here = DeviceContext.of(TOWN, [place], said.node.levels)
        assert choose_locally(sent, here, ClickHistory(((0,),))).ad == ad
    body, rest = (disclose_block(cut.of(node_name(TOWN.at([each], (0,)))), names) for each in ("Gym", "Clinic"))
    assert (body.node.values, body.without) == (("Body",), ())
    assert rest.node == ROOT
    assert [each.values[0] for each in rest.without] == ["Body"]


def test_a_block_of_another_tree_is_refused_by_its_node() -> None:
    nodes = ContextNodes.of(TOWN, {"place": ["Books"]})
    with pytest.raises(BadInput, match="node 'Mars': expected a node of the tree of contexts"):
        disclose_block(CutBlock("Mars"), nodes_by_name(nodes))
