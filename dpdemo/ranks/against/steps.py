"""Note the gradients of each step, and set one process to the ranks' parameters before it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import optimizer as optimizers

from dpdemo.ranks.against.numbers import as_bytes, kept, proportional, sampled
from dpdemo.ranks.against.rows import MAX_EPOCH
from dpdemo.ranks.against.shards import WHOLE, box_at, box_of, put_shards, sampled_shards, shard_of
from dpdemo.ranks.against.store import Clip, Detail, Kept, Sampled
from dpdemo.ranks.events import NotedStep
from dpdemo.ranks.observe.models import parameters_of
from dpdemo.ranks.observe.notes import around, never_raises, users_line
from dpdemo.ranks.observe.numbers import checksum, value
from dpdemo.startup.hook import when_imported

if TYPE_CHECKING:
    from dpdemo.ranks.against.state import State
    from dpdemo.ranks.against.store import Backward, Box

_SAME = 1e-3
_MAX_SKIPPED = 16
_MAX_WAIT = 32
"""Backward passes until an optimizer that has made no step is not waited for."""


class Steps:
    """Notes the steps of this process's optimizers."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.outer: Any = None
        """The optimizer whose step is under way: ZeroRedundancyOptimizer's makes a step of another one."""
        self.has_stepped = False
        self.made: Counter[int] = Counter()
        """By optimizer: the steps that no gradient scaler left out."""

    @never_raises
    def before(self, optimizer: Any, *, is_skipped: bool = False) -> None:
        """Note a step that is about to be made."""
        state = self.state
        if self.outer is not None or state.is_done or optimizer not in state.optimizers:
            return
        self.outer, self.has_stepped = optimizer, True
        number = state.optimizers.index(optimizer)
        state.steps[number] += 1
        step = state.steps[number]
        is_wanted = self._is_early(number) or self._ends_epoch()
        self.made[number] += not is_skipped
        if (number, step) in state.ranks.steps if state.settings.is_replay else is_wanted:
            self._note(optimizer, number, step, is_skipped=is_skipped)

    def _is_early(self, number: int) -> bool:
        many = self.state.settings.steps
        return self.made[number] < many and self.state.steps[number] <= many + _MAX_SKIPPED

    def _ends_epoch(self) -> bool:
        this = self.state.first_trained
        is_last = this is not None and this is self.state.pass_ and this.length is not None
        return bool(is_last and this.k == this.length <= MAX_EPOCH)

    def _note(self, optimizer: Any, number: int, step: int, *, is_skipped: bool) -> None:
        state, given = self.state, parameters_of(optimizer)
        window = state.window
        for each in given:
            state.dtype = {torch.bfloat16: "bfloat16", torch.float16: "float16"}.get(each.dtype, state.dtype)
        shards = [shard_of(each) for each in given]
        is_first = not dist.is_initialized() or dist.get_rank() == 0
        detail = Detail(
            gradients=_unclipped(given, self._gradients(number, given), window.before_clip),
            parameters=tuple(
                kept(each) if shard is not None or (is_first and each.requires_grad) else None
                for each, shard in zip([] if state.settings.is_replay else given, shards, strict=False)
            ),
            boxes=() if state.settings.is_replay else tuple(map(box_of, given)),
            backward=tuple(_of_optimizer(each, given) for each in window.backward),
            clips=tuple(window.clips),
            inputs=tuple(window.inputs),
            calls=tuple(window.calls),
        )
        state.notes.write(
            NotedStep(
                number,
                step,
                users_line(),
                state.store.add(detail),
                tuple(state.names.get(id(each), f"parameter {place}") for place, each in enumerate(given)),
                tuple(WHOLE if shard is None else shard for shard in shards),
                tuple(checksum(getattr(each, "_local_tensor", each.detach())) for each in given),
                tuple(window.norms),
                tuple(window.rows),
                is_skipped,
                state.dtype,
                state.owner,
            )
        )

    def _gradients(self, number: int, given: list[Any]) -> tuple[Sampled | None, ...]:
        """Return some numbers of each gradient; one process picks those that ranks picked of their shards."""
        state = self.state
        ranks = state.ranks.details(number, state.steps[number]) if state.settings.is_replay else {}
        events = state.ranks.steps.get((number, state.steps[number]), {}) if ranks else {}
        found = []
        for place, each in enumerate(given):
            shards = {
                event.pieces[place]: (box_at(ranks[rank], place), gradient.size)
                for rank, event in sorted(events.items(), reverse=True)
                if place < len(event.pieces)
                and event.pieces[place] != WHOLE
                and (gradient := ranks[rank].gradients[place]) is not None
            }
            found.append(
                None
                if each.grad is None
                else sampled_shards(each.grad, [part for _, part in sorted(shards.items())])
            )
        return tuple(found)

    @never_raises
    def after(self, optimizer: Any) -> None:
        """Begin the next step; the process ends once all steps that the ranks noted are made."""
        state = self.state
        if optimizer is not self.outer:
            return
        self.outer = None
        if state.is_done:
            return
        number = state.optimizers.index(optimizer)
        state.window.is_stepped = True
        if state.settings.is_replay:
            set_parameters(state, number, state.steps[number] + 1)
            if all(state.steps[each] >= step for each, step in state.ranks.steps):
                sys.stdout.flush()
                with contextlib.suppress(Exception):
                    dist.barrier()
                os._exit(0)
            return
        this = state.first_trained
        is_short = this is not None and this.length is not None and this.length <= MAX_EPOCH
        if not (is_short and this.k < this.length):
            has_waited = state.counts["backward"] > _MAX_WAIT
            known = state.steps if has_waited else range(len(state.optimizers))
            state.is_done = not any(map(self._is_early, known))

    @never_raises
    def clip(self, parameters: list[Any]) -> None:
        """Note a clipping, and keep the gradients as they are before it."""
        state, window = self.state, self.state.window
        if state.is_done:
            return
        plain = [each.grad for each in parameters if each.grad is not None and shard_of(each) is None]
        norm = sum(sampled(each).norm ** 2 for each in plain) ** 0.5
        window.clips.append(Clip(users_line(), norm))
        for number, optimizer in enumerate(state.optimizers):
            given = parameters_of(optimizer)
            if any(each is other for each in given[:1] for other in parameters):
                state.steps[number] += 1
                pairs = zip(given, self._gradients(number, given), strict=True)
                state.steps[number] -= 1
                window.before_clip |= {id(each): part for each, part in pairs if part is not None}


