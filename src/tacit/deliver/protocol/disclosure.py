"""Privacy settings for disclosure, and a fixed public menu of cuts to choose from.

A setting is a level of the hierarchy, or a requirement on what every disclosure must leave open (l-diversity
over leaves). A cut made for one person would say what they find sensitive, so people pick from a short public
menu, by their requirement alone and never by their context.

None of this is differential privacy. A cut limits what one disclosure says, to someone who knows the cut and
nothing else. Outside of it lie:

- time: disclosures of one person that can be linked intersect, with each other and with the roads between
  them. Each may leave a hundred places, and all of them together one;
- what the server knows already: the leaves of a block count alike here, however likely each of them is;
- the message around the disclosure: its hour, network address, device and length;
- the choice of the cut, which says something about the person who chose it (see `CutMenu`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any

from tacit import expect
from tacit.bill.protocol.menus import context_bytes
from tacit.deliver.protocol.cuts import Cut, CutBlock, finest_cut_with_remainders, root_cut
from tacit.errors import BadInput
from tacit.schema.contexts.hierarchy import Hierarchy, Levels, Node
from tacit.schema.contexts.tree import Tree


@dataclass(frozen=True)
class DisclosureLevel:
    """Disclose every context at these levels, one per attribute.

    Guarantee:  the disclosure tells what the context is at these levels, and nothing finer; no number is
                promised for how many contexts that leaves.
    Neighbours: two contexts that agree at these levels.
    Assumes:    the level was chosen without looking at the context; one disclosure is seen (see the module).
                Where branches of a tree are of unequal length, a short one is told exactly until the level's
                depth reaches it (see `Steps`).
    Source:     Hardt and Nath, CCS 2012, section 2.
    """

    levels: Levels

    def disclose(self, hierarchy: Hierarchy, context: Sequence[Any]) -> Node:
        if self.levels not in hierarchy.levels():
            raise BadInput(f"expected a level of the hierarchy, got {self.levels}")
        return hierarchy.at(context, self.levels)


@dataclass(frozen=True)
class Requirement:
    """What each disclosure must leave open: enough leaves, and enough that are not sensitive.

    A block is safe if it has at least `min_descendants` leaves, and at least `ratio` leaves that are not
    sensitive for each that is. Two safe blocks together are safe.

    Guarantee:  with a cut whose every block is safe, a disclosure leaves at least `min_descendants` contexts
                possible, of which at most one in 1 + ratio is sensitive to this person.
    Neighbours: two leaves of one block.
    Assumes:    all leaves of a block are as likely to the reader; and see `Cut`. This is l-diversity over
                leaves, not differential privacy.
    Source:     Hardt and Nath, CCS 2012, section 2; Machanavajjhala et al., TKDD 2007.
    """

    min_descendants: int
    ratio: Fraction
    sensitive: frozenset[str] = field(repr=False)  # the person's own: not printed, and not in a refusal

    def __init__(self, min_descendants: int, ratio: expect.Number, sensitive: Iterable[str] = ()) -> None:
        if isinstance(sensitive, str):
            raise BadInput("expected sensitive to be several leaves, got one text")
        sensitive = expect.several("sensitive", sensitive)
        least = expect.whole("min_descendants", min_descendants, at_least=1)
        object.__setattr__(self, "min_descendants", least)
        object.__setattr__(self, "ratio", expect.at_least_zero("ratio", ratio))
        object.__setattr__(self, "sensitive", frozenset(sensitive))

    def holds(self, leaves: int, sensitive: int) -> bool:
        return leaves >= self.min_descendants and leaves - sensitive >= self.ratio * sensitive

    def on(self, tree: Tree) -> Callable[[CutBlock], bool]:
        """Whether a block of this tree is safe; counting the tree's leaves takes O(nodes), once."""
        leaves: dict[str, int] = {}
        marked: dict[str, int] = {}
        for node in reversed(tree.nodes):
            children = tree.children(node)
            leaves[node] = sum(leaves[child] for child in children) if children else 1
            marked[node] = sum(marked[child] for child in children) if children else node in self.sensitive
        if marked[tree.root] != len(self.sensitive):
            strange = len(self.sensitive) - marked[tree.root]
            raise BadInput(f"expected sensitive to be leaves of the tree, got {strange} that are not")

        def safe(block: CutBlock) -> bool:
            return self.holds(
                leaves[block.node] - sum(leaves[child] for child in block.without),
                marked[block.node] - sum(marked[child] for child in block.without),
            )

        return safe


