"""Who counts as a neighbour: the first half of every promise (the second is the unit, in `units`)."""

from __future__ import annotations

from tacit.expect import Choice


class Relation(Choice):
    """What may differ between two neighbouring datasets, for one privacy unit."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"
    REPLACE_LABEL = "replace-label"
    ZERO_OUT = "zero-out"

    @property
    def plain(self) -> str:
        """The relation in words, after 'a dataset in which'."""
        return _PLAIN[self]


_PLAIN = {
    Relation.ADD_REMOVE: "all records of one {unit} were added or removed",
    Relation.REPLACE_ONE: "the private part (sensitive features and labels) of one {unit} was replaced; "
    "public features stay as they are",
    Relation.REPLACE_LABEL: "the labels of one {unit} were replaced; all features stay as they are",
    Relation.ZERO_OUT: "the contribution of one {unit} was set to zero; the number of contributors is public",
}

ADD_LIKE = frozenset({Relation.ADD_REMOVE, Relation.ZERO_OUT})
"""One unit's contribution is there, or is not."""

REPLACE_LIKE = frozenset({Relation.REPLACE_ONE, Relation.REPLACE_LABEL})
"""One unit's contribution is another one."""
