"""Observe training: rows, averaged backward passes, and whether the ranks' parameters stay equal."""

import os
import weakref
import zlib
from typing import Any

import torch
import torch.distributed as dist
from torch.amp.grad_scaler import GradScaler
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.optim import optimizer as optimizers

from dpdemo.calls.tree import tensors_in
from dpdemo.ranks.events import (
    Buffers,
    Late,
    Mode,
    ModelMade,
    Parameters,
    Rows,
    Skipped,
    Statistics,
    StepLeftOut,
    Trained,
    Trap,
    Unstepped,
    Unsynced,
    WrapperGone,
)
from dpdemo.ranks.observe.finite import FiniteNotes
from dpdemo.ranks.observe.loaders import LoaderNotes
from dpdemo.ranks.observe.models import (
    Model,
    Wrapped,
    has_unsharded_gradients,
    parameters_of,
    ranks_of,
    ranks_of_mesh,
    whole_parameters,
)
from dpdemo.ranks.observe.notes import NOWHERE, Notes, frame_below, never_raises, users_line
from dpdemo.ranks.observe.numbers import checksum, is_checked, total, value
from dpdemo.ranks.observe.reductions import Optimized, Reductions, is_plain
from dpdemo.ranks.observe.steps import StepNotes
from dpdemo.virtual.labels import flat_tensors
from dpdemo.virtual.ops.collectives import Call

_MAX_SHAPES, _MAX_NAMES, _MAX_TENSORS, _MAX_ROWS, _ALWAYS, _MAX_SKIPPED = 8, 8, 8, 32, 64, 8
_NO_GRADIENT = (f"{os.sep}nn{os.sep}modules{os.sep}", f"{os.sep}distributed{os.sep}tensor{os.sep}")
"""Files whose collectives in a backward pass belong to the model: SyncBatchNorm, tensor parallelism."""


