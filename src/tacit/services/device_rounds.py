"""A device's answers to the rounds that an ad server schedules: what it showed and was clicked, by context.

    rounds = CountingDevice(device, uploads, memory, entropy)
    rounds.join(charging=True, wifi=True)

It asks the proxy for open rounds, takes part in those that the person's settings allow, and deletes from its
log what was counted. Which impressions a round counts is chosen once and kept before anything is sent, and
deleted when the proxy has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tacit.deliver.device.agent import AdDevice
from tacit.deliver.device.shown_log import ShownLog
from tacit.deliver.protocol.disclosure import context_number
from tacit.display import brief
from tacit.errors import BadInput, GatherError, Refused
from tacit.gather.client.contributions import ChosenEvents, Contributions, Event, answer_question
from tacit.gather.protocol.encoding import MessageVerdict
from tacit.gather.protocol.rounds import Question, Round
from tacit.privacy.randomness import Source
from tacit.schema.contexts.hierarchy import Hierarchy, Levels
from tacit.services.http_clients import HttpUploads
from tacit.services.rounds import AnnouncedRound

FAMILY = "menu-rates"
"""What a person's settings call these rounds; their tasks are menu-rates-NUMBER."""


def is_scheduled(task: str) -> bool:
    """Whether a round is one of these, by its task."""
    head, _, number = task.rpartition("-")
    return head == FAMILY and number.isascii() and number.isdecimal()


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
                `events` of its impressions count, which are drawn once. An impression is deleted when a round
                has drawn: it counts in one round, or in two where the device was cut off between two writes;
                either is paid for. What was drawn is deleted when the proxy has it.
    Neighbours: the contribution of this device set to zero.
    Assumes:    `memory` and the log keep what they were given; the person agreed to statistics. That the device
                takes part is known to the proxy.
    Source:     `Contributions.once`, `answer_question`.
    """

    def __init__(
        self, device: AdDevice, uploads: HttpUploads | RoundSource, memory: RoundMemory, entropy: Source
    ) -> None:
        self._device, self._uploads, self._memory, self._entropy = device, uploads, memory, entropy
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
        done = []
        if self._device.settings.statistics.allows(FAMILY, charging=charging, wifi=wifi):
            for announced in self._uploads.rounds():
                if is_scheduled(announced.round.task) and announced.question and self._answer(announced):
                    done.append(announced.round.task)
        return done

    def erase(self) -> int:
        """`AdDevice.erase`, and all that is kept of rounds; how many impressions that were."""
        self._memory.erase()
        return self._device.erase()

    def _answer(self, announced: AnnouncedRound) -> bool:
        round, log, settings = announced.round, self._device.log, self._device.settings
        if log is None or round.promise.epsilon > settings.statistics.per_round:
            return False
        try:
            question = Question.of_round(round, announced.question)
            round.expect_promise_kept()
            if question.levels not in settings.hierarchy.levels():
                return False
            chosen = self._choose(round, log)
        except GatherError:  # it cannot be answered, or was, and is forgotten
            return False
        values = answer_question(question, chosen, _Numbers(settings.hierarchy), round.promise.each)
        taken = True
        try:
            self._uploads.report(round, values)
        except Refused as refused:
            if refused.reason is MessageVerdict.TOO_EARLY:
                return False
            taken = False  # it has closed meanwhile, or is not for this device
        self._memory.forget(round.task)
        return taken

    def _choose(self, round: Round, log: ShownLog) -> Contributions:
        noted = log.events()
        events = [Event(each.context, each.campaign, each.clicked) for each in noted]
        is_first = self._memory.find_chosen(round.task) is None
        chosen = Contributions.once(round.task, events, round.promise.events, self._entropy, self._memory)
        if is_first:
            log.forget(noted)  # what was chosen is kept by now
        return chosen


class _Numbers:
    """The number of the node that a context is in, at levels of a hierarchy."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy

    def __call__(self, levels: Levels, context: tuple[Any, ...]) -> int:
        try:
            return context_number(self._hierarchy.at(context, levels))
        except BadInput:  # of a log that is older than the hierarchy
            return -1
