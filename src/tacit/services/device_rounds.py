"""A device's answers to the rounds that an ad server schedules: what it showed, by context, what of it was
clicked and what led to a conversion.

    rounds = CountingDevice(device, uploads, memory, entropy)
    rounds.join(charging=True, wifi=True)

It asks the proxy for open rounds, and takes part in those that the person's settings allow. Which impressions a
round counts is chosen once and kept before anything is sent, and deleted when the proxy has it. Each family of
rounds counts an impression once (`RoundFamily`); what all allowed ones have counted is deleted from the log.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.shown_log import RoundFamily, ShownEvent, ShownLog, forget_done
from tacit.deliver.protocol.disclosure import context_number
from tacit.display import brief
from tacit.errors import BadInput, GatherError, Refused
from tacit.gather.client.contributions import ChosenEvents, Contributions, Event, answer_question
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.rounds import Question, Round
from tacit.privacy.randomness import Source
from tacit.schema.contexts.hierarchy import Hierarchy, Levels
from tacit.services.endpoints import Clock
from tacit.services.http_clients import HttpUploads
from tacit.services.rounds import AnnouncedRound


def family_of(task: str) -> RoundFamily | None:
    """Of which family a scheduled round is, by its task; None where it is another round.

    >>> family_of("menu-conversions-20571"), family_of("menu-rates"), family_of("visits-3")
    (<RoundFamily.CONVERSIONS: 'menu-conversions'>, None, None)
    """
    head, _, number = task.rpartition("-")
    known = {str(each): each for each in RoundFamily}
    return known.get(head) if number.isascii() and number.isdecimal() else None


def read_clock() -> int:
    return int(time.time())


class RoundSource(Protocol):
    """The device's way to the proxy; `HttpUploads` is one."""

    def rounds(self) -> Sequence[AnnouncedRound]: ...

    def report(self, round: Round, values: Any) -> None: ...


class RoundMemory(ChosenEvents, Protocol):
    """What a device remembers of rounds; `SqlDeviceStore` is one."""

    def forget(self, task: str) -> None:
        """Drop the events of a run that is over; nothing is chosen for it again."""

    def erase(self) -> None:
        """The same of every run, and of what was sent in rounds."""


class CountingDevice:
    """A device that answers scheduled questions from its log.

    Guarantee:  what the round promises, which the device checks itself, and which its person allows: at most
                `events` of its impressions count, which are drawn once. An impression is marked when a round
                has drawn, and no other round of that family draws it: it counts once per family, or twice where
                the device was cut off between two writes. Rounds of both families are paid for, each by itself.
                What was drawn is deleted when the proxy has it; an impression, when all families that the
                person allows have drawn, or its look-back and the time to be counted are over.
    Neighbours: the contribution of this device set to zero.
    Assumes:    `memory` and the log keep what they were given; the person agreed to statistics. That the device
                takes part is known to the proxy; whether it does hangs on settings alone, and not on what was
                shown, clicked or bought.
    Source:     `Contributions.once`, `answer_question`.
    """

    def __init__(
        self,
        device: AdDevice,
        uploads: HttpUploads | RoundSource,
        memory: RoundMemory,
        entropy: Source,
        *,
        clock: Clock = read_clock,
    ) -> None:
        """`clock` is the one by which the device shows ads: it tells which look-backs are over."""
        self._device, self._uploads, self._memory, self._entropy = device, uploads, memory, entropy
        self._clock = clock
        if not device.settings.statistics.allowed:
            memory.erase()  # kept while its person agreed

    def __repr__(self) -> str:
        return brief(self, device=self._device)

    def join(self, *, charging: bool, wifi: bool) -> list[str]:
        """Answer every scheduled round that is open and allowed; the tasks of those that took it.

        A round whose answer got lost gets the same bytes again. One that promises less than the person's
        settings want, whose noise does not keep what it promises, whose question cannot be read, or is at
        levels that this device's hierarchy does not have, is left, and nothing is chosen for it.
        """
        done, consent = [], self._device.settings.statistics
        joined = {each for each in RoundFamily if consent.allows(each, charging=charging, wifi=wifi)}
        for announced in self._uploads.rounds() if joined else ():
            family = family_of(announced.round.task)
            if family in joined and announced.question and self._answer(announced, family):
                done.append(announced.round.task)
        return done

    def erase(self) -> int:
        """`AdDevice.erase`, and all that is kept of rounds; how many impressions that were."""
        self._memory.erase()
        return self._device.erase()

    def _answer(self, announced: AnnouncedRound, family: RoundFamily) -> bool:
        round, log, settings = announced.round, self._device.log, self._device.settings
        promise, allowed = round.promise, settings.statistics
        if log is None or promise.epsilon > allowed.per_round or promise.delta > allowed.most_delta:
            return False
        try:
            question = Question.of_round(round, announced.question)
            round.expect_promise_kept()
            if question.levels not in settings.hierarchy.levels():
                return False
            chosen = self._choose(round, question, family, log)
        except GatherError:  # it cannot be answered, or was, and is forgotten
            return False
        values = answer_question(question, chosen, _Numbers(settings.hierarchy), promise.each)
        taken = True
        try:
            self._uploads.report(round, values)
        except Refused as refused:
            if refused.reason is MessageVerdict.TOO_EARLY:
                return False
            taken = False  # it has closed meanwhile, or is not for this device
        self._memory.forget(round.task)
        return taken

    def _choose(self, round: Round, question: Question, family: RoundFamily, log: ShownLog) -> Contributions:
        settings, now = self._device.settings, self._clock()
        due = [each for each in log.events() if each.is_due(family, now, settings.look_back_seconds)]
        is_first = self._memory.find_chosen(round.task) is None
        events = _asked_events(due, question, family)
        chosen = Contributions.once(round.task, events, round.promise.events, self._entropy, self._memory)
        if is_first:  # what was chosen is kept by now
            log.mark_counted(due, family)
            oldest = now - settings.look_back_seconds - settings.uncounted_seconds
            forget_done(log, settings.statistics.families, oldest)
        return chosen


def _asked_events(due: Sequence[ShownEvent], question: Question, family: RoundFamily) -> list[Event]:
    """What a round draws from. Conversions are rare, and asked of campaigns that bid on them: impressions of
    others would only take the place of theirs."""
    if family is RoundFamily.CLICKS:
        return [Event(each.context, each.campaign, each.clicked) for each in due]
    asked = set(question.ad.tolist())
    return [Event(each.context, each.campaign, each.converted) for each in due if each.campaign in asked]


class _Numbers:
    """The number of the node that a context is in, at levels of a hierarchy."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy

    def __call__(self, levels: Levels, context: tuple[Any, ...]) -> int:
        try:
            return context_number(self._hierarchy.at(context, levels))
        except BadInput:  # of a log that is older than the hierarchy
            return -1