class TrainingNotes:
    """Follows the models that this process trains together with other ranks."""

    def __init__(self, notes: Notes, loaders: LoaderNotes) -> None:
        self.notes, self.loaders = notes, loaders
        self.models: list[Model] = []
        self.by_module: weakref.WeakKeyDictionary[Any, Wrapped] = weakref.WeakKeyDictionary()
        self.norms: weakref.WeakSet[Any] = weakref.WeakSet()
        self.reduced = Reductions()
        self.outer: Any = None
        """The optimizer whose step is under way: ZeroRedundancyOptimizer's makes a step of another one."""
        self.pass_at = NOWHERE  # the line of the last backward pass
        self.no_sync = ""  # the line that told a wrapper last not to average
        self.finite = FiniteNotes(notes)
        self.steps = 0

    def _named(self, what: str) -> str:
        """Return a model's name, the same on each rank, whatever other models a rank has of its own."""
        return f"{what} #{self.notes.number(ModelMade, what)}"

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
        self._note_skipped(model)
        model.trains += 1
        model.expect_backward(tensors_in(result), self.reached)
        self.loaders.entered(model.name, inputs)
        if model.trains <= _MAX_ROWS and rows:
            total = 0
            for each in rows[:_MAX_TENSORS]:
                total = checksum(each, total, 1 << 14)
            drawn = self.loaders.sizes()
            self.notes.write(Rows(model.name, total, rows[0].numel(), users_line(), drawn))
        if is_checked(model.trains):
            self._note_norms(model, model.trains)

    def _note_mode(self, model: Model, at: str) -> None:
        """Note a step of a model that was put into training mode since, or into that of an evaluation."""
        module = model.inner() if isinstance(model, Wrapped) else None
        if module is not None and module.training != model.is_train and model.num_modes < _MAX_SKIPPED:
            model.is_train, model.num_modes = module.training, model.num_modes + 1
            self.notes.write(Mode(model.name, model.steps, at, module.training))

    def _note_skipped(self, model: Model) -> None:
        """Note that no backward pass came to the batch before, or that a batch was drawn and not used."""
        drawn = self.loaders.last
        batch = None if drawn is None else (id(drawn), drawn.num_batches)
        before, model.batch = model.batch, batch
        was_unused = (
            before is not None and batch is not None and before[0] == batch[0] and batch[1] - before[1] > 1
        )
        was_left = bool(model.called_at) and model.reached_at < model.called_at
        if (was_left or was_unused) and model.num_skipped < _MAX_SKIPPED:
            model.num_skipped += 1
            self.notes.write(Skipped(model.name, model.trains, model.line, was_left))
        model.called_at, model.line = model.tick(), users_line()

    def _note_norms(self, model: Model, step: int) -> None:
        stats = model.statistics()
        if stats:
            self.notes.write(Statistics(model.name, step, stats))

    @never_raises
    def compare(self, model: Model, at: str) -> None:
        """Note a checksum of the parameters."""
        parameters = model.compared()
        if parameters:
            sums = zlib.crc32(repr([total(each) for each in parameters]).encode())
            added = tuple(model.added()[:_MAX_NAMES])
            self.notes.write(Parameters(model.name, sums, model.steps, at, added))

    @never_raises
    def reached(self, model: Model) -> None:
        """Notice that a backward pass came to an output of a model."""
        is_gone = isinstance(model, Wrapped) and model.is_replicated and model.module() is None
        if is_gone and not model.is_gone_noted:
            model.is_gone_noted = True
            self.notes.write(WrapperGone(model.name, self.pass_at))

    @never_raises
    def pass_begins(self, tensors: Any) -> None:
        """Remember the line of a backward pass, and whether its loss is finite."""
        self.pass_at = users_line()
        self.reduced.pass_begins()
        loss = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        self.finite.loss(loss, self.pass_at)

    @never_raises
    def pass_ended(self) -> None:
        """Look at a gradient of each model, before the program changes it."""
        for model in self.models:
            if model.reached_at > model.stepped_at:
                model.probe.look(model.living())

    @never_raises
    def collective(self, call: Call) -> None:
        """Notice that a gradient is averaged."""
        task, names = torch._C._current_graph_task_id(), {call.group.group_name}
        found = [model for model in self.models if isinstance(model, Wrapped) and model.groups & names]
        is_buckets = task >= 0 and bool(found) and "reduce" in call.name
        if call.name != "barrier" and not is_buckets:
            self.reduced.exchanged += sum(each.numel() for each in flat_tensors(call.args))
        self.reduced.takes_part(call)
        if "reduce" not in call.name:
            return
        frame = frame_below()
        if frame is not None and any(part in frame.f_code.co_filename for part in _NO_GRADIENT):
            return
        if not is_buckets:
            self.reduced.add(call.group, list(flat_tensors(call.args[0])))
        if task < 0:
            return
        self.loaders.trained()
        self.finite.bucket(call, self.pass_at)
        latest = max((model.reached for model in found if model.reached is not None), default=None)
        for model in found:
            if model.module() is not None and model.trains and model.reached in {None, latest}:
                model.averaged += 1
                model.reduced_at = model.tick()
                if model.pass_seen != task + 1:
                    model.pass_seen, model.passes = task + 1, model.passes + 1

    def of(self, optimizer: Any) -> list[Model]:
        """Return the models that have parameters of an optimizer."""
        given = {id(each) for each in parameters_of(optimizer)}
        return [
            model
            for model in self.models
            if given & model.parameters.keys() and not (isinstance(model, Wrapped) and model.module() is None)
        ]

    @never_raises
    def begins_step(self, optimizer: Any) -> None:
        """Begin to follow the parameters of an optimizer, as far as they are under no wrapper."""
        self.outer = self.outer or optimizer
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return
        self.finite.step(optimizer, self.steps + 1)
        models = self.of(optimizer)
        known = {key for model in models for key in model.parameters}
        sharded = [each for each in parameters_of(optimizer) if hasattr(each, "placements")]
        rest = [each for each in parameters_of(optimizer) if not hasattr(each, "placements")]
        parameters = [each for each in rest if id(each) not in known]
        if not parameters or not all(map(is_plain, rest)):
            return
        ranks = next((model.ranks for model in models), self.reduced.ranks) or list(
            range(dist.get_world_size())
        )
        if sharded and not models:
            ranks = ranks_of_mesh(sharded[0].device_mesh)
        at = users_line()
        model = Optimized(self._named(f"stepped at {at} on {ranks}"), ranks, parameters, self.norms, at)
        model.is_beside = bool(models or sharded)
        wrapped = [each.module() for each in self.models if isinstance(each, Wrapped)]
        whole = whole_parameters([module for module in wrapped if module is not None])
        model.was_whole = any(id(each) in whole for each in parameters)
        self.models.append(model)
        self.compare(model, at)

    @never_raises
    def stepped(self, optimizer: Any) -> None:
        """Look at the models after a step: at averaged gradients, and whether parameters are equal."""
        if optimizer is not self.outer:
            return
        self.outer, self.finite.first, self.reduced.has_pass = None, None, False
        self.steps += 1
        for model in self.of(optimizer):
            self._stepped(model, users_line())
        self.reduced.scattered.clear()

    def _stepped(self, model: Model, at: str) -> None:
        model.steps += 1
        self._note_mode(model, at)
        self.loaders.trained()
        scale = 0.0
        if isinstance(model, Optimized):
            if model.steps <= _ALWAYS or is_checked(model.steps):
                model.note_reductions(self.reduced)
            if is_checked(model.steps):
                self._note_norms(model, model.steps)
        elif model.is_synced():
            scale = model.probe.factor()
        elif model.has_new_pass():
            self._note_unsynced(model, at)
        if isinstance(model, Wrapped):
            model.is_averaged_by_hand |= self.reduced.took(model.parameters)
        names = tuple(model.late()[:_MAX_NAMES]) if not model.is_late_noted else ()
        if names:
            model.is_late_noted = True
            self.notes.write(Late(model.name, model.steps, names, at))
        model.ledger = model.ledger or StepNotes(self.notes, model.name)
        model.ledger.add(at, model.named(), scale)
        model.averaged, model.stepped_at = 0, model.tick()

    def _note_unsynced(self, model: Model, at: str) -> None:
        if not model.is_unsynced_noted:
            model.is_unsynced_noted = True
            unused, was_averaged = tuple(model.unused()[:_MAX_NAMES]), bool(model.averaged)
            asked = model.steps, self.pass_at, self.no_sync
            how = was_averaged, bool(model.forwards), torch._C._current_graph_task_id() >= 0
            self.notes.write(Unsynced(model.name, at, model.bypass, unused, *asked, *how))

    @never_raises
    def scaled(self, optimizer: Any, state: Any) -> None:
        """Count a step that a GradScaler skips, since it found infinite or NaN gradients."""
        if any(value(each) for each in state["found_inf_per_device"].values()):
            for model in self.of(optimizer):
                model.skipped += 1
                model.averaged = 0
                if model.skipped <= _ALWAYS:
                    step = model.steps + model.skipped
                    self.notes.write(StepLeftOut(model.name, step, users_line()))

    @never_raises
    def cleared(self, optimizer: Any) -> None:
        """Note that fully_shard keeps gradients which `zero_grad` does not clear."""
        if not self.no_sync:
            return
        for model in self.of(optimizer):
            if not isinstance(model, Wrapped) or model.wrapper != "fully_shard" or model.keeps_gradients:
                continue
            model.keeps_gradients = has_unsharded_gradients(model.module())
            if model.keeps_gradients:
                self.notes.write(Trap("kept-gradients", users_line()))

    def backward_passes(self) -> int:
        """Count the backward passes that were averaged."""
        return sum(model.passes for model in self.models)

    def end(self) -> None:
        """Note the sums of each model."""
        for model in self.models:
            self._end(model)

    @never_raises
    def _end(self, model: Model) -> None:
        if model.ledger is not None:
            model.ledger.flush(is_end=True)
        if isinstance(model, Optimized):
            self.notes.write(model.sums())
        elif isinstance(model, Wrapped):
            if model.passes and not model.steps and not model.skipped:
                self.notes.write(Unstepped(model.name, model.wrapper))
            if model.steps and (found := model.buffers()):
                self.notes.write(Buffers(model.name, found))
            counts, by_hand = (model.forwards, model.passes, model.steps), model.is_averaged_by_hand
            self.notes.write(Trained(model.name, *counts, model.shapes, by_hand, model.skipped))

    def unused(self) -> list[str]:
        """Name the parameters of all modules that have no gradient."""
        return [name for model in self.models for name in model.unused()]


