"""`check`: run the probes once, let every rule look at the evidence, and sort out what they say."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
from torch import nn

from dpdemo.checking.evidence import Evidence, Probe, Scan
from dpdemo.checking.observing.caches import caches_of
from dpdemo.checking.observing.holders import core_of
from dpdemo.checking.observing.meanwhile import kept_by_hooks, used_meanwhile
from dpdemo.checking.observing.scan import scan
from dpdemo.checking.precedence import findings_of
from dpdemo.checking.recording.inside import ready_to_watch
from dpdemo.checking.registry import Rule, choose, is_named
from dpdemo.checking.request import Progress, Request
from dpdemo.checking.running import building, randomness
from dpdemo.checking.running.batches import ProbeBatch, plan
from dpdemo.checking.running.copying import ModelSource
from dpdemo.checking.running.modes import may_differ
from dpdemo.checking.running.probing import Prober, as_placed, left_behind, probe_all
from dpdemo.checking.running.runs import Runner
from dpdemo.errors import UsageError
from dpdemo.models.inputs import Batches, batches_for
from dpdemo.results.check import CheckReport
from dpdemo.results.findings import Finding
from dpdemo.virtual import virtual_gpus

_BATCH_SIZE = 32
_COMMENT = re.compile(r"#\s*dpdemo:\s*ignore(?P<list>\[(?P<names>[^\]]*)\])?")
"""A comment in the user's code that silences rules on its line: `# dpdemo: ignore[DP302]`."""


def check(  # noqa: PLR0913 - each is an option of the command
    model: nn.Module | Callable[[], object],
    inputs: object = None,
    *,
    gpus: int = 4,
    dim: int = 0,
    batch_size: int | None = None,
    data_size: int | None = None,
    drop_last: bool = False,
    autocast: str | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    progress: Progress | None = None,
) -> CheckReport:
    """Run a model under genuine DataParallel on virtual GPUs, against one device, and name each pitfall.

    Args:
        model: the model, or better a function that builds it: it may return (model, inputs), or a model
            that is in DataParallel already. The model itself is never run or changed: its copies are.
        inputs: a tensor, a tuple of arguments, a dict of keyword arguments, a (tuple, dict) of both, or a
            function that returns one of these for a batch size. Shapes as from `--input` are given as a
            list of texts.
        gpus: how many virtual GPUs.
        dim: the batch dimension.
        batch_size: how many rows a batch has: 32 for a function of `inputs`, and those of an example or of
            shapes, where left out.
        data_size: samples of an epoch; without it the last batch may have any size.
        drop_last: whether the short last batch is left out.
        autocast: the type of an autocast around the call, such as "bfloat16".
        select: codes, or beginnings of codes, of the rules to apply; all if empty.
        ignore: codes, or beginnings of codes, of the rules to leave out.
        progress: called with what is under way.

    Returns:
        The findings, each with its rule, its place in the model's code and a fix.

    Raises:
        UsageError: if the model cannot be built, or does not run with these inputs on even one device.

    """
    request = Request(
        gpus=gpus, dim=dim, batch_size=batch_size, data_size=data_size, drop_last=drop_last,
        autocast=autocast, select=select, ignore=ignore, progress=progress,
    )  # fmt: skip
    return check_found(lambda: (model, inputs), request)


def check_found(
    find: Callable[[], tuple[nn.Module | Callable[..., object], object]], request: Request
) -> CheckReport:
    """Check a model that is imported where the GPUs are: a file may ask for them as it is read.

    Args:
        find: gives the model and the inputs, as `check` takes them.
        request: the options of `check`.

    Raises:
        UsageError: as `check` does, and what `find` raises.

    """
    chosen = choose(request.select, request.ignore)
    with virtual_gpus(request.gpus) as handle, randomness.preserved(), warnings.catch_warnings():
        # an RNN asks for cuDNN on any CUDA device, virtual ones too
        warnings.filterwarnings("ignore", message="PyTorch was compiled without cuDNN")
        request.say("building the model")
        evidence, sizes = _gather_evidence(*find(), handle, request)
    return judge(evidence, chosen, sizes)


def _gather_evidence(
    model: object, inputs: object, handle: object, request: Request
) -> tuple[Evidence, tuple[int, ...]]:
    built = building.build(model, request.target)
    if built.model is None:
        assert built.raised is not None  # noqa: S101 - one of the two
        return Evidence(request.gpus, Scan("(not built)"), (), tuple(built.events), built.raised), ()
    wrapper = built.model if isinstance(built.model, nn.DataParallel) else None
    device_ids = tuple(wrapper.device_ids) if wrapper is not None else tuple(range(request.gpus))
    dim = wrapper.dim if wrapper is not None else request.dim
    batches = _batches_of(built, inputs, dim, request.batch_size)
    gpus = _gpus_of(built.model)
    is_spread = wrapper is None and len(gpus) > 1
    found = scan(built.model, min(gpus, key=str) if is_spread else None)
    assumed = []
    if batches.worked_out:
        assumed.append(f"run with --input {batches.worked_out}, inferred from the first layer")
    if found.wrappers and "" not in found.wrappers:
        assumed.append(
            f"run as it is, for `{found.wrappers[0]}` is in DataParallel already; in another DataParallel "
            "the whole model would fail (DP106)"
        )
    knows_modes = may_differ(built.model)
    planned = plan(
        batches.size, len(device_ids), request.data_size, drop_last=request.drop_last, knows_modes=knows_modes
    )
    evidence = Evidence(request.gpus, found, (), tuple(built.events), assumed=tuple(assumed))
    if found.can_be_copied and not is_spread:  # it is on several GPUs by itself, and runs on no one
        source = ModelSource(built.model, built.rebuild)
        runner = Runner(source, device_ids, dim, request.autocast)
        prober = Prober(runner, batches, handle)
        evidence = _run(evidence, prober, planned, request.say, knows_modes=knows_modes)
    return evidence, tuple(dict.fromkeys(batch.size for batch in planned))


