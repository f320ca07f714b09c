"""All that a request says of consent, and what follows from it: whether a choice may be personal.

    decide_consent(ConsentSignals(gdpr=1, tc_string="CP...", coppa=0), vendor=755).personal

It fails closed. Every signal that applies must allow it; what cannot be read, or is missing where the law is
said to apply, does not; and where nobody said which law applies, nothing is personal. A no costs little: the
public lane shows what everybody is shown, and reads nothing private.

A yes is not the person's own opt-in, which their device keeps (`DeviceSettings.consent`): both are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tacit import expect
from tacit.deliver.consent.gpp_string import TCF_EU, US_NATIONAL, US_PRIVACY, GppString, UsNational, UsPrivacy
from tacit.deliver.consent.tc_string import MOST_VENDOR, TcString
from tacit.errors import BadInput

ATTS_AUTHORIZED = 3
"""Of Apple's ATTrackingManager.AuthorizationStatus, as OpenRTB's extension has it; 0 to 2 are no yes."""

NEED_CONSENT = (1, 3, 4)
"""Purposes of the TCF: keep something on the device; make a profile; choose ads by it."""

NEED_CONSENT_OR_INTEREST = (2, 7)
"""Choose ads by what is no profile; measure what was shown."""


class ConsentVerdict(expect.Choice):
    """Why a choice may be personal, or not."""

    ALLOWED = "allowed"
    CHILD = "the site or app says that it is for children"
    LIMITED = "the person limits ad tracking"
    UNSAID = "nobody said which law applies"
    MISSING = "a law applies, and its string is missing"
    UNREADABLE = "a string cannot be read"
    UNKNOWN_SECTION = "a law applies whose section is not read here"
    NO_VENDOR = "this ad server has no id in the vendor list"
    NOT_GIVEN = "the person did not consent"
    OPTED_OUT = "the person opted out"


@dataclass(frozen=True)
class ConsentSignals:
    """What a bid request says, as it says it; None where it does not.

    gdpr, coppa, lmt, dnt  flags: 1 is yes, 0 is no, and anything else is taken as a yes
    tc_string              `user.consent`
    gpp, gpp_sid           `regs.gpp`, and which of its sections apply
    us_privacy             `regs.us_privacy`
    gpc                    `regs.ext.gpc`, the browser's Global Privacy Control: all but 0 is an objection
    atts                   `device.ext.atts`, what a person said whom an app asked on iOS: only 3 is a yes
    """

    gdpr: Any = None
    tc_string: str | None = None
    gpp: str | None = None
    gpp_sid: tuple[int, ...] | None = None
    us_privacy: str | None = None
    coppa: Any = None
    lmt: Any = None
    dnt: Any = None
    gpc: Any = None
    atts: Any = None


@dataclass(frozen=True)
class ConsentDecision:
    """Whether a choice may be personal, and why."""

    verdict: ConsentVerdict

    @property
    def personal(self) -> bool:
        return self.verdict is ConsentVerdict.ALLOWED


def decide_consent(signals: ConsentSignals, *, vendor: int | None) -> ConsentDecision:
    """What follows from the signals for the vendor with this id in the TCF's list (None: it has none)."""
    expect.kind("signals", signals, ConsentSignals)
    if vendor is not None and not 1 <= expect.integer("vendor", vendor) <= MOST_VENDOR:
        raise BadInput(f"vendor: expected an id in 1..{MOST_VENDOR}, got {vendor}")
    try:
        found = list(_verdicts(signals, vendor))
    except BadInput:  # what is in a string is a person's own: it is not repeated
        return ConsentDecision(ConsentVerdict.UNREADABLE)
    for verdict in found:
        if verdict is not ConsentVerdict.ALLOWED:
            return ConsentDecision(verdict)
    return ConsentDecision(ConsentVerdict.ALLOWED if found else ConsentVerdict.UNSAID)


def _verdicts(signals: ConsentSignals, vendor: int | None) -> Iterator[ConsentVerdict]:
    """What each signal that applies says; nothing where none does."""
    if signals.coppa not in (None, 0):
        yield ConsentVerdict.CHILD
    limited = any(each not in (None, 0) for each in (signals.lmt, signals.dnt))
    if limited or signals.atts not in (None, ATTS_AUTHORIZED):
        yield ConsentVerdict.LIMITED
    if signals.gpc not in (None, 0, "0"):
        yield ConsentVerdict.OPTED_OUT
    sections = {} if signals.gpp is None else GppString.parse(signals.gpp).sections
    # Without a list of those that apply, all may; -1 says that none does.
    listed = tuple(sections) if signals.gpp_sid is None else signals.gpp_sid
    applying = [each for each in listed if each != -1]
    eu = [text for text in (signals.tc_string, sections.get(TCF_EU)) if text]
    said_for_eu = signals.gdpr is None and signals.tc_string
    if signals.gdpr not in (None, 0) or TCF_EU in applying or said_for_eu:
        yield from (_tcf(text, vendor) for text in eu)
        if not eu:
            yield ConsentVerdict.MISSING
    elif signals.gdpr == 0:
        yield ConsentVerdict.ALLOWED
    for section in applying:
        if section != TCF_EU:
            yield _us(section, sections.get(section))
    if signals.us_privacy:
        said = UsPrivacy.parse(signals.us_privacy)
        if said.applies:
            yield ConsentVerdict.ALLOWED if said.allows_personal else ConsentVerdict.OPTED_OUT


def _tcf(text: str, vendor: int | None) -> ConsentVerdict:
    said = TcString.parse(text)
    if vendor is None:
        return ConsentVerdict.NO_VENDOR
    agreed = all(said.consents(vendor=vendor, purpose=each) for each in NEED_CONSENT)
    based = all(
        said.consents(vendor=vendor, purpose=each) or said.has_interest(vendor=vendor, purpose=each)
        for each in NEED_CONSENT_OR_INTEREST
    )
    return ConsentVerdict.ALLOWED if agreed and based else ConsentVerdict.NOT_GIVEN


def _us(section: int, text: str | None) -> ConsentVerdict:
    if section not in (US_PRIVACY, US_NATIONAL):
        return ConsentVerdict.UNKNOWN_SECTION
    if text is None:
        return ConsentVerdict.MISSING
    said = UsPrivacy.parse(text) if section == US_PRIVACY else UsNational.parse(text)
    return ConsentVerdict.ALLOWED if said.allows_personal else ConsentVerdict.OPTED_OUT
