"""A training of one's own torch module by DP-SGD: sampled, clipped, noised, stepped, checked and paid for
here."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tacit.entropy import Entropy, Simulation, draw_token
from tacit.errors import BadInput, SelfCheckFailed
from tacit.privacy.ledger.lines import Line
from tacit.privacy.randomness import Source
from tacit.privacy.statement import PrivacyStatement
from tacit.privacy.units import Relation, Unit, UnitKind
from tacit.progress import no_count, patient_bar
from tacit.torch.admission import (
    HeldBuffers,
    HeldParameters,
    admit_module,
    admit_optimizer,
    admit_state,
    weights_digest,
)  # fmt: skip
from tacit.torch.gradients import BookkeptGradients, FunctionalGradients, GradientSums, LossFunction, PerExample
from tacit.torch.plan import VERSION, ModulePlan, RunLedger, RunPayment, check_kept
from tacit.torch.records import RecordReader, RecordsOfUsers, WaitingBatch, admit_loader
from tacit.train.examples import Places
from tacit.train.sgd.draws import poisson_sample
from tacit.train.sgd.monitor import ReleaseMonitor, SamplingMonitor

FIRST_LOOKS, LATER_LOOKS, LOOKED_AT = 2, 64, 16
"""In the first steps and in one of so many later ones, drawn, so many records come by themselves, and torch
makes one record's gradient and their sums again. Few of them: it takes two more passes, and keeps their
graph."""


_LATEST: weakref.WeakKeyDictionary[torch.optim.Optimizer, weakref.ref[PrivateRun]] = weakref.WeakKeyDictionary()


class PrivateRun:
    """One training of a module under DP-SGD; `private` makes it.

        for x, y in run.batches():
            run.step(loss(module(x), y))  # one loss per example

    Guarantee:  `statement`: (epsilon, delta)-DP for the weights after every step that was planned, all
                together. Each step is one Gaussian sum of `releases.SubsampledGaussian`: a Poisson sample
                drawn here, gradients scaled to the clip norm by their exact norms, noise on every trained
                weight, divided by the expected batch.
    Neighbours: the plan's relation, for one record of the loader's dataset.
    Assumes:    a record's row and its loss follow from that record and the weights alone: a loss, a collate_fn
                or a layer that mixes records (batch means, standardisation, `labels.mean()`) must not be used,
                and is NOT detected in general. Nothing else that is seen (losses, metrics, sizes of batches,
                when a run was ended or taken up again) follows from records; of a run and what was kept of it,
                one continues.
    Source:     Abadi et al. 2016 (arXiv 1607.00133), algorithm 1; norms by book-keeping: Bu et al. 2023
                (arXiv 2210.00038); the monitor's tests: `train.sgd.monitor`.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        loader: DataLoader[Any],
        plan: ModulePlan,
        draws: Callable[[str], Source],
        *,
        simulated: bool,
        per_example: PerExample = PerExample.BOOK_KEEPING,
        most_at_once: int | None = None,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
        payment: RunPayment | None = None,
        users: RecordsOfUsers | None = None,
    ) -> None:
        functional = per_example is PerExample.FUNCTIONAL
        layers = admit_module(module, functional=functional)
        parameters = {name: each for name, each in module.named_parameters() if each.requires_grad}
        admit_optimizer(optimizer, parameters, scheduler)
        self.module, self.optimizer, self.plan, self.scheduler = module, optimizer, plan, scheduler
        self.simulated, self.steps, self.name = simulated, 0, draw_token()
        self._held = HeldParameters(module, optimizer, parameters)
        self._buffers: HeldBuffers | None = None  # from the first batch on
        self._reader, self._users = RecordReader(loader, most_at_once), users
        self._draws, self._source = draws, draws("the checks")
        self._monitor = ReleaseMonitor(plan.noise_multiplier, plan.clip_norm, plan.batch)
        self._samples = SamplingMonitor(
            plan.records, plan.sampling_probability, plan.steps, below=self._source.uniform_below
        )
        self._sums = GradientSums(parameters, self._monitor, lambda n: self._source.uniform_below(n))
        self._gradients: BookkeptGradients | FunctionalGradients
        if functional:
            self._gradients = FunctionalGradients(module, parameters)
        else:
            self._gradients = BookkeptGradients(layers, parameters)
        self._payment, self._token = payment, ""
        self._noise_stddev = plan.release.noise_stddev(plan.clip_norm) / plan.batch
        self._waiting: WaitingBatch | None = None
        self._sample: tuple[list[Places], int | None] | None = None  # drawn, and not moved by yet
        self._stopped, self._finished, self._over = False, False, ""
        self._turn, self._moving, self._loading = object(), False, False
        earlier = _LATEST.get(optimizer)
        if earlier is not None and (other := earlier()) is not None:
            other._let_go("expected the last run that was made of an optimizer, got an earlier one")
        steps = optimizer.register_step_pre_hook(self._refuse_other_steps)
        self._guards = (steps, optimizer.register_load_state_dict_pre_hook(self._refuse_other_states))
        _LATEST[optimizer] = weakref.ref(self)

    @property
    def statement(self) -> PrivacyStatement | None:
        """What the whole plan promises; None for a simulation, which promises nothing."""
        return None if self.simulated else self.plan.statement()

    @property
    def epsilon_spent(self) -> float:
        """What the steps so far tell, at the plan's delta."""
        return self.plan.epsilon_after(self.steps)

    @property
    def finished(self) -> bool:
        """Whether the weights may leave: all steps were taken or given up, and all checks and payments are
        made."""
        return self._finished

    def batches(self, *, progress: bool = True) -> Iterator[Any]:
        """Batches as the loader's own would be, of Poisson samples, until all steps are taken; each is to be
        answered by one `step`. A sample that is too large, or of which some records are looked at, comes in
        pieces; an empty one is a step of noise alone. A sample that was left comes again, whole: nobody gets
        another for the same step. `progress` shows a bar in a terminal or notebook after two seconds."""
        self._refuse_stopped()
        if self.steps == 0:
            self._held.refuse_earlier_steps()
        self._pay()
        self._buffers = self._buffers or HeldBuffers(self.module)
        self._turn = turn = object()
        with patient_bar("step", self.plan.steps, "steps") if progress else nullcontext(no_count) as count:
            while self.steps < self.plan.steps:
                count(self.steps)
                pieces, look = self._drawn()
                for index, piece in enumerate(pieces):
                    batch, last = self._reader.read(piece), index + 1 == len(pieces)
                    self._gradients.begin(batch, len(piece))
                    self._waiting = WaitingBatch(batch, len(piece), last, look if index == 0 else None)
                    yield batch
                    if self._turn is not turn:
                        raise BadInput(
                            "expected the batches of a call that goes on, got those of one that was left"
                        )
                    if self._waiting is not None:
                        raise BadInput("expected step(losses) after every batch, got none for the last one")
                if not pieces:
                    self._move()
        self.finish()

    def step(self, losses: Tensor | LossFunction) -> bool:
        """Take in one loss per example of the last batch; whether the weights moved, or more of the sample
        comes.

        With `per_example="functional"` it is given `loss_of(module, batch)` instead, and makes the forward
        pass itself.
        """
        self._refuse_stopped()
        if self._waiting is None:
            raise BadInput("expected one step per batch of batches(), got one without a batch")
        waiting, turn = self._waiting, self._turn
        # If this is interrupted the sample is given up: what was added of it may not be added again.
        self._waiting, self._turn = None, object()
        with self._stopping_on_alarm():
            self._held.check()
            self._gradients.add(losses, waiting.batch, waiting.count, self._sums, self._monitor, waiting.look)
        self._turn = turn
        if waiting.last:
            self._move()
        return waiting.last

    def finish(self) -> None:
        """The last step is taken, or no more are wanted: test what is left to test, and spend what was
        reserved.

        Only then may the weights leave. The module is an ordinary one again.
        """
        if self._finished:
            return
        self._refuse_stopped()
        with self._stopping_on_alarm():
            self._check_held()
            self._samples.close()
            self._sums.close()
        self._waiting = None
        if self._payment is not None and self._token:
            self._payment.spend(self._token, weights_digest(self.module))
        self._let_go("expected a run that goes on, got one that is finished")
        self._finished = True

    def state_dict(self) -> dict[str, Any]:
        """All that a run needs to go on from here, weights and optimizer included, and nothing random: to be
        kept by `torch.save`, for its owner's eyes alone."""
        self._refuse_stopped()
        if self._sample is not None:
            raise BadInput("expected a run between two steps, got one with a part of a sample taken in")
        with self._stopping_on_alarm():
            self._check_held()
            self._sums.close()
        return {
            "version": VERSION, "name": self.name, "plan": self.plan.as_json(), "simulated": self.simulated,
            "steps": self.steps, "epsilon_spent": self.epsilon_spent, "token": self._token,
            "module": self.module.state_dict(), "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a run of the same plan stood: its steps stay taken, and the rest are drawn with fresh
        noise.

        What a ledger holds is taken up here, once: keep a state of this run soon, since the old one cannot be
        taken up again.
        """
        if self.steps or self._token or self._sample is not None:
            raise BadInput("expected a run that has not begun, got one that has")
        self._refuse_stopped()
        check_kept(state, self.plan, simulated=self.simulated, paid=self._payment is not None)
        admit_state(state, self.module, self.optimizer, self.scheduler)
        if self._payment is not None:
            token = draw_token()
            self._payment.claim(token, after=[state["token"]])
            self._token = token
        # What comes may be the weights of so many steps, whole or not: never are they those of a run at 0.
        self.name, self.steps = state["name"], state["steps"]
        self._loading = True
        try:
            self.module.load_state_dict(state["module"])
            self.optimizer.load_state_dict(state["optimizer"])
            if self.scheduler is not None:
                self.scheduler.load_state_dict(state["scheduler"])
        except BaseException:
            self._stopped = True
            raise
        finally:
            self._loading = False

    def __repr__(self) -> str:
        simulated = ", simulated" if self.simulated else ""
        return f"PrivateRun({self.steps:,} of {self.plan.steps:,} steps{simulated})"

    def __str__(self) -> str:
        simulated = "\n  simulated: nothing is promised" if self.simulated else ""
        return f"{self.plan}\n  {self._gradients.words}{simulated}"

    def _drawn(self) -> tuple[list[Places], int | None]:
        """The next step's sample in pieces, and which record of the first one is looked at, if any; the last
        one, if it was left."""
        self._sums.clear()
        self._waiting = None
        if self._sample is not None:
            return self._sample
        self._source = self._draws(f"step {self.steps}")
        self._sample = self._pieces(
            poisson_sample(self.plan.records, self.plan.sampling_probability, self._source.words)
        )
        return self._sample

    def _pieces(self, places: Places) -> tuple[list[Places], int | None]:
        with self._stopping_on_alarm():
            self._held.check()
            self._samples.begin(self.steps)
            self._samples.check_sample(places)
        if self._users is not None:
            places = self._users.draw(places, self._source.uniform_below)
        looks = self.steps < FIRST_LOOKS or self._source.uniform_below(LATER_LOOKS) == 0
        if not looks or not len(places):
            return self._reader.pieces(places), None
        first, anyone = self._source.uniform_below(len(places)), self._source.uniform_below(2**32)
        some, rest = np.split(np.roll(places, -first), [LOOKED_AT])
        pieces = [*self._reader.pieces(some), *self._reader.pieces(rest)]
        return pieces, anyone % len(pieces[0])

    def _move(self) -> None:
        """Noise on the sum, whatever it has of gradients, and a step of the optimizer; it counts from here on,
        whatever comes of it."""
        step, self.steps, self._sample = self.steps, self.steps + 1, None
        with self._stopping_on_alarm():
            self._check_held()
            self._sums.add_noise(self._source, self._noise_stddev, step)
        self._moving = True
        try:
            with self._sums.handed_over():
                self.optimizer.step()
        finally:
            self._moving = False
        if self.scheduler is not None:
            self.scheduler.step()

    def _check_held(self) -> None:
        self._held.check()
        if self._buffers is not None:
            self._buffers.check()

    def _pay(self) -> None:
        if self._payment is not None and not self._token:
            self._payment.reserve(self.plan, self.name)
            token = draw_token()
            self._payment.claim(token)
            self._token = token

    def _refuse_other_steps(self, *_: object) -> None:
        """A step of the optimizer that is not this run's would be by gradients that nobody has clipped."""
        if not self._moving:
            raise BadInput("expected run.step(losses) to step the optimizer, got a call of its own step")

    def _refuse_other_states(self, *_: object) -> None:
        """What another optimizer remembers would move the weights, and may have no noise."""
        if not self._loading:
            raise BadInput("expected run.load_state_dict to load the optimizer, got a call of its own")

    def _let_go(self, why: str) -> None:
        """Module and optimizer are somebody else's; `why` is said to who wants another step."""
        self._gradients.close()
        for guard in self._guards:
            guard.remove()
        self._over = why

    def _refuse_stopped(self) -> None:
        if self._over:
            raise BadInput(self._over)
        if self._stopped:
            raise SelfCheckFailed(
                "expected a run that keeps its promise, got one that was stopped: nothing leaves"
            )

    @contextmanager
    def _stopping_on_alarm(self) -> Iterator[None]:
        try:
            yield
        except SelfCheckFailed:
            self._stopped = True
            raise


def private(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[Any],
    *,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    delta: float,
    epochs: float,
    max_grad_norm: float = 1.0,
    unit: Unit | UnitKind | str | None = None,
    users: Any = None,
    relation: Relation | str = Relation.REPLACE_ONE,
    per_example: PerExample | str = PerExample.BOOK_KEEPING,
    max_physical_batch: int | None = None,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
    ledger: RunLedger | None = None,
    name: str | None = None,
    line: Line | None = None,
    seed: int | str | None = None,
) -> PrivateRun:
    """Train one's own torch module under DP-SGD, for a target `epsilon` or at a `noise_multiplier`.

    The loader's dataset is sampled here: each record joins a step with probability batch_size / length, and
    its order and size are not used. `max_physical_batch` bounds memory and changes nothing else; `scheduler`
    is stepped with the optimizer. One record is one `unit`, an impression unless it says otherwise: nobody
    checks that. With `users`, an id for each record of the dataset, all records of an id are one unit, a user:
    users are sampled instead, `batch_size` of them on average, and each gives one record, drawn anew in every
    step; an epoch is a pass over users, and how many of them there are must be public. With a `ledger` the
    cost is reserved on its `line` under this `name` before the first step, and spent when the run is finished.
    `seed` makes a simulation of it, which can be repeated and promises nothing.

    Guarantee:  the run's `statement`: (epsilon, delta)-DP for the weights after all steps.
    Neighbours: `relation`, for one record of the dataset, or with `users` for all of one user; under
                add-remove its length, or the number of users, must be public all the same.
    Assumes:    what `PrivateRun` assumes of the module and its losses.
    Source:     Abadi et al. 2016 (arXiv 1607.00133), algorithm 1.
    """
    records, batch = admit_loader(loader)
    owners = None if users is None else RecordsOfUsers(users, records)
    plan = ModulePlan.of(
        records if owners is None else len(owners), batch, epochs, by_user=owners is not None,
        clip_norm=max_grad_norm, epsilon=epsilon, noise_multiplier=noise_multiplier, delta=delta, unit=unit,
        relation=relation,
    )  # fmt: skip
    payment = RunPayment.of(ledger, name, line, simulated=seed is not None)
    entropy = Entropy()

    def draws(what: str) -> Source:
        return entropy if seed is None else Simulation(f"{seed}, {what}")

    return PrivateRun(
        module, optimizer, loader, plan, draws,
        simulated=seed is not None, per_example=PerExample.named("per_example", per_example),
        most_at_once=max_physical_batch, scheduler=scheduler, payment=payment, users=owners,
    )  # fmt: skip