def _run(
    evidence: Evidence, prober: Prober, planned: list[ProbeBatch], say: Progress, *, knows_modes: bool
) -> Evidence:
    """Run the planned batches and some extra calls on copies of the model, and add what they show."""
    runner, found, assumed = prober.runner, evidence.scan, evidence.assumed
    given = prober.batches.arguments(planned[0].size)
    with ready_to_watch():
        placed = as_placed(found, runner)
        if paths := left_behind(placed, runner, given):
            placed = as_placed(found, runner)
            few = [f"`{path}`" for path in paths[:3]] + [f"{len(paths) - 3} more"] * (len(paths) > 3)
            told = (
                f"run with {', '.join(few)} on the first GPU: `.to()` and `.cuda()` leave it on the CPU, and "
                "then no call would run"
            )
            assumed = (*assumed, told)
        probes, failed = probe_all(prober, planned, found.model, say, knows_modes=knows_modes)
        used = used_meanwhile(runner, probes[0].mode, given)
    kept, caches = kept_by_hooks(runner, probes[0].mode, given), caches_of(runner.source.prototype)
    return replace(
        evidence, scan=placed, probes=tuple(probes), assumed=assumed, failed=tuple(failed), meanwhile=used,
        kept=kept, caches=caches,
    )  # fmt: skip


def _gpus_of(model: nn.Module) -> set[torch.device]:
    """List the GPUs that parts of a model are on, but for those that are wrapped."""
    wrapped = {
        id(tensor)
        for module in model.modules()
        if isinstance(module, nn.DataParallel)
        for tensor in (*module.parameters(), *module.buffers())
    }
    tensors = (tensor for tensor in (*model.parameters(), *model.buffers()) if id(tensor) not in wrapped)
    return {tensor.device for tensor in tensors if tensor.device.type == "cuda"}


def _batches_of(built: building.Built, inputs: object, dim: int, batch_size: int | None) -> Batches:
    """Make the batches: of the inputs given, of those that came with the model, or of a guess.

    Raises:
        UsageError: if there are none, and the layers do not tell; or if the batch has no rows.

    """
    assert built.model is not None  # noqa: S101 - told before
    found = batches_for(core_of(built.model), inputs, built.inputs, batch_size, _BATCH_SIZE, dim)
    if found is None:
        raise UsageError(
            "expected inputs for the model, got none, and its layers do not tell",
            key="inputs",
            hint="give {input=32x128} for each argument, or let the factory return (model, inputs)",
        )
    if found.size < 1:
        raise UsageError(
            f"expected a batch of 1 or more, got {found.size} rows in the first input",
            key="inputs",
            hint=f"dimension {dim} of the first tensor is the batch",
        )
    return found


def judge(evidence: Evidence, chosen: tuple[Rule, ...], sizes: tuple[int, ...] = ()) -> CheckReport:
    """Let rules look at evidence; a rule that others explain keeps silent."""
    merged, failed = findings_of(evidence, chosen)
    kept = tuple(finding for finding in merged if not _is_silenced(finding))
    notes = tuple(dict.fromkeys((*failed, *_notes(evidence))))
    return CheckReport(
        evidence.scan.model, evidence.num_gpus, kept, sizes, len(merged) - len(kept), notes,
        assumed=evidence.assumed, compared=any(map(_is_compared, evidence.probes)),
    )  # fmt: skip


def _is_silenced(finding: Finding) -> bool:
    """Return whether the line that a finding points to asks for silence, or the one that sets its attribute.

    A comment without brackets silences every rule; one with brackets those that it names, by code, by the
    beginning of a code, or by name, as `--ignore` does.
    """
    for place in (finding.set_at, finding.place):
        if place is not None and (comment := _COMMENT.search(place.code)):
            names = [name.strip() for name in (comment["names"] or "").split(",")]
            if comment["list"] is None or any(is_named(finding.rule, name) for name in names if name):
                return True
    return False


def _is_compared(probe: Probe) -> bool:
    """Return whether results or gradients of several replicas were compared with those of one GPU."""
    comparison = probe.comparison
    is_known = comparison.values_equal is not None or comparison.gradients_equal is not None
    is_split = any(len(call.replicas) > 1 for call in probe.calls)
    return is_split and (is_known or comparison.loss is not None)


def _notes(evidence: Evidence) -> Iterator[str]:
    """Tell what was not compared, and why."""
    for probe in evidence.failed:
        mode = "training" if probe.mode == "train" else "evaluation"
        raised = probe.single.raised
        yield f"{evidence.scan.model}: {mode} was not compared, because a plain call of it raises {raised}"
    for probe in evidence.probes:
        error = probe.comparison.single_backward_raised
        if error is not None:
            place = "".join(f" at {place}" for place in error.places[-1:])
            yield (
                f"{evidence.scan.model}: gradients were not compared, because backward raised {error}{place}"
            )
    with_loss = [probe for probe in evidence.probes if probe.comparison.loss_path is not None]
    if with_loss and all(probe.norms_batches and probe.mode == "train" for probe in with_loss):
        yield (
            f"{evidence.scan.model}: the loss was not compared, because BatchNorm takes its statistics of "
            "chunks, and with its layers in evaluation the model does not run, or returns no loss"
        )
    ran = [probe for probe in evidence.probes if probe.call is not None and probe.raised is None]
    if ran and all(probe.single.used_random for probe in ran):
        yield f"{evidence.scan.model}: results were not compared, because forward draws random numbers"
