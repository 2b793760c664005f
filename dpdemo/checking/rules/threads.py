"""What belongs to a thread and does not reach the replicas': DP601 to DP603."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Probe
from dpdemo.checking.looking import device_at, failures, forward_place
from dpdemo.checking.methods import parts_of_the_model, seeds_itself
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.calling import around_call
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.handing import own_forward
from dpdemo.checking.source import function_at, tree_of
from dpdemo.reports.check import Change, Place, Severity


@rule("DP601", "autocast", "error")
def autocast(evidence: Evidence) -> Iterator[Found]:
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
    for probe, call in evidence.calls:
        mine = dict(call.callers_state)
        for replica in call.replicas:
            for name, value in replica.threads_state:
                if is_right and name == "autocast('cuda')":
                    continue
                if name.startswith("autocast") and value != mine.get(name, value):
                    yield Found(
                        name,
                        f"{name} is {mine[name]} around the call and {value} in replica {replica.index}",
                        forward_place(evidence),
                        probe,
                        None,
                        *_in_forward(forward_place(evidence)),
                        repair=repair_of(_above_forward(name, mine[name], evidence)),
                    )


def _in_forward(forward: Place | None) -> tuple[str, str]:
    """Write the autocast around a call in forward, and the same above the forward of what is called."""
    function = function_at(forward)
    lines = [function.text(one) for one in function.contexts()] if function else []
    own = next((line for line in lines if "autocast" in line), "")
    return (f"with {own}:", f"@{own}   # above the forward of what is in DataParallel") if own else ("", "")


def _above_forward(name: str, dtype: str, evidence: Evidence) -> tuple[Change, ...]:
    """Write the model's forward under an autocast of its own; () where it is not the user's to change."""
    function = own_forward(evidence)
    if (
        function is None
        or dtype == "off"
        or any(evidence.scan.wrappers)
        or _in_forward(forward_place(evidence))[0]
    ):
        return ()
    device = name.partition("'")[2].partition("'")[0]
    edits = Edits(function.file)
    top = function.node.decorator_list[0] if function.node.decorator_list else function.node
    margin = " " * function.node.col_offset
    edits.in_front(top, f'@torch.autocast("{device}", dtype=torch.{dtype})\n{margin}')
    return edits.changes()


@rule("DP602", "thread-state", "warning")
def thread_state(evidence: Evidence) -> Iterator[Found]:
    """A setting around the call does not reach the replicas.

    What happens: inference_mode, a default device and saved_tensors_hooks are not in force in forward:
        memory is not saved, new tensors are made on the CPU.
    Why: these settings belong to a thread, and each replica has its own; only the gradient mode is handed on.
    Before: with torch.inference_mode(): y = dp(x)
    After: with torch.no_grad(): y = dp(x)
    Seen by: the settings in each replica's thread and in the caller's; or what is not there in a
        `threading.local()`; or a ContextVar that is set in the caller's alone, where results are wrong.
    References: torch/nn/parallel/parallel_apply.py
    """
    for probe, error in failures(evidence):
        if re.search(_OF_A_THREAD, error.message):
            what = f"a `threading.local()` has nothing of the caller's in replica {error.replica}: {error}"
            own = repair_of(_shared_by_threads("", error.place))
            yield Found("local", what, error.place, probe, "error", repair=own)
    for probe, call in evidence.calls:
        mine = dict(call.callers_state)
        yield from _kept_by_the_caller(probe, call, evidence)
        for replica in call.replicas:
            for name, value in replica.threads_state:
                if name.startswith("autocast") or value == mine.get(name, value):
                    continue
                what = f"{name} is {mine[name]} around the call and {value} in replicas"
                if name != "default device":
                    repair = _handed_on(forward_place(evidence)) if name == "inference_mode" else ()
                    yield Found(name, what, forward_place(evidence), probe, None, *repair)
                elif _has_failed(probe, call):  # else forward makes nothing by it
                    place = call.raised.place if call.raised else None
                    yield _made_elsewhere(what, probe, call, device_at(place, evidence))


def _kept_by_the_caller(probe: Probe, call: Call, evidence: Evidence) -> Iterator[Found]:
    """Tell of what the caller's thread has for itself, where replicas have other results for want of it."""
    parts = (part for _, found in parts_of_the_model(evidence) for part in found)
    text = "\n".join(map(ast.unparse, parts))
    named = [one for one in probe.comparison.lacking if re.search(rf"\b{one.name}\b", text)]
    for one in named or probe.comparison.lacking:
        what = f"`{one.name}`, a {one.kind}, has {one.value} around the call, and not in replicas' threads"
        if one.kind.startswith("ContextVar"):
            own = _taken_along(one.name, call, evidence)
        else:
            own = repair_of(_shared_by_threads(one.name, forward_place(evidence)))
        yield Found(one.name, what, forward_place(evidence), probe, "error", repair=own)


