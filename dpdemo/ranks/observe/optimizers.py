"""Observe optimizers: their hyperparameters, schedulers, and the clipping of gradients."""

import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import lr_scheduler
from torch.optim import optimizer as optimizers

from dpdemo.ranks.events import Clipped, Hyperparameters, Metric, Scheduled
from dpdemo.ranks.observe.models import Wrapped, parameters_of, ranks_of_mesh
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import local, value
from dpdemo.ranks.observe.training import TrainingNotes
from dpdemo.virtual.applying import Patch

_IN_ONE_EVENT, _MAX_NOTED = 64, 256
_NOT_COMPARED = {"params", "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "maximize"}


class OptimizerLedger:
    """The hyperparameters of one optimizer, and how they changed."""

    def __init__(self, notes: Notes, name: str, ranks: tuple[int, ...], at: str) -> None:
        self.notes, self.name, self.ranks, self.at = notes, name, ranks, at
        self.count = 0
        self.now: dict[str, float] = {}
        self.steps: list[int] = []
        self.values: list[dict[str, float]] = []
        self.rates: list[float] = []  # the lowest and the last learning rate, and since which step it is that
        self.since = 1

    def add(self, optimizer: Any) -> None:
        """Add a step."""
        self.count += 1
        found = _hyperparameters(optimizer.param_groups)
        changed = {name: number for name, number in found.items() if self.now.get(name) != number}
        if changed:
            self.now = found
            self.steps.append(self.count)
            self.values.append(changed)
            if len(self.steps) >= _IN_ONE_EVENT:
                self.flush()
        self._rate(max((group.get("lr", 0.0) for group in optimizer.param_groups), default=0.0))

    def _rate(self, given: Any) -> None:
        rate = value(given)
        lowest, last = self.rates or (rate, rate)
        if rate != last:
            self.since = self.count
        self.rates = [min(lowest, rate), rate]

    def still(self) -> int:
        """Return how many steps at the end had one learning rate, the lowest of all."""
        lowest, last = self.rates or (0.0, 1.0)
        return self.count - self.since + 1 if last == lowest and self.since > 1 else 0

    def flush(self) -> None:
        """Write the changes that were not written yet."""
        if self.steps:
            self.notes.write(
                Hyperparameters(self.name, self.ranks, self.at, tuple(self.steps), tuple(self.values))
            )
        self.steps, self.values = [], []


def _hyperparameters(groups: list[dict[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for number, group in enumerate(groups):
        suffix = f" of group {number}" if len(groups) > 1 else ""
        for name, given in group.items():
            if name in _NOT_COMPARED:
                continue
            if isinstance(given, (int, float)) or (isinstance(given, torch.Tensor) and given.numel() == 1):
                found[f"{name}{suffix}"] = value(given)
            elif name == "betas":
                found |= {f"beta{place}{suffix}": value(each) for place, each in enumerate(given, 1)}
    return found


class Schedule:
    """The calls of one scheduler."""

    def __init__(self, scheduler: Any, at: str) -> None:
        self.at, self.name = at, type(scheduler).__name__
        self.ledger: OptimizerLedger | None = None
        self.calls = 0
        period = getattr(scheduler, "T_max", 0)  # the rate rises again after it
        self.period = period if isinstance(period, int) else 0

    def event(self, ledger: OptimizerLedger) -> Scheduled:
        """Return the sums of its calls."""
        return Scheduled(
            at=self.at,
            name=self.name,
            optimizer=ledger.name,
            steps=ledger.count,
            calls=self.calls,
            period=self.period,
            still=ledger.still(),
            last=ledger.rates[-1] if ledger.rates else 0.0,
        )


class OptimizerNotes:
    """Follows the optimizers of models that several ranks train."""

    def __init__(self, notes: Notes, training: TrainingNotes) -> None:
        self.notes, self.training = notes, training
        self.ledgers: weakref.WeakKeyDictionary[Any, OptimizerLedger] = weakref.WeakKeyDictionary()
        self.kept: list[OptimizerLedger] = []
        self.schedules: weakref.WeakKeyDictionary[Any, Schedule] = weakref.WeakKeyDictionary()
        self.all_schedules: list[Schedule] = []

    @never_raises
    def steps(self, optimizer: Any) -> None:
        """Note the hyperparameters of a step; that of an optimizer inside another one is not its own."""
        if (
            not dist.is_initialized()
            or dist.get_world_size() == 1
            or self.training.outer not in {None, optimizer}
        ):
            return
        ledger = self.ledgers.get(optimizer)
        if ledger is None:
            at = users_line()
            what = f"{type(optimizer).__name__} at {at}"
            name = f"{what} #{self.notes.number(Hyperparameters, what)}"
            ledger = OptimizerLedger(self.notes, name, self._ranks(optimizer), at)
            self.ledgers[optimizer] = ledger
            self.kept.append(ledger)
        ledger.add(optimizer)

    def _ranks(self, optimizer: Any) -> tuple[int, ...]:
        """Return the ranks that train the parameters of an optimizer together."""
        for model in self.training.of(optimizer):
            if isinstance(model, Wrapped):
                return tuple(model.ranks)
        for each in parameters_of(optimizer):
            mesh = getattr(each, "device_mesh", None)
            if mesh is not None:
                return tuple(ranks_of_mesh(mesh))
        return ()

    @never_raises
    def scheduled(self, scheduler: Any, metric: Any = None) -> None:
        """Note a step of a scheduler, and the number that it goes by."""
        at = users_line()
        schedule = self.schedules.get(scheduler)
        if schedule is None:
            schedule = self.schedules[scheduler] = Schedule(scheduler, at)
            self.all_schedules.append(schedule)
        schedule.calls += 1
        schedule.ledger = self.ledgers.get(_innermost(scheduler.optimizer))
        if metric is not None:
            number = self.notes.number(Metric, at)
            if number <= _MAX_NOTED:
                self.notes.write(Metric(at, number, value(metric)))

    @never_raises
    def clipped(self, parameters: Any, norm: Any) -> None:
        """Note the norm by which shards were clipped."""
        given = {id(each) for each in parameters}
        for model in self.training.models:
            if isinstance(model, Wrapped) and model.wrapper == "FullyShardedDataParallel":
                module = model.module()
                mine = {id(each) for each in module.parameters()} if module is not None else set()
                if given & mine and _is_sharded(module):
                    at = users_line()
                    number = self.notes.number(Clipped, at)
                    if number <= _MAX_NOTED:
                        self.notes.write(Clipped(at, number, value(local(norm))))
                    return

    @never_raises
    def end(self) -> None:
        """Note the sums of each optimizer and scheduler."""
        for ledger in self.kept:
            ledger.flush()
        for schedule in self.all_schedules:
            if schedule.ledger is not None:
                self.notes.write(schedule.event(schedule.ledger))


def _innermost(optimizer: Any) -> Any:
    """Return the optimizer inside those that libraries put around it."""
    while isinstance(getattr(optimizer, "optimizer", None), optimizers.Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def _is_sharded(module: Any) -> bool:
    strategy = str(getattr(module, "sharding_strategy", "")) + str(
        getattr(getattr(module, "_handle", None), "_sharding_strategy", "")
    )
    return "NO_SHARD" not in strategy


def watch(notes: Notes, training: TrainingNotes) -> OptimizerNotes:
    """Follow the optimizers and schedulers of this process."""
    found = OptimizerNotes(notes, training)
    notes.hooked(optimizers.register_optimizer_step_pre_hook(lambda each, *_: found.steps(each)))
    why = "each step of a scheduler sets it: a frame around `step` would move its warnings"
    notes.patches.apply(Patch(lr_scheduler.LRScheduler, "last_epoch", _Counted(found), why))

    @notes.around(torch.nn.utils.clip_grad, "_clip_grads_with_norm_", why="norms of shards differ")
    def clip(run: Any, /, parameters: Any, max_norm: Any, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
        listed = list(parameters) if isinstance(parameters, Iterator) else parameters
        found.clipped([listed] if isinstance(listed, torch.Tensor) else listed, total_norm)
        return run(listed, max_norm, total_norm, *args, **kwargs)

    return found


class _Counted:
    """A scheduler's `last_epoch`, as an attribute that notes each step."""

    def __init__(self, found: OptimizerNotes) -> None:
        self.found = found

    def __get__(self, scheduler: Any, kind: Any = None) -> Any:
        """Return the number, which stays in the scheduler's own attributes."""
        if scheduler is None:
            return self
        try:
            return vars(scheduler)["last_epoch"]
        except KeyError:
            raise AttributeError("last_epoch") from None

    def __set__(self, scheduler: Any, epoch: Any) -> None:
        """Note a step, once the scheduler is made."""
        vars(scheduler)["last_epoch"] = epoch
        frame = sys._getframe(1)
        if frame.f_code.co_name in {"step", "_update_lr"} and not scheduler._is_initial:
            self.found.scheduled(scheduler, frame.f_locals.get("metrics"))
