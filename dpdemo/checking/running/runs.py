"""Running copies of a model on one virtual GPU, under DataParallel, and chunk by chunk."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parallel._functions import Scatter

from dpdemo.calls.tree import rebuild, tensors_in
from dpdemo.checking.evidence import RaisedError
from dpdemo.checking.observing import state
from dpdemo.checking.observing.holders import core_of
from dpdemo.checking.observing.leaves import rebuild_arguments
from dpdemo.checking.recording.by_hand import is_in_chunks
from dpdemo.checking.recording.drafts import raised
from dpdemo.checking.running import randomness
from dpdemo.checking.running.batches import (
    Stays,
    could_be_lengths,
    in_double,
    model_in_double,
    nothing_stays,
    on_device,
)
from dpdemo.checking.running.copying import ModelSource
from dpdemo.models.failure import users_code
from dpdemo.models.inputs import Arguments
from dpdemo.models.rows import is_for_gpus, rows_of

Whole = Mapping[str, torch.Tensor]
"""Arguments that are not cut, by path."""


@dataclass
class RunResult:
    """What one forward and backward left behind, with its live values."""

    model: nn.Module
    result: tuple[object] | None = None
    error: RaisedError | None = None
    used_random: bool = False
    before: state.Snapshot = field(default_factory=dict)
    after: state.Snapshot = field(default_factory=dict)
    given: Arguments = ((), {})
    untouched: Arguments = ((), {})
    writes_parameters: bool = False


class _CutInto(nn.DataParallel[nn.Module]):
    """DataParallel that cuts a batch into chunks of given sizes, as a program's own scatter did."""

    def __init__(self, sizes: tuple[int, ...], module: nn.Module, device_ids: list[int], dim: int) -> None:
        super().__init__(module, device_ids[: len(sizes)], dim=dim)
        self._sizes = sizes

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        """Cut every tensor of the arguments; the program's scatter has cut each of them too."""
        given = (tuple(inputs), kwargs)
        cut: list[Any] = [
            Scatter.apply(device_ids, self._sizes, self.dim, tensor)  # type: ignore[no-untyped-call]
            for tensor in tensors_in(given)
        ]
        replicas = range(len(device_ids))
        return zip(*[_filled(given, [chunks[index] for chunks in cut]) for index in replicas], strict=True)


def _filled(given: Any, tensors: list[torch.Tensor]) -> Any:
    """Build the same arguments with other tensors."""
    left = iter(tensors)
    return rebuild(given, lambda leaf: next(left) if isinstance(leaf, torch.Tensor) else leaf)