def _taken_along(name: str, call: Call, evidence: Evidence) -> Repair | None:
    """Write forward with the value that the caller has for a ContextVar, which is put on the model before."""
    function = own_forward(evidence)
    here = tree_of(function.file).body if function is not None else []
    targets = [target for one in here for target in _targets(one)]
    if function is None or name not in targets:
        return None
    edits, me, kept = Edits(function.file), function.node.args.args[0].arg, name.lstrip("_")
    edits.first_in(function, f'{name}.set(getattr({me}, "{kept}", {name}.get()))')
    first = [f"model.module.{kept} = {name}.get()"]
    return repair_of((*edits.changes(), around_call(call, "result", first=first)))


def _targets(statement: ast.stmt) -> list[str]:
    """List the names that an assignment gives a value."""
    match statement:
        case ast.Assign(targets=targets):
            return [ast.unparse(one) for one in targets]
        case ast.AnnAssign(target=target):
            return [ast.unparse(target)]
    return []


_OF_A_THREAD = r"'_?_?thread\._local' object has no attribute|_local' object has no attribute"


_LOCALS = ("threading.local", "local")


def _shared_by_threads(name: str, place: Place | None) -> tuple[Change, ...]:
    """Write the lines of a file that make a `threading.local()`, and ones whose object all threads share.

    With a name those alone that give it a value, or the class that it is of.
    """
    if place is None:
        return ()
    edits, tree = Edits(place.file), tree_of(place.file)
    makers = [one for one in tree.body if not name or name in _targets(one)]
    made = {ast.unparse(one.func) for maker in makers for one in ast.walk(maker) if isinstance(one, ast.Call)}
    for node in (part for one in makers for part in ast.walk(one)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _LOCALS:
            edits.replace(node, 'type("Shared", (), {})()')
    for one in ast.walk(tree):
        if isinstance(one, ast.ClassDef) and one.name in made:
            for base in one.bases:
                if ast.unparse(base) in _LOCALS:
                    edits.replace(base, "object")
    return edits.changes()


def _has_failed(probe: Probe, call: Call) -> bool:
    return call.raised is not None or probe.comparison.values_equal is False


def _made_elsewhere(what: str, probe: Probe, call: Call, device: str) -> Found:
    """Tell of tensors that a replica makes on the CPU, for want of the default device around the call."""
    place = call.raised.place if call.raised else None
    severity: Severity = "error" if call.raised else "warning"
    if place is None or not place.code:
        return Found("default device", what, place, probe, severity)
    before, after = _on_its_gpu(place, device) or (
        place.code,
        "...   # by hand: each tensor that is made here with device=x.device",
    )
    return Found("default device", f"{what}: {call.raised}", place, probe, severity, before, after)


_MAKERS = ("ones", "zeros", "full", "empty", "rand", "randn", "randint", "randperm", "arange", "linspace",
           "eye", "tensor", "as_tensor")  # fmt: skip


def _on_its_gpu(place: Place, device: str) -> tuple[str, str] | None:
    """Write a statement that makes tensors, and the same with each on the replica's own GPU."""
    function = function_at(place)
    statements = function.statements() if function else ()
    around = [one for one in statements if one.lineno <= place.line <= (one.end_lineno or 0)]
    if function is None or not around or around[-1].lineno != place.line:
        return None
    made: list[tuple[ast.AST, str]] = [
        (one, f"{function.text(one)[:-1].rstrip(', ')}, device={device})")
        for one in ast.walk(around[-1])
        if isinstance(one, ast.Call)
        and ast.unparse(one.func).removeprefix("torch.") in _MAKERS
        and ast.unparse(one.func).startswith("torch.")
        and all(given.arg != "device" for given in one.keywords)
    ]
    own = function.own(around[-1], *made) if made else None
    return (own.before, own.after) if own else None


def _handed_on(forward: Place | None) -> tuple[str, str]:
    """Write what sets inference_mode around a call in forward, and what replicas are handed instead."""
    function = function_at(forward)
    lines = [function.text(one) for one in function.contexts()] if function else []
    own = next((line for line in lines if "inference_mode" in line), "")
    return own, re.sub(r"inference_mode(\((mode=)?True\))?", "no_grad", own)


@rule("DP603", "randomness", "info")
def randomness(evidence: Evidence) -> Iterator[Found]:
    """Random numbers are drawn on each GPU by itself.

    What happens: dropout masks and noise differ from those of one GPU with the same seed; runs with another
        number of GPUs cannot be compared number by number.
    Why: each GPU has a generator of its own.
    Before: torch.manual_seed(0); y = dp(x)
    After: dp.eval()   # to compare numbers
    Seen by: the state of the generators before and after a call. An error where forward seeds a generator
        itself: then each GPU draws the same numbers, for other samples.
    References: pytorch/pytorch#70447
    """
    for probe in evidence.probes:
        comparison = probe.comparison
        if comparison.values_equal is False and comparison.equals_chunkwise and seeds_itself(evidence):
            what = "forward seeds a generator itself: each replica draws the same numbers for its chunk"
            before, after = (
                "noise = ...   # in forward",
                "model(x, noise=noise)   # drawn outside, a row each",
            )
            place = comparison.mixing.place if comparison.mixing else forward_place(evidence)
            yield Found("seed", what, place, probe, "error", before, after)
            return
        if probe.single.used_random:
            yield Found("random", "forward draws random numbers: each GPU draws its own", None, probe)
            return
