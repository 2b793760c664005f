"""Observe training: rows, averaged backward passes, and whether the ranks' parameters stay equal."""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.amp.grad_scaler import GradScaler
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers

from dpdemo.models.frames import OURS, is_users
from dpdemo.ranks.events import (
    ModelMade,
    Parameters,
    Rows,
    Statistics,
    Trained,
    Unstepped,
    Unsynced,
)
from dpdemo.ranks.observe import ADDED
from dpdemo.ranks.observe.models import (
    Model,
    Optimized,
    Reductions,
    Wrapped,
    groups_of_fsdp1,
    groups_of_fsdp2,
    is_plain,
    parameters_of,
    ranks_of,
)
from dpdemo.ranks.observe.notes import around, never_raises, users_line
from dpdemo.ranks.observe.numbers import checksum, is_checked
from dpdemo.startup.hook import when_imported
from dpdemo.virtual.labels import flat_tensors
from dpdemo.watching.tree import tensors_in

if TYPE_CHECKING:
    from dpdemo.ranks.observe.loaders import LoaderNotes
    from dpdemo.ranks.observe.notes import Notes
    from dpdemo.virtual.ops.collectives import Call

_MAX_SHAPES, _MAX_NAMES, _MAX_TENSORS, _MAX_ROWS, _ALWAYS = 8, 8, 8, 32, 64
_NO_GRADIENT = (f"{os.sep}nn{os.sep}modules{os.sep}", f"{os.sep}distributed{os.sep}tensor{os.sep}")
"""Files whose collectives in a backward pass belong to the model: SyncBatchNorm, tensor parallelism."""


