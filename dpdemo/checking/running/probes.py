"""Running one batch twice from the same state: on one virtual GPU and under genuine DataParallel."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dpdemo.checking.evidence import Probe
from dpdemo.checking.observing.judging import Judge
from dpdemo.checking.recording.steps import CallRecorder
from dpdemo.checking.running.batches import Planned, on_device
from dpdemo.checking.running.runs import Runner
from dpdemo.checking.running.scatterable import repaired
from dpdemo.models.failure import users_code
from dpdemo.models.inputs import Arguments, Batches


@dataclass(frozen=True)
class Prober:
    """Has the batches and the GPUs; `probe` runs one batch."""

    runner: Runner
    batches: Batches
    gpus: Any

    def probe(
        self, planned: Planned, arguments: Arguments | None = None, *, with_gradients: bool = True
    ) -> Probe:
        """Run a batch on one device and under DataParallel, and compare; gradients too if they are wanted."""
        given = arguments or self.batches.arguments(planned.size)
        single, stays = self.runner.run_alone(planned.mode, given)
        self.gpus.reset_peaks()
        held = [self.gpus.live_bytes(index) for index in range(len(self.gpus))]
        recorder = CallRecorder()
        model = self.runner.parallel_model(planned.mode)
        with recorder.watching():
            parallel = self.runner.run(model, given, stays)
        peaks = tuple(self.gpus.peak_bytes(index) - before for index, before in enumerate(held))
        judge = Judge(self.runner, planned, single, parallel, recorder.drafts)
        judge.compares_gradients = with_gradients
        return judge.judge(peaks)

    def runs_on_cpu(self, planned: Planned) -> bool:
        """Whether a plain call runs where the model and its inputs stay on the CPU."""
        try:
            model = self.runner.source.fresh().cpu().train(planned.mode == "train")
            args, kwargs = (
                on_device(part, torch.device("cpu")) for part in self.batches.arguments(planned.size)
            )
            with users_code():
                model(*args, **kwargs)
        except Exception:  # noqa: BLE001 - the user's model may raise anything
            return False
        return True

    def probe_again(self, planned: Planned, probe: Probe) -> Iterator[Probe]:
        """Go on behind what stops at scatter: with arguments that it can take."""
        if probe.call is None:
            return
        given = self.batches.arguments(planned.size)
        prototype = self.runner.source.prototype
        forward = (prototype.module if isinstance(prototype, nn.DataParallel) else prototype).forward
        better = repaired(probe.call, given, forward)
        if better is not None:
            again = self.probe(planned, better)
            if again.single.raised is None:
                yield again
