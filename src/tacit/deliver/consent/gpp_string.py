"""Strings of the Global Privacy Platform: a header that lists sections, and the sections behind it.

    said = GppString.parse("DBACNYA~CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA~1YNN")
    said.sections      # {2: "CPXx...", 6: "1YNN"}

Read here are the sections of the EU (2, a TC string), the US Privacy string (6) and the US national section
(7). Those of single states and of Canada are not: where one of them applies, nothing is personal. Source: IAB
Tech Lab, "Global Privacy Platform String", version 1.0; "MSPA US National Section Technical Specification",
versions 1.0 and 2.0; "US Privacy String", version 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tacit.deliver.consent.tc_string import MOST_CHARACTERS, BitReader, refuse
from tacit.display import brief

TCF_EU, US_PRIVACY, US_NATIONAL = 2, 6, 7
HEADER_TYPE, HEADER_VERSION = 3, 1
MOST_SECTIONS = 256

NOT_APPLICABLE, YES, NO = 0, 1, 2
"""Of a notice: given or not. Of an opt-out: opted out or not."""

_GPC = 1
_SENSITIVE_AND_CHILDREN = {1: (12, 2), 2: (16, 3)}  # how many fields each version of the section has


@dataclass(frozen=True)
class GppString:
    """Sections by their id, as they are spelled."""

    sections: Mapping[int, str]

    def __repr__(self) -> str:
        return brief(self, sections=sorted(self.sections))

    @classmethod
    def parse(cls, text: str) -> GppString:
        """A string of version 1; BadInput for anything else."""
        if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
            refuse("a GPP string")
        header, *sections = text.split("~")
        reader = BitReader(header, "the header of a GPP string")
        if (reader.take(6), reader.take(6)) != (HEADER_TYPE, HEADER_VERSION):
            refuse("a GPP string of version 1")
        ids = _read_ids(reader)
        reader.end()
        if len(ids) != len(sections) or not all(sections):
            refuse("a GPP string with the sections that its header lists")
        return cls(dict(zip(ids, sections, strict=True)))


def _read_ids(reader: BitReader) -> list[int]:
    """Ids in order, each told as how far it is from the one before."""
    found: list[int] = []
    last = 0
    for _ in range(reader.take(12)):
        several, first = reader.flag(), last + reader.fibonacci()
        last = first + reader.fibonacci() if several else first
        if len(found) + last - first >= MOST_SECTIONS:
            refuse(f"a GPP string of at most {MOST_SECTIONS} sections")
        found += range(first, last + 1)
    return found


@dataclass(frozen=True)
class UsPrivacy:
    """The US Privacy string: four characters, the first of them its version."""

    notice: str
    opted_out: str

    @classmethod
    def parse(cls, text: str) -> UsPrivacy:
        if not isinstance(text, str) or len(text) != 4 or text[0] != "1" or set(text[1:]) - set("YN-"):
            refuse("a US Privacy string such as 1YNN")
        return cls(text[1], text[2])

    @property
    def applies(self) -> bool:
        return (self.notice, self.opted_out) != ("-", "-")

    @property
    def allows_personal(self) -> bool:
        """Whether somebody who was told did not opt out."""
        return (self.notice, self.opted_out) == ("Y", "N")


@dataclass(frozen=True)
class UsNational:
    """The US national section: notices that were given, what a person opted out of, and a browser's signal.

    notices, opt_outs   of sale, sharing and targeted advertising, in this order
    """

    sharing_notice: int
    notices: tuple[int, int, int]
    opt_outs: tuple[int, int, int]
    known_child: bool
    personal_data_consent: int
    service_provider_mode: int
    gpc: bool

    @classmethod
    def parse(cls, text: str) -> UsNational:
        core, *others = text.split(".")
        reader = BitReader(core, "the core of a US national section")
        version = reader.take(6)
        if version not in _SENSITIVE_AND_CHILDREN:
            refuse("a US national section of version 1 or 2")
        sensitive, children = _SENSITIVE_AND_CHILDREN[version]
        sharing, *notices = (_answer(reader) for _ in range(4))
        _sensitive_notices = [_answer(reader) for _ in range(2)]
        opt_outs = [_answer(reader) for _ in range(3)]
        _sensitive = [_answer(reader) for _ in range(sensitive)]
        of_children = [_answer(reader) for _ in range(children)]
        consent, _covered, _option_mode, provider_mode = (_answer(reader) for _ in range(4))
        reader.end()
        gpc = False
        if len(others) > 1:
            refuse("a US national section of a core and a signal")
        for each in others:
            reader = BitReader(each, "a part of a US national section")
            if reader.take(2) != _GPC:
                refuse("a part of a US national section of a known kind")
            gpc = reader.flag()
            reader.end()
        return cls(
            sharing, (notices[0], notices[1], notices[2]), (opt_outs[0], opt_outs[1], opt_outs[2]),
            any(of_children), consent, provider_mode, gpc,
        )  # fmt: skip

    @property
    def allows_personal(self) -> bool:
        """Whether an adult who was told of targeted advertising opted out of nothing.

        What does not apply (0) is no objection, except to targeted advertising itself: whoever says that it
        does not happen here has not asked for it.
        """
        told = NO not in (self.sharing_notice, *self.notices) and self.notices[2] == YES
        stays = YES not in self.opt_outs and self.opt_outs[2] == NO
        free = not (self.known_child or self.gpc) and self.service_provider_mode != YES
        return told and stays and free and self.personal_data_consent != YES  # there 1 means: no consent


def _answer(reader: BitReader) -> int:
    found = reader.take(2)
    if found > NO:
        refuse("a US national section whose fields are 0, 1 or 2")
    return found
