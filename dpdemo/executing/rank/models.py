"""Observe DistributedDataParallel: rows, averaged backward passes, and whether the replicas stay equal."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from dpdemo.executing.rank.notes import NOWHERE, never_raises, users_line
from dpdemo.executing.rank.numbers import checksum, is_checked, values
from dpdemo.models.frames import is_users

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.executing.rank.loaders import LoaderNotes
    from dpdemo.executing.rank.notes import Notes

_MAX_CHANNELS, _MAX_SHAPES, _MAX_ROWS = 16, 8, 32
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep  # noqa: PTH100, PTH120
_NO_GRADIENT = (f"{os.sep}nn{os.sep}modules{os.sep}", f"{os.sep}distributed{os.sep}tensor{os.sep}")
"""Files whose collectives in a backward pass belong to the model: SyncBatchNorm, tensor parallelism."""


class Replica:
    """One module under DistributedDataParallel."""

    def __init__(self, number: int, module: DistributedDataParallel) -> None:
        self.number = number
        self.module = weakref.ref(module)
        self.parameters = {id(each) for each in module.parameters()}
        self.forwards = self.trains = self.steps = self.averaged = self.checks = 0
        self.pass_seen = self.passes = self.unsynced = 0
        self.is_inside = False
        self.bypass = NOWHERE
        self.shapes: dict[str, int] = {}
        found = module.module.named_modules()
        self.norms = [
            (name, each)
            for name, each in found
            if isinstance(each, _BatchNorm) and not isinstance(each, SyncBatchNorm)
        ]

    def unused(self) -> list[str]:
        """Name the parameters without a gradient, if others have one."""
        module = self.module()
        named = [] if module is None else list(module.module.named_parameters())
        wanted = [(name, each.grad is None) for name, each in named if each.requires_grad]
        return [name for name, is_none in wanted if is_none] if not all(none for _, none in wanted) else []


class ModelNotes:
    """Follows each DistributedDataParallel of this process."""

    def __init__(self, notes: Notes, loaders: LoaderNotes) -> None:
        self.notes, self.loaders = notes, loaders
        self.replicas: list[Replica] = []

    @never_raises
    def made(self, module: DistributedDataParallel) -> None:
        """Begin to follow a module."""
        one = Replica(len(self.replicas), module)
        self.replicas.append(one)
        vars(module)["_dpdemo_number"] = one.number
        self.notes.write(
            "model",
            model=one.number,
            name=type(module.module).__name__,
            ranks=dist.get_process_group_ranks(module.process_group),
            at=users_line(),
        )

    def of(self, module: DistributedDataParallel) -> Replica | None:
        """Return what is known of a module; a copy of it is not followed."""
        number = vars(module).get("_dpdemo_number", -1)
        one = self.replicas[number] if 0 <= number < len(self.replicas) else None
        return one if one is not None and one.module() is module else None

    @never_raises
    def forward(self, one: Replica, inputs: Any, result: Any, *, is_training: bool) -> None:
        """Note what a forward call got and gave."""
        one.forwards += 1
        rows = list(_tensors(inputs))
        shape = " → ".join(str(list(each[0].shape)) for each in (rows, list(_tensors(result))) if each)
        if shape in one.shapes or len(one.shapes) < _MAX_SHAPES:
            one.shapes[shape] = one.shapes.get(shape, 0) + 1
        if not is_training:
            return
        one.trains += 1
        if one.trains <= _MAX_ROWS and rows:
            self.notes.write(
                "rows", model=one.number, step=one.trains, sum=checksum(rows[0], 0, 1 << 14), at=users_line()
            )
        if one.norms and is_checked(one.trains):
            stats = {
                name: values(each.running_mean, _MAX_CHANNELS) + values(each.running_var, _MAX_CHANNELS)
                for name, each in one.norms
                if each.training and each.running_mean is not None and each.running_var is not None
            }
            self.notes.write("norms", model=one.number, step=one.trains, stats=stats)

    @never_raises
    def compare(self, one: Replica, at: str) -> None:
        """Note a checksum of the parameters."""
        module = one.module()
        if module is None or getattr(module, "_comm_hooks", None):
            return
        total = 0
        for parameter in module.module.parameters():
            if parameter.requires_grad:
                total = checksum(parameter, total)
        one.checks += 1
        self.notes.write("parameters", model=one.number, sum=total, steps=one.steps, at=at)

    @never_raises
    def collective(self, name: str, group: Any) -> None:
        """Notice that a gradient is averaged."""
        task = torch._C._current_graph_task_id()
        if task < 0 or "reduce" not in name:
            return
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(_OURS):
            frame = frame.f_back
        if frame is not None and any(part in frame.f_code.co_filename for part in _NO_GRADIENT):
            return
        self.loaders.trained()
        for one in self.replicas:
            module = one.module()
            if module is not None and module.process_group.group_name == group.group_name:
                one.averaged += 1
                if one.pass_seen != task + 1:
                    one.pass_seen, one.passes = task + 1, one.passes + 1

    @never_raises
    def stepped(self, optimizer: Any) -> None:
        """Look at the replicas after a step: at averaged gradients, and whether parameters are equal."""
        given = {id(each) for group in optimizer.param_groups for each in group["params"]}
        for one in self.replicas:
            if not given & one.parameters:
                continue
            one.steps += 1
            self.loaders.trained()
            at = users_line()
            if not one.averaged:
                one.unsynced += 1
                if one.unsynced == 1:
                    self.notes.write(
                        "unsynced", model=one.number, at=at, bypass=one.bypass, unused=one.unused()[:8]
                    )
            one.averaged = 0
            if is_checked(one.steps):
                self.compare(one, at)

    def backward_passes(self) -> int:
        """Count the backward passes that were averaged."""
        return sum(one.passes for one in self.replicas)

    def summary(self) -> dict[str, Any]:
        """Return what is known at the end."""
        for one in self.replicas:
            if one.steps:
                self.compare(one, "the end")
        return {
            "models": [
                {
                    "model": one.number,
                    "forwards": one.forwards,
                    "backwards": one.passes,
                    "steps": one.steps,
                    "unsynced": one.unsynced,
                    "shapes": one.shapes,
                }
                for one in self.replicas
            ],
            "backward": self.backward_passes(),
        }

    def unused(self) -> list[str]:
        """Name the parameters of all modules that have no gradient."""
        return [name for one in self.replicas for name in one.unused()]

    def hints(self, error: BaseException) -> list[str]:
        """Name the parameters that PyTorch's error gives by number, and what to do."""
        text = str(error)
        if "Expected to have finished reduction" not in text:
            return []
        words = text.partition("did not receive grad for rank")[2].partition(":")[2].split()
        numbers = [int(word) for word in words if word.isdigit()]
        names: list[str] = []
        for one in self.replicas:
            module: Any = one.module()
            if module is not None and numbers:
                parameters, _ = module._build_params_for_reducer()
                by_id = {id(each): name for name, each in module.module.named_parameters()}
                names += [by_id[id(parameters[at])] for at in numbers if at < len(parameters)]
        named = f"Parameters without a gradient: {', '.join(names)}. " if names else ""
        return [f"{named}Use them in the loss, take them out, or pass find_unused_parameters=True."]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)


def watch(notes: Notes, loaders: LoaderNotes) -> ModelNotes:
    """Follow the modules of this process under DistributedDataParallel."""
    found = ModelNotes(notes, loaders)
    kind: Any = DistributedDataParallel
    init, forward, get = kind.__init__, kind.forward, kind.__getattr__

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        found.made(self)

    @functools.wraps(forward)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        one = found.of(self)
        if one is None:
            return forward(self, *args, **kwargs)
        is_training = torch.is_grad_enabled() and self.training
        if is_training and one.steps and is_checked(one.trains):
            found.compare(one, users_line())
        result = forward(self, *args, **kwargs)
        found.forward(one, (args, kwargs), result, is_training=is_training)
        return result

    def attribute(self: Any, name: str) -> Any:
        if name == "module" and torch.is_grad_enabled():
            caller = sys._getframe(1)
            if is_users(caller.f_code.co_filename):
                one = found.of(self)
                if one is not None:
                    one.bypass = users_line(caller)
        return get(self, name)

    kind.__init__, kind.forward, kind.__getattr__ = made, call, attribute
    register_optimizer_step_post_hook(lambda optimizer, _args, _kwargs: found.stepped(optimizer))
    return found