class TrainingNotes:
    """Follows the models that this process trains together with other ranks."""

    def __init__(self, notes: Notes, loaders: LoaderNotes) -> None:
        self.notes, self.loaders = notes, loaders
        self.models: list[Model] = []
        self.num_alike: Counter[str] = Counter()
        self.by_module: weakref.WeakKeyDictionary[Any, Wrapped] = weakref.WeakKeyDictionary()
        self.norms: weakref.WeakSet[Any] = weakref.WeakSet()
        self.reduced = Reductions()
        self.outer: Any = None
        """The optimizer whose step is under way: ZeroRedundancyOptimizer's makes a step of another one."""

    def _named(self, what: str) -> str:
        """Return a model's name, the same on each rank, whatever other models a rank has of its own."""
        self.num_alike[what] += 1
        return f"{what} #{self.num_alike[what]}"

    @never_raises
    def made(self, module: Any, wrapper: str, groups: list[Any]) -> None:
        """Begin to follow a module."""
        ranks = ranks_of(groups)
        model = Wrapped(self._named(f"{wrapper} on {ranks}"), ranks, module, wrapper, groups)
        self.models.append(model)
        self.by_module[module] = model
        inner = model.inner()
        name = type(inner).__name__.removeprefix("FSDP" if wrapper == "fully_shard" else "")
        self.notes.write(ModelMade(model.name, name, wrapper, tuple(ranks), users_line()))

    @never_raises
    def forward(self, model: Model, inputs: Any, result: Any, *, is_training: bool) -> None:
        """Note what a forward call got and gave."""
        model.forwards += 1
        rows = list(tensors_in(inputs))
        shape = " → ".join(str(list(each[0].shape)) for each in (rows, list(tensors_in(result))) if each)
        if shape in model.shapes or len(model.shapes) < _MAX_SHAPES:
            model.shapes[shape] = model.shapes.get(shape, 0) + 1
        if not is_training:
            return
        model.trains += 1
        model.expect_backward(tensors_in(result))
        if model.trains <= _MAX_ROWS and rows:
            total = 0
            for each in rows[:_MAX_TENSORS]:
                total = checksum(each, total, 1 << 14)
            drawn = self.loaders.sizes()
            self.notes.write(Rows(model.name, total, rows[0].numel(), users_line(), drawn))
        if is_checked(model.trains):
            self._note_norms(model, model.trains)

    def _note_norms(self, model: Model, step: int) -> None:
        stats = model.statistics()
        if stats:
            self.notes.write(Statistics(model.name, step, stats))

    @never_raises
    def compare(self, model: Model, at: str) -> None:
        """Note a checksum of the parameters."""
        parameters = model.compared()
        if parameters:
            total = 0
            for parameter in parameters:
                total = checksum(parameter, total)
            added = tuple(model.added()[:_MAX_NAMES])
            self.notes.write(Parameters(model.name, total, model.steps, at, added))

    @never_raises
    def collective(self, call: Call) -> None:
        """Notice that a gradient is averaged."""
        if call.name != "barrier":
            self.reduced.exchanged += sum(each.numel() for each in flat_tensors(call.args))
        if "reduce" not in call.name:
            return
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(OURS):
            frame = frame.f_back
        if frame is not None and any(part in frame.f_code.co_filename for part in _NO_GRADIENT):
            return
        task, names = torch._C._current_graph_task_id(), {call.group.group_name}
        found = [model for model in self.models if isinstance(model, Wrapped) and model.groups & names]
        if task < 0 or not found:
            self.reduced.add(call.group, list(flat_tensors(call.args[0])))
        if task < 0:
            return
        self.loaders.trained()
        latest = max((model.reached for model in found if model.reached is not None), default=None)
        for model in found:
            if model.module() is not None and model.trains and model.reached in {None, latest}:
                model.averaged += 1
                if model.pass_seen != task + 1:
                    model.pass_seen, model.passes = task + 1, model.passes + 1

    def _of(self, optimizer: Any) -> list[Model]:
        given = {id(each) for each in parameters_of(optimizer)}
        return [
            model
            for model in self.models
            if given & model.parameters.keys() and not (isinstance(model, Wrapped) and model.module() is None)
        ]

    @never_raises
    def begins_step(self, optimizer: Any) -> None:
        """Begin to follow the parameters of an optimizer, if they are under no wrapper."""
        self.outer = self.outer or optimizer
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return
        parameters = parameters_of(optimizer)
        if not all(map(is_plain, parameters)) or self._of(optimizer):
            return
        ranks = self.reduced.ranks or list(range(dist.get_world_size()))
        at = users_line()
        model = Optimized(self._named(f"stepped at {at} on {ranks}"), ranks, parameters, self.norms, at)
        self.models.append(model)
        self.compare(model, at)

    @never_raises
    def stepped(self, optimizer: Any) -> None:
        """Look at the models after a step: at averaged gradients, and whether parameters are equal."""
        if optimizer is not self.outer:
            return
        self.outer = None
        for model in self._of(optimizer):
            model.steps += 1
            self.loaders.trained()
            at = users_line()
            if isinstance(model, Optimized):
                if model.steps <= _ALWAYS or is_checked(model.steps):
                    model.note_reductions(self.reduced)
                if is_checked(model.steps):
                    self._note_norms(model, model.steps)
            elif not model.averaged:
                model.unsynced += 1
                if model.unsynced == 1:
                    unused = tuple(model.unused()[:_MAX_NAMES])
                    self.notes.write(Unsynced(model.name, at, model.bypass, unused))
            model.averaged = 0
            if is_checked(model.steps):
                self.compare(model, at)

    @never_raises
    def scaled(self, optimizer: Any, state: Any) -> None:
        """Count a step that a GradScaler skips, since it found infinite or NaN gradients."""
        if any(float(each) for each in state["found_inf_per_device"].values()):
            for model in self._of(optimizer):
                model.skipped += 1
                model.averaged = 0

    def backward_passes(self) -> int:
        """Count the backward passes that were averaged."""
        return sum(model.passes for model in self.models)

    def end(self) -> None:
        """Note the sums of each model."""
        for model in self.models:
            self._end(model)

    @never_raises
    def _end(self, model: Model) -> None:
        if model.steps:
            self.compare(model, "the end")
        if isinstance(model, Optimized):
            self.notes.write(model.sums())
        elif isinstance(model, Wrapped):
            if model.passes and not model.steps and not model.skipped:
                self.notes.write(Unstepped(model.name, model.wrapper))
            sums = (model.forwards, model.passes, model.steps, model.shapes, model.skipped)
            self.notes.write(Trained(model.name, *sums))

    def unused(self) -> list[str]:
        """Name the parameters of all modules that have no gradient."""
        return [name for model in self.models for name in model.unused()]

    def hints(self, error: BaseException) -> list[str]:
        """Name the parameters that PyTorch's error gives by number, and what to do."""
        text = str(error)
        if "Expected to have finished reduction" not in text:
            return []
        words = text.partition("did not receive grad for rank")[2].partition(":")[2].split()
        numbers = [int(word) for word in words if word.isdigit()]
        names: list[str] = []
        modules: list[Any] = list(self.by_module) if numbers else []
        for module in modules:
            if isinstance(module, DistributedDataParallel):
                parameters, _ = module._build_params_for_reducer()  # type: ignore[no-untyped-call]
                by_id = {id(each): name for name, each in module.module.named_parameters()}
                names += [by_id[id(parameters[at])] for at in numbers if at < len(parameters)]
        added = [name for model in self.models for name in model.added()[:_MAX_NAMES]]
        if added:
            return [f"{', '.join(added)} {ADDED}"]
        named = f"Parameters without a gradient: {', '.join(names)}. " if names else ""
        return [f"{named}Use them in the loss, take them out, or pass find_unused_parameters=True."]