@dataclass(frozen=True)
class Runner:
    """Knows how the model is placed and wrapped; runs copies of it, each from the same state.

    With `sizes` a batch is cut into such chunks. With `keeps_modes` a copy's modules stay in training
    or evaluation as the model's are, each by itself. With `calms` the layers of torch.nn are in evaluation,
    and the model's own code in training: dropout draws nothing, and BatchNorm takes no statistics.
    """

    source: ModelSource
    device_ids: tuple[int, ...]
    dim: int = 0
    autocast: str | None = None
    keeps_modes: bool = False
    calms: bool = False
    sizes: tuple[int, ...] = ()

    @property
    def first(self) -> torch.device:
        """The GPU that holds the model."""
        return torch.device("cuda", self.device_ids[0])

    @property
    def forward(self) -> Callable[..., object]:
        """The forward of the model."""
        return core_of(self.source.prototype).forward

    def run_alone(self, mode: str, given: Arguments) -> tuple[RunResult, Stays]:
        """Run on one device, with all tensors there, or all but lengths where forward wants them so.

        Of an argument that is one number for each GPU it gets one.
        """
        given = self._for_one_gpu(given)
        ran = self.run(self.single_model(mode), given)
        if ran.error is None or "cpu" not in ran.error.message.lower():
            return ran, nothing_stays
        again = self.run(self.single_model(mode), given, could_be_lengths)
        return (ran, nothing_stays) if again.error is not None else (again, could_be_lengths)

    def _for_one_gpu(self, given: Arguments) -> Arguments:
        number = len(self.device_ids)
        is_ambiguous = rows_of(*given, self.dim, number) == number  # a column for each sample has one row too

        def first(leaf: object) -> object:
            if not isinstance(leaf, torch.Tensor) or not leaf.dim() > self.dim >= -leaf.dim():
                return leaf
            is_column = leaf.dim() == 2 or not is_ambiguous
            return leaf.narrow(self.dim, 0, 1) if is_column and is_for_gpus(leaf, self.dim, number) else leaf

        args, kwargs = rebuild(given, first)
        return args, kwargs

    def alone_on(self, mode: str, given: Arguments, *, double: bool = False) -> object:
        """Return what a plain call gives, for a comparison aside; None where it fails."""
        model = self.single_model(mode)
        if double:
            model = model_in_double(model)
            given = rebuild(given[0], in_double), rebuild(given[1], in_double)
        return self.called_aside(model, given)

    def called_aside(self, model: nn.Module, given: Arguments) -> object:
        """Return what a model on the first GPU gives, of which nothing else is noted; None where it fails."""
        args, kwargs = on_device(given[0], self.first), on_device(given[1], self.first)
        randomness.seed_all()
        try:
            with warnings.catch_warnings(), self._context(), users_code():
                warnings.simplefilter("ignore")
                return model(*args, **kwargs)
        except Exception:  # noqa: BLE001 - the user's model may raise anything
            return None

    def single_model(self, mode: str) -> nn.Module:
        """Make a copy that runs on the first GPU alone."""
        model = self.source.fresh_on(self.first)
        if isinstance(model, nn.DataParallel):
            model = model.module
        for module in model.modules():
            if isinstance(module, nn.DataParallel):
                module.device_ids = module.device_ids[:1]  # then it is a plain call
        return self._in_mode(model, mode)

    def parallel_model(self, mode: str) -> nn.Module:
        """Make a copy under DataParallel, unless the user wrapped it already."""
        model = self.source.fresh_on(self.first)
        if not any(isinstance(module, nn.DataParallel) for module in model.modules()):
            ids = list(self.device_ids)
            wrapped = nn.DataParallel(model, ids, dim=self.dim)
            model = _CutInto(self.sizes, model, ids, self.dim) if self.sizes else wrapped
        return self._in_mode(model, mode)

    def _in_mode(self, model: nn.Module, mode: str) -> nn.Module:
        if not self.keeps_modes:
            model.train(mode == "train" or self.calms)
        for module in model.modules() if self.calms else ():
            is_torchs = type(module).__module__.startswith("torch.nn.")
            if is_torchs or isinstance(module, (_BatchNorm, _DropoutNd)):
                module.training = False  # and not the user's modules inside, as eval() would
        return model

    def run(self, model: nn.Module, given: Arguments, stays: Stays = nothing_stays) -> RunResult:
        """Call a model once, and note its state before and after."""
        args, kwargs = on_device(given[0], self.first, stays), on_device(given[1], self.first, stays)
        ran = RunResult(model, given=(args, kwargs))
        ran.untouched = (on_device(args, torch.device("cpu")), on_device(kwargs, torch.device("cpu")))
        core = core_of(model)
        ran.before = state.snapshot(core)
        randomness.seed_all()
        start = randomness.progress()
        versions = [parameter._version for parameter in core.parameters()]
        with warnings.catch_warnings(record=True), self._context():
            warnings.simplefilter("always")
            try:
                with users_code():
                    ran.result = (_gathered(model, model(*args, **kwargs)),)
            except Exception as error:  # noqa: BLE001 - the user's model may raise anything
                ran.error = raised("replica", error)
        ran.used_random = randomness.progress() != start
        ran.writes_parameters = versions != [parameter._version for parameter in core.parameters()]
        ran.after = state.snapshot(core)
        return ran

    def _context(self) -> AbstractContextManager[object]:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast("cuda", dtype=getattr(torch, self.autocast))

    def chunk_results(
        self, chunks: list[Arguments], mode: str, whole: Whole | None = None, *, double: bool = False
    ) -> list[object] | None:
        """Run chunks one by one on the first GPU; None where one fails.

        Args:
            chunks: the arguments of each, such as those that reached the replicas.
            mode: train or eval.
            whole: arguments that are given to each chunk as they were, uncut: their values by path.
            double: whether to compute in double precision, instead of the model's own.

        """
        known, results = whole or {}, []
        for chunk in chunks:
            given = rebuild_arguments(self.forward, chunk, known.get) if known else chunk
            result = self.alone_on(mode, given, double=double)
            if result is None:
                return None
            results.append(result)
        return results


def _gathered(model: nn.Module, result: Any) -> Any:
    """Join the results of replicas that a user's wrapper hands over as they are, for its own criterion."""
    if not isinstance(model, nn.DataParallel) or type(model).gather is nn.DataParallel.gather:
        return result
    if not is_in_chunks(result, len(model.device_ids)):
        return result
    return nn.DataParallel.gather(model, result, model.output_device)
