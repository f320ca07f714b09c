"""A fixed, public list of cuts to choose from, so that a cut says little about who uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from tacit.deliver.disclosure.blocks import Block, Cut
from tacit.deliver.disclosure.cuts import nothing
from tacit.deliver.disclosure.remainders import finest_cut_with_rests
from tacit.deliver.disclosure.setting import Requirement
from tacit.errors import BadInput
from tacit.schema.contexts.tree import Tree

NOTHING = "nothing"


@dataclass(frozen=True)
class Entry:
    name: str
    cut: Cut

    def disclose(self, leaf: str) -> Block:
        return self.cut.of(leaf)


@dataclass(frozen=True)
class Menu:
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

    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
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
    def of_profiles(cls, tree: Tree, profiles: Mapping[str, Requirement]) -> Menu:
        """The safe cuts, rests among them, for published profiles; the finest first, equal cuts once.

        A profile that no cut can serve is refused by its name.
        """
        found: list[Entry] = []
        for name, requirement in profiles.items():
            cut = finest_cut_with_rests(tree, requirement.on(tree))
            if cut is None:
                raise BadInput(
                    f"profile {name!r}: expected a requirement that some cut meets, got one that none does"
                )
            if all(set(cut.blocks) != set(entry.cut.blocks) for entry in found):
                found.append(Entry(name, cut))
        # A strictly finer cut has more blocks, so that this order puts it first.
        return cls(tuple(sorted(found, key=lambda entry: -len(entry.cut.blocks))))

    def choose(self, requirement: Requirement) -> Entry:
        """The entry for a person with this requirement, whatever their context; the last resort is nothing."""
        tree = self.entries[0].cut.tree
        safe = requirement.on(tree)
        for entry in self.entries:
            if all(safe(block) for block in entry.cut.blocks):
                return entry
        return Entry(NOTHING, nothing(tree))
