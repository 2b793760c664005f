"""Running one batch twice from the same state: on one virtual GPU and under genuine DataParallel."""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dpdemo.preflight import randomness, state
from dpdemo.preflight.batches import (
    Arguments,
    Batches,
    Planned,
    Stays,
    could_be_lengths,
    nothing_stays,
    on_device,
)
from dpdemo.preflight.copying import ModelSource
from dpdemo.preflight.evidence import Probe, Raised
from dpdemo.preflight.judging import Judge
from dpdemo.preflight.leaves import flatten_arguments, rebuild
from dpdemo.preflight.recorder import CallRecorder, Draft, raised
from dpdemo.preflight.repairs import repaired


@dataclass
class Ran:
    """What one forward and backward left behind, with its live values."""

    model: nn.Module
    result: tuple[Any] | None = None
    error: Raised | None = None
    used_random: bool = False
    before: state.Snapshot = field(default_factory=dict)
    after: state.Snapshot = field(default_factory=dict)
    given: Arguments = ((), {})
    untouched: Arguments = ((), {})
    warned: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prober:
    """Knows how the model is placed and wrapped; `probe` runs one batch.

    With `keeps_modes` a copy's modules stay in training or evaluation as the model's are, each by itself.
    """

    source: ModelSource
    batches: Batches
    device_ids: tuple[int, ...]
    dim: int
    autocast: str | None
    gpus: Any
    keeps_modes: bool = False

    @property
    def first(self) -> torch.device:
        """The GPU that holds the model."""
        return torch.device("cuda", self.device_ids[0])

    def probe(self, planned: Planned, arguments: Arguments | None = None) -> Probe:
        """Run a batch on one device and under DataParallel, and compare."""
        given = arguments or self.batches.arguments(planned.size)
        single, stays = self._run_alone(planned.mode, given)
        self.gpus.reset_peaks()
        held = [self.gpus.live_bytes(index) for index in range(len(self.gpus))]
        recorder = CallRecorder()
        model = self.parallel_model(planned.mode)
        with recorder.watching():
            parallel = self.run(model, given, stays)
        peaks = tuple(self.gpus.peak_bytes(index) - before for index, before in enumerate(held))
        return Judge(self, planned, single, parallel, recorder.drafts).judge(peaks)

    def _run_alone(self, mode: str, given: Arguments) -> tuple[Ran, Stays]:
        """Run on one device, with all tensors there, or all but lengths where forward wants them so."""
        ran = self.run(self.single_model(mode), given)
        if ran.error is None or "cpu" not in ran.error.message.lower():
            return ran, nothing_stays
        again = self.run(self.single_model(mode), given, could_be_lengths)
        return (ran, nothing_stays) if again.error is not None else (again, could_be_lengths)

    def probe_again(self, planned: Planned, probe: Probe) -> Iterator[Probe]:
        """Go on behind what stops at scatter: with arguments that it can take."""
        if probe.call is None:
            return
        given = self.batches.arguments(planned.size)
        prototype = self.source.prototype
        forward = (prototype.module if isinstance(prototype, nn.DataParallel) else prototype).forward
        better = repaired(probe.call, given, forward)
        if better is not None:
            again = self.probe(planned, better)
            if again.single.raised is None:
                yield again

    def single_model(self, mode: str) -> nn.Module:
        """Make a copy that runs on the first GPU alone."""
        model = self.source.fresh().to(self.first)
        if isinstance(model, nn.DataParallel):
            model = model.module
        for module in model.modules():
            if isinstance(module, nn.DataParallel):
                module.device_ids = module.device_ids[:1]  # then it is a plain call
        return self._in_mode(model, mode)

    def parallel_model(self, mode: str) -> nn.Module:
        """Make a copy under DataParallel, unless the user wrapped it already."""
        model = self.source.fresh().to(self.first)
        if not any(isinstance(module, nn.DataParallel) for module in model.modules()):
            model = nn.DataParallel(model, device_ids=list(self.device_ids), dim=self.dim)
        return self._in_mode(model, mode)

    def _in_mode(self, model: nn.Module, mode: str) -> nn.Module:
        return model if self.keeps_modes else model.train(mode == "train")

    def run(self, model: nn.Module, given: Arguments, stays: Stays = nothing_stays) -> Ran:
        """Call a model once, and note its state before and after."""
        args, kwargs = on_device(given[0], self.first, stays), on_device(given[1], self.first, stays)
        ran = Ran(model, given=(args, kwargs))
        ran.untouched = (on_device(args, torch.device("cpu")), on_device(kwargs, torch.device("cpu")))
        core = model.module if isinstance(model, nn.DataParallel) else model
        ran.before = state.snapshot(core)
        randomness.seed_all()
        numbers_before = randomness.states()
        with warnings.catch_warnings(record=True) as caught, self._context():
            warnings.simplefilter("always")
            try:
                ran.result = (model(*args, **kwargs),)
            except Exception as error:  # noqa: BLE001 - the user's model may raise anything
                ran.error = raised("replica", error)
        ran.used_random = not randomness.same(numbers_before, randomness.states())
        ran.warned = tuple(str(warning.message) for warning in caught)
        ran.after = state.snapshot(core)
        return ran

    @contextlib.contextmanager
    def _context(self) -> Iterator[None]:
        if self.autocast is None:
            yield
            return
        with torch.autocast("cuda", dtype=getattr(torch, self.autocast)):
            yield

    def chunk_results(
        self, draft: Draft, mode: str, whole: tuple[str, Any] | None = None
    ) -> list[Any] | None:
        """Run the chunks that reached the replicas one by one on the first GPU; None where one fails.

        `whole` names an argument that is given to each chunk as it was, uncut.
        """
        results = []
        for args, kwargs in draft.delivered:
            model = self.single_model(mode)
            given = self._with_whole(model, args, kwargs, whole)
            randomness.seed_all()
            try:
                with warnings.catch_warnings(), self._context():
                    warnings.simplefilter("ignore")
                    results.append(model(*given[0], **given[1]))
            except Exception:  # noqa: BLE001 - the user's model may raise anything
                return None
        return results

    def _with_whole(self, model: nn.Module, args: Any, kwargs: Any, whole: Any) -> Arguments:
        args, kwargs = on_device(args, self.first), on_device(kwargs, self.first)
        if whole is None:
            return args, kwargs
        names = [path for path, _ in flatten_arguments(model.forward, args, kwargs)]
        path, value = whole
        if path not in names:
            return args, kwargs
        leaves = iter(names)

        def change(_: str, leaf: Any) -> Any:
            return value if next(leaves) == path else leaf

        return rebuild(args, change) if args else args, rebuild(kwargs, change) if kwargs else kwargs
