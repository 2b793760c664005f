"""`check`: run the probes once, let every rule look at the evidence, and sort out what they say."""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.arithmetic.weights import Weight, split_by_weights
from dpdemo.checking import building, randomness
from dpdemo.checking.batches import Planned, plan
from dpdemo.checking.copying import ModelSource
from dpdemo.checking.evidence import Evidence, Probe, Raised, first_line
from dpdemo.checking.inside import ready_to_watch
from dpdemo.checking.merging import merge, with_an_error
from dpdemo.checking.probes import Prober
from dpdemo.checking.registry import Rule, choose
from dpdemo.checking.runs import Runner
from dpdemo.checking.scan import scan
from dpdemo.checking.silencing import is_silenced
from dpdemo.errors import UsageError
from dpdemo.models.guessing import guess_input
from dpdemo.models.inputs import Batches, InputSpec, drawing
from dpdemo.reports.check import CheckReport, Finding
from dpdemo.virtual import VirtualGpuError, is_active, virtual_gpus

Progress = Callable[[str], None]

_BATCH_SIZE = 32


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
    weights: Sequence[Weight] = (),
    chunks: Sequence[int] = (),
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
        weights: cut each batch in these proportions, one number for each GPU, as WeightedDataParallel does.
        chunks: instead of `weights`, the rows of each GPU in a full batch, which they add up to.
        select: codes, or beginnings of codes, of the rules to apply; all if empty.
        ignore: codes, or beginnings of codes, of the rules to leave out.
        progress: called with what is under way.

    Returns:
        The findings, each with its rule, its place in the model's code and a fix.

    Raises:
        UsageError: if the model cannot be built, or does not run with these inputs on even one device.

    """
    chosen = choose(select, ignore, where=("`select`", "`ignore`"))
    _expect_settings(gpus, autocast)
    if chunks:
        batch_size = _size_of_chunks(chunks, weights, batch_size)
        weights = chunks  # of a batch no larger than they are, these proportions give the same rows
    _expect_weights(gpus, weights)
    say = progress or (lambda _: None)
    with _gpus(gpus) as handle, randomness.preserved(), warnings.catch_warnings():
        # an RNN asks for cuDNN on any CUDA device, virtual ones too
        warnings.filterwarnings("ignore", message="PyTorch was compiled without cuDNN")
        say("building the model")
        settings = (dim, batch_size, data_size, drop_last, autocast, tuple(weights))
        evidence, sizes = _gather_evidence(model, inputs, handle, gpus, settings, say)
    return judge(evidence, chosen, sizes)


def _expect_settings(gpus: int, autocast: str | None) -> None:
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 2 <= gpus <= MAX_GPUS:
        raise UsageError(
            f"expected 2 to {MAX_GPUS} GPUs, got {gpus!r} - at `gpus`",
            hint="on one GPU DataParallel is a plain call, and PyTorch can number no more",
        )
    if autocast not in (None, "float16", "bfloat16"):
        raise UsageError(f"expected float16 or bfloat16, got {autocast!r} - at `autocast`")


def _size_of_chunks(chunks: Sequence[int], weights: Sequence[Weight], batch_size: int | None) -> int:
    """Return the batch size that chunks add up to.

    Raises:
        UsageError: if they are no whole numbers, or weights or another batch size are given beside them.

    """
    if weights:
        raise UsageError("expected one of them, got both - at `weights` and `chunks`")
    if not all(isinstance(chunk, int) and chunk >= 0 for chunk in chunks) or not sum(chunks):
        raise UsageError(
            f"expected rows for each GPU, got {list(chunks)} - at `chunks`",
            hint="write for example --chunks 4,13,13",
        )
    if batch_size not in {None, sum(chunks)}:
        raise UsageError(
            f"expected a batch size of {sum(chunks)}, got {batch_size} - at `batch_size`",
            hint="chunks add up to it: leave it out",
        )
    return sum(chunks)


def _expect_weights(gpus: int, weights: Sequence[Weight]) -> None:
    if weights and len(weights) != gpus:
        raise UsageError(f"expected a weight for each of the {gpus} GPUs, got {len(weights)} - at `weights`")
    try:
        split_by_weights(0, tuple(weights) or (1,))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{error} - at `weights`", hint="write for example weights=(1, 2, 2)") from None


@contextlib.contextmanager
def _gpus(number: int) -> Iterator[object]:
    if is_active():
        raise UsageError(
            "expected no open block of virtual GPUs, got one - at `check`",
            hint="call it outside `virtual_gpus`",
        )
    with contextlib.ExitStack() as block:
        try:
            handle = block.enter_context(virtual_gpus(number))
        except VirtualGpuError as error:
            raise UsageError(str(error)) from error
        yield handle


def _gather_evidence(  # noqa: PLR0913, PLR0917 - handed on from `check`
    model: object, inputs: object, handle: object, gpus: int, settings: tuple[Any, ...], say: Progress
) -> tuple[Evidence, tuple[int, ...]]:
    dim, batch_size, data_size, drop_last, autocast, weights = settings
    built = building.build(model)
    if built.model is None:
        assert built.raised is not None  # noqa: S101 - one of the two
        return Evidence(gpus, building.no_scan(), (), tuple(built.events), built.raised), ()
    wrapper = built.model if isinstance(built.model, nn.DataParallel) else None
    device_ids = tuple(wrapper.device_ids) if wrapper is not None else tuple(range(gpus))
    dim = wrapper.dim if wrapper is not None else dim
    inputs, assumed = _inputs_of(built, inputs, batch_size)
    batches = _batches(inputs, dim, batch_size)
    if batches.size < 1:
        raise UsageError(
            f"expected a batch of 1 or more, got {batches.size} rows - at the first of `inputs`",
            hint=f"dimension {dim} of the first tensor is the batch",
        )
    found = scan(built.model, None)
    evidence = Evidence(
        gpus, found, (), tuple(built.events),
        parameter_bytes=sum(p.numel() * p.element_size() for p in built.model.parameters() if not
        _is_lazy(p)),
        assumed=assumed,
    )  # fmt: skip
    planned = plan(batches.size, len(device_ids), data_size, drop_last=drop_last)
    if found.can_be_copied:
        source = ModelSource(built.model, built.rebuild)
        prober = Prober(Runner(source, device_ids, dim, autocast, weights=weights), batches, handle)
        with ready_to_watch():
            probes = tuple(_probe_all(prober, planned, found.model, evidence, say))
        evidence = replace(evidence, probes=probes)
    return evidence, tuple(dict.fromkeys(batch.size for batch in planned))


def _is_lazy(parameter: Any) -> bool:
    return bool(is_lazy(parameter))


def _inputs_of(built: building.Built, inputs: object, batch_size: int | None) -> tuple[Any, tuple[str, ...]]:
    """Find the inputs: those given, or that came with the model, or what its first layer tells.

    Raises:
        UsageError: if there are none, and the layers do not tell.

    """
    assert built.model is not None  # noqa: S101 - told before
    known = inputs if inputs is not None else built.inputs
    if known is not None:
        return known, ()
    core = built.model.module if isinstance(built.model, nn.DataParallel) else built.model
    guessed = guess_input(core, batch_size or _BATCH_SIZE)
    if guessed is None:
        raise UsageError(
            "expected inputs for the model, got none, and its layers do not tell - at `inputs`",
            hint="give --input 32x128 for each argument, or let the factory return (model, inputs)",
        )
    return [guessed], (f"run with --input {guessed}, worked out from the first layer",)


def _batches(inputs: object, dim: int, batch_size: int | None) -> Batches:
    if isinstance(inputs, list) and inputs and all(isinstance(text, str) for text in inputs):
        return Batches.from_specs([InputSpec.parse(text) for text in inputs], batch_size)
    if callable(inputs) and not isinstance(inputs, torch.Tensor):
        return Batches.from_function(drawing(inputs), batch_size or _BATCH_SIZE)
    return Batches.from_example(inputs, dim, batch_size)


def _probe_all(
    prober: Prober, planned: list[Planned], name: str, evidence: Evidence, say: Progress
) -> Iterator[Probe]:
    are_known = False
    for batch in planned:
        say(f"batch {batch.size}, {batch.mode}")
        probe = prober.probe(batch, with_gradients=batch.mode == "train" or not are_known)
        are_known = are_known or _are_gradients_known(probe)
        if probe.single.raised is not None and prober.runner.source.rebuild_from_now_on():
            probe = prober.probe(batch)  # the copy may be to blame
        if probe.single.raised is not None:
            if "'DataParallel' object has no attribute" in probe.single.raised.message:
                yield probe  # the one exception without DataParallel that is about it
            elif batch is planned[0]:
                raise _does_not_run(probe.single.raised, name, evidence, is_copy=prober.runner.source.copies)
            continue
        error = probe.comparison.single_backward_raised
        if error is not None and error.leaves:
            raise _leaves_backward(error, name)
        yield probe
        yield from prober.probe_again(batch, probe)


def _are_gradients_known(probe: Probe) -> bool:
    """Return whether training has shown its gradients: those of evaluation would only say so again."""
    is_telling = probe.mode == "train" and not probe.norms_batches and not probe.single.used_random
    return is_telling and (probe.comparison.gradients_equal is not None or probe.comparison.loss is not None)


def _leaves_backward(error: Raised, name: str) -> UsageError:
    return UsageError(
        f"expected {name} to go backward on one GPU, got {error.type}: {first_line(error.message)}"
        f"{_frames(error)}",
        hint="this is not about DataParallel: raise an exception that says what is wrong",
    )


def _frames(error: Raised) -> str:
    return "".join(f"\n  {place} in {place.function}\n    {place.code}" for place in error.places)


def _does_not_run(error: Raised, name: str, evidence: Evidence, *, is_copy: bool) -> UsageError:
    plain = [held.path for held in evidence.scan.of_kind("tensor") if "on cpu" in held.detail]
    hint = "this is not about DataParallel: a plain call on one GPU fails; give inputs that the model takes"
    if is_copy:
        hint += "; if the model itself takes them, give a function that builds it: a copy of it was called"
    if plain and "device" in error.message:
        hint = f"`{plain[0]}` is a plain tensor, not moved by `.to()` and DataParallel: register_buffer"
    return UsageError(
        f"expected {name} to run with these inputs on one GPU, got {error.type}: "
        f"{first_line(error.message)} - "
        f"at the first plain call, without DataParallel{_frames(error)}",
        hint=hint,
    )


def judge(evidence: Evidence, chosen: tuple[Rule, ...], sizes: tuple[int, ...] = ()) -> CheckReport:
    """Let rules look at evidence; a rule that others explain keeps silent."""
    found: list[Finding] = []
    for rule in chosen:
        if not rule.unless:
            found += rule.findings(evidence)
    for rule in chosen:
        if rule.unless and not any(
            one.code.startswith(rule.unless) and one.severity != "info" for one in found
        ):
            found += rule.findings(evidence)
    merged = merge(with_an_error(found, evidence, chosen))
    kept = tuple(finding for finding in merged if not is_silenced(finding))
    notes = tuple(dict.fromkeys(_notes(evidence)))
    silenced, assumed = len(merged) - len(kept), evidence.assumed
    return CheckReport(
        evidence.scan.model, evidence.num_gpus, kept, sizes, silenced, notes=notes, assumed=assumed
    )


def _notes(evidence: Evidence) -> Iterator[str]:
    """Say of what was not compared, and why."""
    for probe in evidence.probes:
        error = probe.comparison.single_backward_raised
        if error is not None:
            place = "".join(f" at {place}" for place in error.places[-1:])
            yield (
                f"{evidence.scan.model}: gradients were not compared, because backward raised {error}{place}"
            )
