"""Settings of the calling thread that do not reach the replicas' threads: DP601 to DP603."""

from collections.abc import Iterator

from dpdemo.checking.errors import tells
from dpdemo.checking.evidence import Call, Evidence, Probe
from dpdemo.checking.fills import swapped
from dpdemo.checking.questions.failures import draws_its_own, failures
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Advice, Hit, advise


@rule("DP601", "autocast", "error")
def autocast(evidence: Evidence) -> Iterator[Hit]:
    """Autocast around the call has another type in the replicas.

    What happens: under `autocast("cuda", dtype=torch.bfloat16)` replicas compute in float16, without a
        word; autocast for the CPU or other devices is dropped.
    Why: parallel_apply hands on whether CUDA's autocast is on, and nothing else; its type belongs to the
        thread.
    Before: with torch.autocast("cuda", dtype=torch.bfloat16): y = dp(x)
    After: @torch.autocast("cuda", dtype=torch.bfloat16)   # above def forward(self, x)
    Seen by: the type of autocast in each replica's thread and in the caller's, where results are not those
        of one GPU: a forward that sets it itself is right.
    References: pytorch/pytorch#60706, pytorch/pytorch#105682
    """
    equal = {probe.comparison.values_equal for probe in evidence.probes}
    is_right = True in equal and False not in equal
    for probe, _, name, mine, its in _settings(evidence):
        if name.startswith("autocast") and not (is_right and name == "autocast('cuda')"):
            kind = name.partition("'")[2].partition("'")[0]
            what = f"{name} is {mine} around the call and {its} in replicas"
            code = f'torch.autocast("{kind}", dtype=torch.{mine})'
            advice = _autocast(code, is_replicas=not any(evidence.scan.wrappers)) if mine != "off" else None
            yield Hit(name, what, evidence.scan.forward, probe, advice=advice)


def _autocast(code: str, *, is_replicas: bool) -> Advice:
    """Advise an autocast of the forward that replicas run, which may be that of a part of the model."""
    fill = lambda line, _: f"@{code}\n{line}" if is_replicas and line.startswith("def ") else ""  # noqa: E731
    after, before = "@{code}   # above def forward", "with {code}: y = {call}"
    return advise(after, before=before, fill=fill, code=code)


def _settings(evidence: Evidence) -> Iterator[tuple[Probe, Call, str, str, str]]:
    """List the settings of PyTorch that a replica's thread has otherwise: name, the caller's and its own."""
    for probe, call in evidence.calls:
        mine = dict(call.callers_state)
        seen = {pair for replica in call.replicas for pair in replica.threads_state}
        for name, value in sorted(seen):
            if value != mine.get(name, value):
                yield probe, call, name, mine[name], value


@rule("DP602", "thread-state", "warning", explains=("devices", "difference"))
def thread_state(evidence: Evidence) -> Iterator[Hit]:
    """A setting around the call does not reach the replicas.

    What happens: inference_mode, a default device and saved_tensors_hooks are not in force in forward:
        memory is not saved, new tensors are made on the CPU.
    Why: these settings belong to a thread, and each replica has its own; only the gradient mode is handed on.
    Before: with torch.inference_mode(): y = dp(x)
    After: with torch.no_grad(): y = dp(x)
    Seen by: the settings in each replica's thread and in the caller's; or what is not there in a
        `threading.local()`.
    References: torch/nn/parallel/parallel_apply.py
    """
    for probe, error in failures(evidence):
        if tells("DP602", error):
            what = f"a `threading.local()` has nothing of the caller's in replica {error.replica}: {error}"
            yield Hit("local", what, error.place, probe, "error", explains=(error.symptom,))
    for probe, call, name, mine, its in _settings(evidence):
        what = f"{name} is {mine} around the call and {its} in replicas"
        if name == "default device":
            if call.raised is not None:
                told, place = f"{what}: {call.raised}", call.raised.place
                yield Hit(name, told, place, probe, "error", _MADE_HERE)
            elif probe.comparison.values_equal is False:  # else forward makes nothing by it
                yield Hit(name, what, None, probe, "warning")
        elif not name.startswith("autocast"):
            advice = _NO_GRAD if name == "inference_mode" else None
            yield Hit(name, what, evidence.scan.forward, probe, advice=advice)


_NO_GRAD = advise("with torch.no_grad(): y = {call}", before="with torch.inference_mode(): y = {call}")
_MADE_HERE = advise(
    "torch.ones(3, device={x}.device)   # each tensor that is made in forward",
    fill=swapped(
        r"(torch\.(?:zeros|ones|full|empty|arange|randn|rand|tensor|eye)\([^()]*)\)",
        r"\1, device={x}.device)",
    ),
)


@rule("DP603", "randomness", "info")
def randomness(evidence: Evidence) -> Iterator[Hit]:
    """Random numbers are drawn on each GPU by itself.

    What happens: dropout masks and noise differ from those of one GPU with the same seed; runs with another
        number of GPUs cannot be compared number by number.
    Why: each GPU has a generator of its own.
    Before: torch.manual_seed(0); y = dp(x)
    After: dp.eval()   # to compare numbers
    Seen by: the state of the generators before and after a call.
    References: pytorch/pytorch#70447
    """
    for probe in evidence.probes:
        if probe.comparison.values_equal is False and draws_its_own(probe):
            event = next(event for call in probe.calls for event in call.events if event.kind == "generator")
            what = (
                "forward draws from a generator of its own: for its chunk each replica may draw what one "
                "GPU draws for the first rows"
            )
            yield Hit("generator", what, event.place, probe, "warning")
            return
        if probe.single.used_random:
            yield Hit("random", "forward draws random numbers: each GPU draws its own", None, probe)
            return
