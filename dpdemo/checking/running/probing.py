"""Probing batches: each runs twice from the same state, on one virtual GPU and under genuine DataParallel."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from dpdemo.checking.errors import tells
from dpdemo.checking.evidence import Holding, Probe, RaisedError, Scan, first_line
from dpdemo.checking.observing.held import held_in
from dpdemo.checking.observing.holders import core_of
from dpdemo.checking.observing.judging import Judge
from dpdemo.checking.observing.leaves import rebuild_arguments
from dpdemo.checking.recording.steps import CallRecorder
from dpdemo.checking.request import Progress
from dpdemo.checking.running.batches import ProbeBatch, on_device
from dpdemo.checking.running.runs import Runner
from dpdemo.errors import UsageError
from dpdemo.models.failure import users_code
from dpdemo.models.inputs import Arguments, Batches


def as_placed(found: Scan, runner: Runner) -> Scan:
    """Note where what a model holds is once the model is moved to the first GPU."""
    if not any(map(_is_on_cpu, found.held)):
        return found
    return replace(found, held=tuple(held_in(core_of(runner.source.fresh_on(runner.first)))))


def left_behind(found: Scan, runner: Runner, given: Arguments) -> tuple[str, ...]:
    """List by path what must be on the GPU for a plain call to run; nothing where it does, or never will.

    `.to()` leaves it, and the model could not be checked: it is put there too, as its author will do next.
    Replicas share it all the same.
    """
    held = tuple(item.path for item in found.held if _is_on_cpu(item))
    if not held or _runs(runner, given):
        return ()
    runner.source.bring_along(held)
    if _runs(runner, given):
        return held
    runner.source.bring_along(())
    return ()


def _runs(runner: Runner, given: Arguments) -> bool:
    return any(runner.run_alone(mode, given)[0].error is None for mode in ("train", "eval"))


def _is_on_cpu(held: Holding) -> bool:
    return held.kind in {"tensor", "module", "outer"} and held.device == "cpu"


@dataclass(frozen=True)
class Prober:
    """Has the batches and the GPUs; `probe` runs one batch."""

    runner: Runner
    batches: Batches
    gpus: Any

    def probe(
        self, planned: ProbeBatch, arguments: Arguments | None = None, *, with_gradients: bool = True
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
        return Judge(self.runner, planned, single, parallel, recorder.drafts, with_gradients).judge(peaks)

    def probe_calmly(self, planned: ProbeBatch, probe: Probe) -> list[Probe]:
        """Run a training batch once more without what keeps its numbers from being compared.

        Dropout draws random numbers, and BatchNorm takes statistics of chunks: the layers of torch.nn are in
        evaluation, and the model's own code stays in training. Where it draws numbers itself, all is in
        evaluation.
        """
        if planned.mode != "train" or not (probe.single.used_random or probe.norms_batches):
            return []
        calmly = ProbeBatch(planned.size, "eval", is_real=False)
        calm = replace(self, runner=replace(self.runner, calms=True)).probe(calmly)
        if calm.single.raised is not None or calm.single.used_random:
            calm = replace(self, runner=replace(self.runner, keeps_modes=False)).probe(calmly)
        return [calm] if calm.single.raised is None else []

    def runs_on_cpu(self, planned: ProbeBatch) -> bool:
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

    def probe_again(self, planned: ProbeBatch, probe: Probe) -> list[Probe]:
        """Go on behind what stops at scatter: with arguments that it can take, where some are not such."""
        call = probe.call
        if call is None or probe.single.raised is not None:
            return []
        rows = call.rows if call.dim == 0 else 1
        bad = {leaf.path for leaf in call.tensor_arguments if leaf.shape == () or leaf.size(0) == 1 < rows}
        if not bad:
            return []

        def change(path: str, leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor) or path not in bad:
                return leaf
            return leaf.item() if leaf.dim() == 0 else leaf.expand(rows, *leaf.shape[1:])

        given = rebuild_arguments(self.runner.forward, self.batches.arguments(planned.size), change)
        again = self.probe(planned, given)
        return [again] if again.single.raised is None else []


def probe_all(
    prober: Prober, planned: list[ProbeBatch], name: str, say: Progress, *, knows_modes: bool
) -> tuple[list[Probe], list[Probe]]:
    """Probe each batch; of a model that knows no modes one that ran in the other mode is known already.

    Returns:
        The probes, and those of full batches that fail on one GPU in one mode: the other is compared.

    Raises:
        UsageError: if the model runs on one GPU in neither mode, or leaves the program.

    """
    probes: list[Probe] = []
    failed: list[Probe] = []
    known: dict[int, list[Probe]] = {}
    for batch in planned:
        say(f"batch {batch.size}, {batch.mode}")
        with_gradients = not any(map(_tells_gradients, probes))
        seen = known.get(batch.size) or _probed(prober, batch, name, with_gradients=with_gradients)
        probe = seen[0]
        if probe.single.raised is not None and not tells("DP101", probe.single.raised):
            failed += [probe] * (batch.size == planned[0].size)
            continue
        if batch.size in known:
            alike = (probe if with_gradients else probe.without_gradients(), *seen[1:])
            seen = [replace(call, mode=batch.mode, is_real=batch.is_real) for call in alike]
        elif not knows_modes:
            known[batch.size] = seen
        probes += seen
    if not any(probe.batch_size == planned[0].size for probe in probes):
        raise _does_not_run(failed[0], name, prober, planned[0])
    return probes, failed


def _probed(prober: Prober, batch: ProbeBatch, name: str, *, with_gradients: bool) -> list[Probe]:
    """Probe a batch, of a model that is built anew where the copy may be to blame; and what scatter stops."""
    probe = prober.probe(batch, with_gradients=with_gradients)
    if probe.single.raised is not None and prober.runner.source.rebuild_from_now_on():
        probe = prober.probe(batch)
    error = probe.comparison.single_backward_raised
    if error is not None and error.leaves:
        raise UsageError(
            f"expected {name} to go backward on one GPU, got {error.type}: {first_line(error.message)}"
            f"{_frames(error)}",
            hint="this is not about DataParallel: raise an exception that says what is wrong",
        )
    calm = prober.probe_calmly(batch, probe) if probe.comparison.loss_path is not None else []
    return [probe, *prober.probe_again(batch, probe), *calm]


def _tells_gradients(probe: Probe) -> bool:
    """Return whether training has shown its gradients: those of evaluation would only say so again."""
    is_telling = probe.mode == "train" and not probe.norms_batches and not probe.single.used_random
    return is_telling and (probe.comparison.gradients_equal is not None or probe.comparison.loss is not None)


def _frames(error: RaisedError) -> str:
    return "".join(f"\n  {place} in {place.function}\n    {place.code}" for place in error.places)


def _does_not_run(probe: Probe, name: str, prober: Prober, batch: ProbeBatch) -> UsageError:
    """Tell that a model does not run on one GPU; and whether it does on the CPU."""
    error = probe.single.raised
    assert error is not None  # noqa: S101 - that is why it is told
    hint = "this is not about DataParallel: a plain call on one GPU fails; give inputs that the model takes"
    if prober.runs_on_cpu(batch):
        hint = (
            "on the CPU a plain call runs: forward leaves something there when the model is moved to a GPU, "
            "or virtual GPUs lack what it does, which is a fault of dpdemo"
        )
    elif prober.runner.source.copies:
        hint += "; if the model itself takes them, give a function that builds it: a copy of it was called"
    return UsageError(
        f"expected {name} to run with these inputs on one GPU, got {error.type}: "
        f"{first_line(error.message)} - "
        f"at the first plain call, without DataParallel{_frames(error)}",
        hint=hint,
    )