def watch(notes: Notes, loaders: LoaderNotes) -> TrainingNotes:
    """Follow the models that this process trains."""
    found = TrainingNotes(notes, loaders)
    _follow_ddp(found)
    when_imported(
        "torch.distributed.fsdp.fully_sharded_data_parallel",
        never_raises(lambda module: _follow_fsdp1(found, module)),
    )
    when_imported(
        "torch.distributed.fsdp._fully_shard._fsdp_state",
        never_raises(lambda module: _follow_fsdp2(found, module)),
    )

    @around(_BatchNorm, "forward")
    def normalized(normalize: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.training and not isinstance(self, SyncBatchNorm):
            found.norms.add(self)
        return normalize(self, *args, **kwargs)

    know = never_raises(found.reduced.know)

    @around(optimizers.Optimizer, "add_param_group")
    def add_param_group(add: Any, self: Any, group: Any) -> None:
        add(self, group)
        know(self.param_groups[-1]["params"])

    @around(GradScaler, "_maybe_opt_step")
    def maybe_step(step: Any, self: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        found.scaled(optimizer, state)
        return step(self, optimizer, state, *args, **kwargs)

    optimizers.register_optimizer_step_pre_hook(
        lambda optimizer, _args, _kwargs: found.begins_step(optimizer)
    )
    optimizers.register_optimizer_step_post_hook(lambda optimizer, _args, _kwargs: found.stepped(optimizer))
    return found


def _follow_ddp(found: TrainingNotes) -> None:
    kind = DistributedDataParallel

    @around(kind, "__init__")
    def made(init: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        found.made(self, "DistributedDataParallel", [self.process_group])

    @around(kind, "__getattr__")
    def attribute(get: Any, self: Any, name: str) -> Any:
        if name == "module" and torch.is_grad_enabled():
            caller = sys._getframe(2)  # the first one is that of `around`
            if is_users(caller.f_code.co_filename):
                model = found.by_module.get(self)
                if model is not None:
                    model.bypass = users_line(caller)
        return get(self, name)

    _note_calls(found, kind)


def _note_calls(found: TrainingNotes, kind: Any) -> None:
    """Note the calls of a wrapper's forward."""

    @around(kind, "forward")
    def call(forward: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        model = found.by_module.get(self)
        is_training = torch.is_grad_enabled() and self.training
        if model is not None and is_training and is_checked(model.trains):
            found.compare(model, users_line())
        result = forward(self, *args, **kwargs)
        model = model or found.by_module.get(self)
        if model is not None:
            found.forward(model, (args, kwargs), result, is_training=is_training)
        return result


def _follow_fsdp1(found: TrainingNotes, module: Any) -> None:
    """Follow the outermost FullyShardedDataParallel, which is known once its first call begins."""

    @around(module, "_root_pre_forward")
    def root_pre_forward(prepare: Any, state: Any, inner: Any, *args: Any) -> Any:
        result = prepare(state, inner, *args)
        if state._is_root and state not in found.by_module:
            found.made(state, "FullyShardedDataParallel", groups_of_fsdp1(state))
        return result

    _note_calls(found, module.FullyShardedDataParallel)


def _follow_fsdp2(found: TrainingNotes, module: Any) -> None:
    """Follow the outermost module under fully_shard, which is known once its first call begins."""
    state = module.FSDPState
    inputs: dict[int, Any] = {}

    @around(state, "_pre_forward")
    def pre_forward(before: Any, self: Any, inner: Any, args: Any, kwargs: Any) -> Any:
        if self._is_root is None:  # those inside it know by now that they are not
            found.made(inner, "fully_shard", groups_of_fsdp2(inner))
        if self._is_root is not False:
            inputs[id(inner)] = args, kwargs
        return before(self, inner, args, kwargs)

    @around(state, "_post_forward")
    def post_forward(after: Any, self: Any, inner: Any, given: Any, output: Any) -> Any:
        model = found.by_module.get(inner)
        if model is not None and id(inner) in inputs:
            is_training = torch.is_grad_enabled() and inner.training
            found.forward(model, inputs.pop(id(inner)), output, is_training=is_training)
        return after(self, inner, given, output)
