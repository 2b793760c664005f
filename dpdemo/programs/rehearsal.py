"""Rehearsing a call of a user's script: the same call on copies, on one GPU and under DataParallel.

The script must not notice. Copies of the model and of the arguments are run, so that parameters, buffers,
gradients and modes stay as they are; generators are put back; what is allocated and moved is booked apart;
hooks are left out, and what is printed or logged is dropped. What forward does beyond all that, to globals
and files, cannot be held back: docs/check.md says so.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules import module as module_internals

from dpdemo.calls.live import Splitter
from dpdemo.checking.evidence import Probe, RaisedError, first_line
from dpdemo.checking.observing.hooks import is_users_hook
from dpdemo.checking.observing.meanwhile import used_meanwhile
from dpdemo.checking.observing.state import HOOKS
from dpdemo.checking.recording.drafts import Draft, wrapped_or_not
from dpdemo.checking.running import randomness
from dpdemo.checking.running.batches import ProbeBatch
from dpdemo.checking.running.copying import ModelSource
from dpdemo.checking.running.probing import Prober
from dpdemo.checking.running.runs import Runner
from dpdemo.errors import UsageError
from dpdemo.models.failure import users_code
from dpdemo.models.inputs import Batches
from dpdemo.models.rows import rows_of
from dpdemo.programs.muffling import no_output
from dpdemo.virtual import VirtualGpus, separate_ledger


@dataclass(frozen=True)
class Rehearsal:
    """The result of a rehearsal, or why there was none; `raised` is the error of the call on one GPU."""

    probes: tuple[Probe, ...] = ()
    refused: str = ""
    raised: RaisedError | None = None
    meanwhile: tuple[tuple[str, ...], ...] = ()
    """Containers that forward fills with tensors and empties again, as in `Evidence`."""


class _WithoutHooks(ModelSource):
    """Leaves the user's hooks out of the copies: they would write to what the script reads."""

    def fresh(self) -> nn.Module:
        model = super().fresh()
        for module in model.modules():
            for name in HOOKS:
                hooks = getattr(module, name, {})
                for key in [key for key, hook in hooks.items() if is_users_hook(hook)]:
                    del hooks[key]
        return model


def rehearse(draft: Draft, *, is_first: bool = True) -> Rehearsal:
    """Make a call that is about to be made on copies, and compare; nothing that goes wrong is passed on.

    The first call of a model is also looked at while it runs.
    """
    try:
        with _unnoticed() as gpus, users_code():
            return _probe(draft, gpus, is_first=is_first)
    except Exception as error:  # noqa: BLE001 - the user's model may raise anything
        cause = error.__cause__ or error
        what = "it cannot be copied" if isinstance(error, UsageError) else "the rehearsal failed"
        return Rehearsal(refused=f": {what} ({type(cause).__name__}: {first_line(str(cause))})")


def planned_call(draft: Draft) -> ProbeBatch:
    """Describe a call as a batch to probe; one that a script makes is real."""
    rows = rows_of(draft.args, draft.kwargs, draft.wrapper.dim, len(draft.wrapper.device_ids))
    return ProbeBatch(rows, "train" if draft.wrapper.module.training else "eval", is_real=True)


def _probe(draft: Draft, gpus: VirtualGpus, *, is_first: bool) -> Rehearsal:
    wrapper = draft.wrapper
    planned = planned_call(draft)
    batches = Batches(lambda _: (draft.args, draft.kwargs), planned.size)
    source = _WithoutHooks(wrapped_or_not(wrapper))
    sizes = wrapper.chunks if isinstance(wrapper, Splitter) else ()
    runner = Runner(source, tuple(wrapper.device_ids), wrapper.dim, keeps_modes=True, sizes=sizes)
    prober = Prober(runner, batches, gpus)
    probe = prober.probe(planned)
    error = probe.single.raised
    if error is not None:
        return Rehearsal(refused=f" at {probe}: there it raises {error}", raised=error)
    probes = (probe, *prober.probe_again(planned, probe), *prober.probe_calmly(planned, probe))
    used = used_meanwhile(runner, planned.mode, (draft.args, draft.kwargs)) if is_first else ()
    return Rehearsal(probes, meanwhile=used)


@contextlib.contextmanager
def _unnoticed() -> Iterator[VirtualGpus]:
    """Keep what a rehearsal does from the script, for the length of a `with` block."""
    has_gradients = torch.is_grad_enabled()
    with (
        separate_ledger() as gpus,
        randomness.preserved(),
        no_output(),
        _no_hooks_of_all_modules(),
        torch.cuda.device(torch.cuda.current_device()),
        torch.inference_mode(False),  # replicas are outside of it too
        torch.set_grad_enabled(has_gradients),
    ):
        yield gpus


@contextlib.contextmanager
def _no_hooks_of_all_modules() -> Iterator[None]:
    """Take away what `torch.nn.modules.module.register_module_forward_hook` and its like have registered."""
    known = [value for name, value in vars(module_internals).items() if name.startswith("_global_")]
    registries = [(hooks, dict(hooks)) for hooks in known if isinstance(hooks, dict)]
    for hooks, _ in registries:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, before in registries:
            hooks.update(before)