def watch(notes: Notes, loaders: LoaderNotes) -> TrainingNotes:
    """Follow the models that this process trains."""
    found = TrainingNotes(notes, loaders)

    @notes.around(torch.autograd, "backward", why="a backward pass begins and ends")
    def backward(run: Any, /, tensors: Any, *args: Any, **kwargs: Any) -> None:
        found.pass_begins(tensors)
        run(tensors, *args, **kwargs)
        found.pass_ended()

    know, know_norm = never_raises(found.reduced.know), never_raises(found.norms.add)

    @notes.around(_BatchNorm, "forward", why="statistics are those of one rank")
    def normalized(normalize: Any, /, self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.training and not isinstance(self, SyncBatchNorm):
            know_norm(self)
        return normalize(self, *args, **kwargs)

    @notes.around(optimizers.Optimizer, "add_param_group", why="the program may reduce these by hand")
    def add_param_group(add: Any, /, self: Any, param_group: Any) -> None:
        add(self, param_group)
        know(self.param_groups[-1]["params"])

    @notes.around(optimizers.Optimizer, "zero_grad", why="fully_shard may keep gradients elsewhere")
    def zero_grad(clear: Any, /, self: Any, *args: Any, **kwargs: Any) -> None:
        found.cleared(self)
        clear(self, *args, **kwargs)

    @notes.around(GradScaler, "_maybe_opt_step", why="a step is skipped")
    def maybe_step(
        step: Any, /, self: Any, optimizer: Any, optimizer_state: Any, *args: Any, **more: Any
    ) -> Any:
        found.scaled(optimizer, optimizer_state)
        return step(self, optimizer, optimizer_state, *args, **more)

    notes.hooked(optimizers.register_optimizer_step_pre_hook(lambda each, *_: found.begins_step(each)))
    notes.hooked(optimizers.register_optimizer_step_post_hook(lambda each, *_: found.stepped(each)))
    return found
