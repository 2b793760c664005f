"""`check`: run the probes once, let every rule look at the evidence, and sort out what they say."""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dpdemo.errors import UsageError
from dpdemo.preflight import building, randomness
from dpdemo.preflight.batches import Batches, InputSpec, Planned, plan
from dpdemo.preflight.copying import ModelSource
from dpdemo.preflight.evidence import Evidence, Probe, Raised, first_line
from dpdemo.preflight.findings import CheckReport, Finding, merge
from dpdemo.preflight.probes import Prober
from dpdemo.preflight.registry import Rule, choose
from dpdemo.preflight.scan import scan
from dpdemo.preflight.silencing import is_silenced
from dpdemo.virtual import VirtualGpuError, is_active, virtual_gpus

Progress = Callable[[str], None]


def check(  # noqa: PLR0913 - each is an option of the command
    model: nn.Module | Callable[[], Any],
    inputs: Any = None,
    *,
    gpus: int = 4,
    dim: int = 0,
    batch_size: int = 32,
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
        batch_size: what `inputs` is called with, where it is a function.
        data_size: samples of an epoch; without it the last batch may have any size.
        drop_last: whether the short last batch is left out.
        autocast: the type of an autocast around the call, such as "bfloat16".
        select: codes, or beginnings of codes, of the rules to apply; all if empty.
        ignore: codes, or beginnings of codes, of the rules to leave out.
        progress: called with what is under way.

    Raises:
        UsageError: if the model cannot be built, or does not run with these inputs on even one device.

    """
    chosen = choose(select, ignore, where=("`select`", "`ignore`"))
    _expect_settings(gpus, autocast)
    say = progress or (lambda _: None)
    with _gpus(gpus) as handle, randomness.preserved(), warnings.catch_warnings():
        # an RNN asks for cuDNN on any CUDA device, virtual ones too
        warnings.filterwarnings("ignore", message="PyTorch was compiled without cuDNN")
        say("building the model")
        evidence, sizes = _gather_evidence(
            model, inputs, handle, gpus, (dim, batch_size, data_size, drop_last, autocast), say
        )
    return judge(evidence, chosen, sizes)


def _expect_settings(gpus: int, autocast: str | None) -> None:
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 2 <= gpus <= 64:
        raise UsageError(
            f"expected 2 to 64 GPUs, got {gpus!r} - at `gpus`", hint="on one GPU DataParallel is a plain call"
        )
    if autocast not in (None, "float16", "bfloat16"):
        raise UsageError(f"expected float16 or bfloat16, got {autocast!r} - at `autocast`")


@contextlib.contextmanager
def _gpus(number: int) -> Iterator[Any]:
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
    model: Any, inputs: Any, handle: Any, gpus: int, settings: tuple[Any, ...], say: Progress
) -> tuple[Evidence, tuple[int, ...]]:
    dim, batch_size, data_size, drop_last, autocast = settings
    built = building.build(model)
    if built.model is None:
        assert built.raised is not None  # noqa: S101 - one of the two
        return Evidence(gpus, building.no_scan(), (), tuple(built.events), built.raised), ()
    wrapper = built.model if isinstance(built.model, nn.DataParallel) else None
    device_ids = tuple(wrapper.device_ids) if wrapper is not None else tuple(range(gpus))
    dim = wrapper.dim if wrapper is not None else dim
    batches = _batches(inputs if inputs is not None else built.inputs, dim, batch_size)
    found = scan(built.model, torch.device("cuda", device_ids[0]))
    evidence = Evidence(
        gpus, found, (), tuple(built.events),
        parameter_bytes=sum(p.numel() * p.element_size() for p in built.model.parameters() if not
        _is_lazy(p)),
    )  # fmt: skip
    planned = plan(batches.size, len(device_ids), data_size, drop_last=drop_last)
    if found.can_be_copied:
        source = ModelSource(built.model, built.rebuild)
        prober = Prober(source, batches, device_ids, dim, autocast, handle)
        evidence = replace(evidence, probes=tuple(_probe_all(prober, planned, found.model, evidence, say)))
    return evidence, tuple(dict.fromkeys(batch.size for batch in planned))


def _is_lazy(parameter: Any) -> bool:
    return bool(is_lazy(parameter))


def _batches(inputs: Any, dim: int, batch_size: int) -> Batches:
    if inputs is None:
        raise UsageError(
            "expected inputs for the model, got none - at `inputs`",
            hint="give --input 32x128 for each argument, or let the factory return (model, inputs)",
        )
    if isinstance(inputs, list) and inputs and all(isinstance(text, str) for text in inputs):
        return Batches.from_specs([InputSpec.parse(text) for text in inputs])
    if callable(inputs) and not isinstance(inputs, torch.Tensor):
        return Batches.from_function(inputs, batch_size)
    return Batches.from_example(inputs, dim)


def _probe_all(
    prober: Prober, planned: list[Planned], name: str, evidence: Evidence, say: Progress
) -> Iterator[Probe]:
    for batch in planned:
        say(f"batch {batch.size}, {batch.mode}")
        probe = prober.probe(batch)
        if probe.single.raised is not None:
            if "'DataParallel' object has no attribute" in probe.single.raised.message:
                yield probe  # the one exception without DataParallel that is about it
            elif batch is planned[0]:
                raise _does_not_run(probe.single.raised, name, evidence)
            continue
        yield probe
        yield from prober.probe_again(batch, probe)


def _does_not_run(error: Raised, name: str, evidence: Evidence) -> UsageError:
    places = "".join(f"\n  {place} in {place.function}\n    {place.code}" for place in error.places)
    plain = [held.path for held in evidence.scan.of_kind("tensor") if "on cpu" in held.detail]
    hint = "this is not about DataParallel: a plain call on one GPU fails; give inputs that the model takes"
    if plain and "device" in error.message:
        hint = f"`{plain[0]}` is a plain tensor, not moved by `.to()` and DataParallel: register_buffer"
    return UsageError(
        f"expected {name} to run with these inputs on one GPU, got {error.type}: "
        f"{first_line(error.message)} - "
        f"at the first plain call, without DataParallel{places}",
        hint=hint,
    )


def judge(evidence: Evidence, chosen: tuple[Rule, ...], sizes: tuple[int, ...] = ()) -> CheckReport:
    """Let rules look at evidence; a rule that others explain keeps silent."""
    found: list[Finding] = []
    for rule in chosen:
        if not rule.unless:
            found += rule.findings(evidence)
    for rule in chosen:
        if rule.unless and not any(one.code.startswith(rule.unless) for one in found):
            found += rule.findings(evidence)
    merged = merge(found)
    kept = tuple(finding for finding in merged if not is_silenced(finding))
    return CheckReport(evidence.scan.model, evidence.num_gpus, kept, sizes, len(merged) - len(kept))
