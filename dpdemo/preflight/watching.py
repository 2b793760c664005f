"""Checking DataParallel's calls as a program of the user's makes them: what `dpdemo exec --check` builds on.

There is no run on one device to compare with here, so only rules that look at the calls themselves speak.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from dpdemo.preflight.engine import judge
from dpdemo.preflight.evidence import Call, Evidence, Probe, Scan, Single
from dpdemo.preflight.findings import CheckReport
from dpdemo.preflight.recorder import CallRecorder, Draft
from dpdemo.preflight.registry import choose
from dpdemo.preflight.scan import scan


class CallCheck:
    """Collects one call of each kind (shapes, structure, outcome) of every DataParallel, and judges them."""

    def __init__(self, select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> None:
        self._rules = choose(select, ignore, where=("`select`", "`ignore`"))
        self._probes: dict[object, Probe] = {}
        self._scans: dict[int, Scan] = {}
        self._num_gpus = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every DataParallel of this process, for the length of a `with` block."""
        with CallRecorder(on_call=self._take).watching():
            yield

    def _take(self, draft: Draft) -> None:
        call = draft.freeze()
        self._num_gpus = max(self._num_gpus, call.num_gpus)
        mode = "train" if draft.wrapper.training else "eval"
        self._probes.setdefault(
            (_kind(call), mode),
            Probe(call.rows, "train" if mode == "train" else "eval", True, Single(), (call,), call.raised),
        )
        if id(draft.wrapper) not in self._scans:
            self._scans[id(draft.wrapper)] = _scan(draft.wrapper)

    def report(self) -> CheckReport:
        """Judge what was collected so far."""
        scans = list(self._scans.values()) or [Scan("(no DataParallel)")]
        evidence = Evidence(self._num_gpus, scans[0], tuple(self._probes.values()))
        sizes = tuple(dict.fromkeys(probe.batch_size for probe in evidence.probes))
        return judge(evidence, self._rules, sizes)


def _scan(wrapper: nn.Module) -> Scan:
    first = wrapper.device_ids[0] if wrapper.device_ids else 0  # type: ignore[index] # a list
    return scan(wrapper, torch.device("cuda", first))  # type: ignore[arg-type] # a number


def _kind(call: Call) -> object:
    outcome = (call.raised.type, call.raised.place) if call.raised else None
    return (call.module, call.arguments, call.structure, outcome, call.events)