def _unclipped(
    given: list[Any], now: tuple[Sampled | None, ...], before: dict[int, Sampled]
) -> tuple[Sampled | None, ...]:
    """Return the gradients before they were clipped, if nothing but one factor for all has changed since."""
    pairs = [(part, before.get(id(each))) for each, part in zip(given, now, strict=True) if part is not None]
    ratios = [part.norm / was.norm for part, was in pairs if was is not None and was.norm]
    is_one_factor = bool(ratios) and max(ratios) - min(ratios) <= _SAME * max(ratios)
    is_one_factor = is_one_factor and all(
        was is None or proportional(part.data, was.data) for part, was in pairs
    )
    if not is_one_factor or any(was is None for _, was in pairs):
        return now
    return tuple(None if part is None else before[id(each)] for each, part in zip(given, now, strict=True))


def _of_optimizer(noted: Backward, given: list[Any]) -> Backward:
    """Return a pass with the gradients of an optimizer's parameters."""
    if not noted.gradients:
        return noted
    found: Any = noted.gradients[0]
    parts = (found.get(id(each)) for each in given)
    return replace(noted, gradients=tuple(None if part is None else as_bytes(part) for part in parts))


def set_parameters(state: State, number: int, step: int) -> None:
    """Set an optimizer's parameters to the ranks' before a step."""
    events = state.ranks.steps.get((number, step))
    if not events:
        return
    details = state.ranks.details(number, step)
    for place, parameter in enumerate(parameters_of(state.optimizers[number])):
        shards: dict[int, tuple[Box | None, Kept]] = {}
        for rank, event in sorted(events.items()):
            part = details[rank].parameters[place] if place < len(event.pieces) else None
            if part is not None:
                shards.setdefault(event.pieces[place], (box_at(details[rank], place), part))
        if shards and not put_shards(
            parameter, [shard for _, shard in sorted(shards.items())], state.settings.nudge
        ):
            name = state.names.get(id(parameter), f"parameter {place}")
            state.remark(f"{name} has another size or type on one process than on the ranks", is_fatal=True)


def watch(state: State) -> None:
    """Follow the optimizers, gradient scalers and clippings of this process."""
    found = Steps(state)

    @around(optimizers.Optimizer, "add_param_group")
    def made(add: Any, /, self: Any, param_group: Any) -> None:
        add(self, param_group)
        if self not in state.optimizers:
            state.optimizers.append(self)

    def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            found.before(optimizer)
            return None

        def noted() -> Any:
            result = closure()
            found.before(optimizer)
            return result

        return args[:1], {**kwargs, "closure": noted}

    optimizers.register_optimizer_step_pre_hook(before)
    optimizers.register_optimizer_step_post_hook(lambda optimizer, _args, _kwargs: found.after(optimizer))
    _follow_scalers(found)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        _follow_clipping(found, name)
    _follow_fsdp(found)


def _follow_scalers(found: Steps) -> None:
    @around(torch.amp.GradScaler, "step")
    def scaled(step: Any, /, self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        found.has_stepped = False
        result = step(self, optimizer, *args, **kwargs)
        if not found.has_stepped:
            inner = getattr(optimizer, "optimizer", optimizer)
            found.before(inner, is_skipped=True)
            found.after(inner)
        return result

    @around(torch.amp.GradScaler, "scale")
    def scale(multiply: Any, /, self: Any, outputs: Any) -> Any:
        result = multiply(self, outputs)
        if self._enabled and self._scale is not None:
            found.state.scale = value(self._scale)
        return result


def _follow_fsdp(found: Steps) -> None:
    """Follow FSDP1's own clipping, which calls PyTorch's function on one process only."""

    def follow(module: Any) -> None:
        @around(module.FullyShardedDataParallel, "clip_grad_norm_")
        def clip(run: Any, /, self: Any, *args: Any, **kwargs: Any) -> Any:
            found.clip(list(self.parameters()))
            return run(self, *args, **kwargs)

    when_imported("torch.distributed.fsdp.fully_sharded_data_parallel", follow)


def _follow_clipping(found: Steps, name: str) -> None:
    @around(nn.utils.clip_grad, name)
    def clip(run: Any, /, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        found.clip(given)
        return run(given, *args, **kwargs)

    setattr(nn.utils, name, clip)
