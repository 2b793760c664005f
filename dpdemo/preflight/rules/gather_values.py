"""Values that gather cannot join, or garbles: DP401 to DP404, DP407."""

import re
from collections.abc import Iterator

from dpdemo.preflight.evidence import Evidence
from dpdemo.preflight.looking import forward_place, gather_failures, gathered_calls, result_at
from dpdemo.preflight.registry import Found, rule


@rule("DP401", "scalar-output", "warning")
def scalar_output(evidence: Evidence) -> Iterator[Found]:
    """A single number comes back as a vector, one number for each GPU.

    What happens: `grad can be implicitly created only for scalar outputs` at loss.backward(), `.item()`
        fails; with one
        GPU the same script works.
    Why: gather joins along the batch dimension, and gives numbers without dimensions one.
    Before: loss = model(x, y); loss.backward()
    After: loss = model(x, y).mean(); loss.backward()   # but see DP501
    Seen by: a result of one number on one GPU and of n under DataParallel.
    References: pytorch/pytorch#7956, pytorch/pytorch#9811
    """
    for probe, call in evidence.calls:
        if len(call.replicas) < 2:
            continue
        alone = {leaf.path: leaf.shape for leaf in probe.single.output}
        for leaf in call.gathered or ():
            if alone.get(leaf.path) in ((), (1,)) and leaf.shape == (len(call.replicas),):
                yield Found(
                    leaf.path,
                    f"{result_at(leaf.path)} is one number on one GPU, and {leaf.shape[0]} here",
                    forward_place(evidence),
                    probe,
                )
    for probe, call, error in gather_failures(evidence):
        if "tensor has no dimensions" in error.message:
            yield Found(
                "",
                f"a number cannot be gathered along dimension {call.dim}: {error.message}",
                forward_place(evidence),
                probe,
                "error",
            )


@rule("DP402", "output-type", "error")
def output_type(evidence: Evidence) -> Iterator[Found]:
    """Forward returns something that gather cannot join.

    What happens: `TypeError: 'int' object is not iterable`, or something as obscure, after all replicas are
        through.
    Why: gather joins tensors, inside tuples, lists and dicts; everything else it takes for a sequence.
    Before: return y, 3
    After: return y, torch.full((len(y),), 3, device=y.device)
    Seen by: the types of replica 0's result, before gather.
    References: pytorch/pytorch#15994, pytorch/pytorch#41327, huggingface/transformers#36212
    """
    allowed = ("Tensor", "Parameter", "NoneType", "str", "list", "tuple", "dict")
    for probe, call in gathered_calls(evidence, at_least=1):
        for leaf in call.replicas[0].output or ():
            if not leaf.is_tensor and leaf.type not in allowed:
                yield Found(
                    leaf.path,
                    f"{result_at(leaf.path)} is of type {leaf.type}, which gather cannot join",
                    forward_place(evidence),
                    probe,
                )


@rule("DP403", "garbled-string", "error")
def garbled_string(evidence: Evidence) -> Iterator[Found]:
    """A text in the result is garbled.

    What happens: 'abc' comes back as '<map object at 0x7f...>', without a word.
    Why: gather calls `type(out)(map(...))` on everything it does not know, and str() takes anything.
    Before: return {"y": y, "names": ["a", "b"]}
    After: return {"y": y}   # keep the names outside
    Seen by: a text in a replica's result.
    References: pytorch/pytorch#62466, pytorch/pytorch#13447
    """
    for probe, call in gathered_calls(evidence, at_least=1):
        for leaf in call.replicas[0].output or ():
            if leaf.type == "str":
                came = next((one.text for one in call.gathered or () if one.path == leaf.path), "")
                became = f" and comes back as {came[:14]!r}..." if came.startswith("<map") else ""
                path = re.sub(r"(\[\d+\])+$", "", leaf.path)
                yield Found(
                    re.sub(r"\[\d+\]", "[i]", path),  # told once for all elements of a list
                    f"{result_at(path)} is the text {leaf.text[:20]!r}{became}",
                    forward_place(evidence),
                    probe,
                )


@rule("DP404", "none-output", "error")
def none_output(evidence: Evidence) -> Iterator[Found]:
    """A part of the result is None in some replicas only.

    What happens: None in replica 0 drops the other replicas' data without a word; None in another one:
        `'NoneType' object has no attribute 'device'`.
    Why: gather looks at replica 0's result to decide what it has before it.
    Before: return y, (aux if aux.any() else None)
    After: return y, aux
    Seen by: the results of all replicas, before gather.
    References: torch/nn/parallel/scatter_gather.py, gather_map
    """
    for probe, call in gathered_calls(evidence):
        nones = [
            {leaf.path for leaf in replica.output or () if leaf.type == "NoneType"}
            for replica in call.replicas
        ]
        for path in sorted(set().union(*nones)):
            where = [index for index, paths in enumerate(nones) if path in paths]
            if len(where) < len(nones):
                lost = ": what the others give is dropped" if where[0] == 0 else ""
                yield Found(
                    path,
                    f"{result_at(path)} is None in replica {where[0]} and not in all{lost}",
                    forward_place(evidence),
                    probe,
                )


@rule("DP407", "cpu-output", "error")
def cpu_output(evidence: Evidence) -> Iterator[Found]:
    """A result is on the CPU.

    What happens: `AssertionError: Gather function not implemented for CPU tensors`, after all replicas are
        through.
    Why: gather joins tensors of GPUs only.
    Before: return y.cpu()
    After: return y   # and .cpu() after the call
    Seen by: the device of each replica's result, before gather.
    References: amdegroot/ssd.pytorch#570
    """
    for probe, call in gathered_calls(evidence, at_least=1):
        for leaf in call.replicas[0].output or ():
            if leaf.device == "cpu":
                yield Found(
                    leaf.path, f"{result_at(leaf.path)} is on the CPU", forward_place(evidence), probe
                )