NOTHING = "nothing"
"""The name of the entry that discloses nothing."""


@dataclass(frozen=True)
class CutMenuEntry:
    name: str
    cut: Cut

    def disclose(self, leaf: str) -> CutBlock:
        return self.cut.of(leaf)


@dataclass(frozen=True)
class CutMenu:
    """Cuts of one tree, published once, the finest first; to disclose nothing is always the last.

    Guarantee:  `choose` gives the first entry whose every block meets the requirement, from the requirement
                alone, or else nothing. What `Requirement` and `Cut` promise then holds for each disclosure by
                an entry, and the choice takes one of len(entries) + 1 values, nothing among them: it can tell
                at most that many classes of settings apart.
    Neighbours: two leaves of one block of the entry; of the setting, two that choose the same entry.
    Assumes:    the menu was fixed before, without this person's setting, and the entry is kept whatever the
                context: choosing again at each context ("the finest entry that is safe here") makes the entry
                itself speak of the context. The entry does say something about the setting: that no finer one
                would do. A cut made for one person says more: it is coarse where their sensitive contexts are.
    Source:     ours.
    """

    entries: tuple[CutMenuEntry, ...]

    def __post_init__(self) -> None:
        expect.several("entries", self.entries, CutMenuEntry)
        if not self.entries:
            raise BadInput("expected a menu of at least one cut, got none")
        names = [entry.name for entry in self.entries]
        if len({*names, NOTHING}) <= len(names):
            raise BadInput(f"expected menu entries with names of their own, none {NOTHING!r}, got {names}")
        for earlier, later in combinations(self.entries, 2):
            if later.cut.is_at_least_as_fine_as(earlier.cut):
                raise BadInput(
                    f"expected the finest cuts of the menu first, got {later.name!r}, which is as fine as "
                    f"{earlier.name!r} before it"
                )

    @classmethod
    def of_profiles(cls, tree: Tree, profiles: Mapping[str, Requirement]) -> CutMenu:
        """The safe cuts, rests among them, for published profiles; the finest first, equal cuts once.

        A profile that no cut can serve is refused by its name.
        """
        expect.kind("profiles", profiles, Mapping)
        found: list[CutMenuEntry] = []
        for name, requirement in profiles.items():
            cut = finest_cut_with_remainders(tree, requirement.on(tree))
            if cut is None:
                raise BadInput(
                    f"profile {name!r}: expected a requirement that some cut meets, got one that none does"
                )
            if all(set(cut.blocks) != set(entry.cut.blocks) for entry in found):
                found.append(CutMenuEntry(name, cut))
        # A strictly finer cut has more blocks, so that this order puts it first.
        return cls(tuple(sorted(found, key=lambda entry: -len(entry.cut.blocks))))

    def choose(self, requirement: Requirement) -> CutMenuEntry:
        """The entry for a person with this requirement, whatever their context; the last resort is nothing."""
        tree = self.entries[0].cut.tree
        safe = requirement.on(tree)
        for entry in self.entries:
            if all(safe(block) for block in entry.cut.blocks):
                return entry
        return CutMenuEntry(NOTHING, root_cut(tree))


_NUMBER_LABEL = b"tacit context 1 "


def context_number(node: Node) -> int:
    """By which a question about contexts names one: 53 bits of SHA-256 of its one spelling.

    Server and device find it each from what they know, so that nobody has to list contexts for the other. Two
    of 20,000 contexts have the same with probability below 2.3e-8; whoever asks about many looks.

    >>> context_number(Node((1,), ("North",))) == context_number(Node((1,), ("North",), ("city",)))
    True
    """
    return int.from_bytes(hashlib.sha256(_NUMBER_LABEL + context_bytes(node)).digest()[:8]) >> 11
