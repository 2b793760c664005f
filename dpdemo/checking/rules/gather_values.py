"""Values that gather cannot join, or garbles: DP401 to DP403, DP407."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Leaf, Probe
from dpdemo.checking.looking import (
    call_of,
    forward_place,
    gather_failures,
    gathered_calls,
    is_meant_as_part,
    result_at,
    result_place,
    shapes_of,
    vectors,
)
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.distributions import made_of_what_a_part_returns
from dpdemo.checking.rewriting.forwards import forward_of, stored
from dpdemo.checking.rewriting.outside import after_layers, end_outside, end_with_layers, outermost
from dpdemo.checking.rewriting.results import Part, Rewrite, left_out, part_at, returned, whole_return
from dpdemo.checking.source import in_brackets
from dpdemo.checking.unregistered import numbers_for_tensors
from dpdemo.models.frames import is_installed
from dpdemo.reports.check import Place


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
    losses = {probe.comparison.loss_path for probe in evidence.probes}
    summed = {path for probe in evidence.probes for path in probe.comparison.summed}
    for probe, call in evidence.calls:
        numbers = vectors(probe, call) if len(call.replicas) > 1 and not _is_reduced(probe) else []
        numbers = [path for path in numbers if not (path in summed and is_meant_as_part(probe, path))]
        of_losses = [path for path in numbers if path in losses]
        others = [path for path in numbers if path not in losses]
        for subject, paths in (("loss", of_losses), ("scalar", others)):
            if paths:
                yield _one_for_each_gpu(subject, paths, probe, call, evidence)
    for probe, call, error in gather_failures(evidence):
        has_rows = any(shape for shapes in shapes_of(call).values() for shape in shapes)
        if "tensor has no dimensions" in error.message and not has_rows:  # else that is DP405
            what = f"a number cannot be gathered along dimension {call.dim}: {error.message}"
            yield Found("", what, forward_place(evidence), probe, "error")


def _one_for_each_gpu(subject: str, paths: list[str], probe: Probe, call: Call, evidence: Evidence) -> Found:
    """Tell of numbers that come back once for each GPU, and what makes one of them."""
    names = " and ".join(result_at(path) for path in paths[:3]) + " and more" * (len(paths) > 3)
    verb = "is one number" if len(paths) == 1 else "are one number each"
    of_the_batch = [path for path in paths if path in _of_the_batch(evidence)]
    told = (
        "their mean" if len(paths) == 1 or not of_the_batch else f"the mean of {result_at(of_the_batch[0])}"
    )
    mixed = f"; {told} is another number" if of_the_batch else ""
    given = call_of(call)
    reduced = f"{given}{paths[0]}.{_reduction(probe, paths[0], evidence)}"
    return Found(
        subject,
        f"{names} {verb} on one GPU, and {len(call.replicas)} here{mixed}",
        forward_place(evidence),
        probe,
        before=f"{given}{paths[0]}",
        after=reduced + "   # but see DP501" * (subject == "loss"),
        repair=after_layers(evidence, call) if of_the_batch and subject == "scalar" else None,
    )


def _of_the_batch(evidence: Evidence) -> set[str]:
    """List the numbers that neither a sum nor a mean of equal chunks' gives: a perplexity, a maximum."""
    even = [probe for probe in evidence.probes if probe.split is not None and probe.split.is_even]
    plain = [probe for probe in even if not (probe.mode == "train" and probe.norms_batches)]
    return {path for probe in plain for path in probe.comparison.of_the_batch}


def _reduction(probe: Probe, path: str, evidence: Evidence) -> str:
    """Name what makes one number of the replicas': of counts the sum, of averages the mean."""
    summed = {one for other in evidence.probes for one in other.comparison.summed}
    number = next((leaf for leaf in probe.single.output if leaf.path == path), None)
    is_count = number is not None and "int" in number.dtype
    name = "sum" if path in summed or is_count else "mean"
    return f"{name}(0, keepdim=True)" if number is not None and number.shape else f"{name}()"


def _is_reduced(probe: Probe) -> bool:
    """Return whether a program was seen to reduce its replicas' losses, or wants no gradients."""
    return probe.is_programs


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
    joined = {path for probe in evidence.probes for path in probe.comparison.joined}
    for probe, call in gathered_calls(evidence, at_least=1):
        is_compared = probe.comparison.values_equal is not None or probe.single.used_random
        if call.gathered is not None and is_compared:
            continue  # it was joined: whether rightly, the numbers say, if need be those in evaluation
        known = {*joined, *numbers_for_tensors(probe, call)}  # DP308 has the latter
        odd = [
            leaf
            for leaf in call.replicas[0].output or ()
            if not leaf.is_tensor and leaf.type not in allowed and leaf.path not in known
        ]
        is_again = _is_made_again(result_place(evidence, probe.call))
        is_one = len(odd) == 1 and not is_again
        made = made_of_what_a_part_returns(odd[0], evidence, probe.call) if is_one else None
        whole = made or (_made_outside(odd, evidence, probe.call) if odd and not is_again else None)
        repairs = [(odd, whole)] if whole else _type_repairs(odd, evidence, call)
        for leaves, repair in repairs:
            names = " and ".join(result_at(leaf.path) for leaf in leaves[:3]) + " and more" * (
                len(leaves) > 3
            )
            kinds = " and ".join(dict.fromkeys(leaf.type for leaf in leaves))
            verb = "is" if len(leaves) == 1 else "are"
            yield Found(
                leaves[0].path,
                f"{names} {verb} of type {kinds}, which gather cannot join",
                forward_place(evidence),
                probe,
                repair=repair,
            )


def _is_made_again(end: Place | None) -> bool:
    """Whether forward returns an object of the class of another one, which is not joined either."""
    part = part_at(end, "")
    return part is not None and part.text.startswith("type(")


def _made_outside(leaves: list[Leaf], evidence: Evidence, call: Call | None) -> Repair | None:
    """Write forward's end, from what it makes these parts of its result of, as it is written outside."""
    forward = forward_of(evidence, call)
    parts = [part_at(result_place(evidence, call), leaf.path) for leaf in leaves]
    if forward is None or not leaves or not all(parts):
        return None
    statements = [part.statement for part in parts if part]
    names = {part.node.id for part in parts if part and isinstance(part.node, ast.Name)}
    statements += [one for one in forward.body if names & stored(one)]
    first = min(statements, key=lambda one: one.lineno)
    if list(outermost(forward, first)) == [getattr(first, "value", None)]:
        return end_with_layers(forward, first)  # what it calls gives them
    return end_outside(forward, first) or end_outside(forward, forward.body[-1])


_KNOWN_OUTSIDE = "without it, which is known outside"


def _type_repairs(leaves: list[Leaf], evidence: Evidence, call: Call) -> Iterator[tuple[list[Leaf], Repair]]:
    """Write parts of a result as they are, and as tensors or a dict that gather can join; each line once."""
    place = result_place(evidence, call)
    given = (*evidence.scan.inputs, "x")[0]
    lines: dict[ast.stmt, list[tuple[Leaf, Part, str]]] = {}
    dropped: dict[str, list[Leaf]] = {}
    unplaced: dict[str, list[Leaf]] = {}
    sizes = {str(rows) for _, call in evidence.calls for rows in (call.rows, call.split(call.rows).largest)}
    for leaf in leaves:
        part = part_at(place, leaf.path)
        text = _as_tensor(part, leaf, given) if part is not None and part.path == leaf.path else None
        if text is None and (own := _fields_of(place, leaf)):
            yield [leaf], own
        elif part is not None and leaf.type == "int" and leaf.text in sizes and left_out(place, part.path):
            dropped.setdefault(part.path, []).append(leaf)
        elif part is not None and text is not None:
            lines.setdefault(part.statement, []).append((leaf, part, text))
        elif part is not None and part.path and left_out(place, part.path):
            dropped.setdefault(part.path, []).append(leaf)
        else:
            unplaced.setdefault(leaf.type, []).append(leaf)
    for alike in unplaced.values():
        yield alike, Repair(place, *_type_example(alike[0]))
    yield from _left_out_together(place, dropped, lines)
    for path, inside in dropped.items():
        if own := left_out(place, path):
            yield inside, own._replace(after=f"{own.after}   # {_KNOWN_OUTSIDE}")
    for statement, found in lines.items():
        own = found[0][1].function.own(statement, *((part.node, text) for _, part, text in found))
        yield [leaf for leaf, _, _ in found], own


def _left_out_together(
    place: Place | None,
    dropped: dict[str, list[Leaf]],
    lines: dict[ast.stmt, list[tuple[Leaf, Part, str]]],
) -> Iterator[tuple[list[Leaf], Repair]]:
    """Write a display without all that is known outside, and take that off both lists."""
    if not dropped or len(lines) > 1 or len({path.rpartition("[")[0] for path in dropped}) != 1:
        return
    every = {**dropped}
    for leaf, part, _ in (one for found in lines.values() for one in found):
        every.setdefault(part.path, []).append(leaf)
    own = left_out(place, *every) if len(every) > 1 else None
    if own is not None:
        leaves = [leaf for inside in every.values() for leaf in inside]
        yield leaves, own._replace(after=f"{own.after}   # {_KNOWN_OUTSIDE}")
        dropped.clear()
        lines.clear()


def _as_tensor(part: Part, leaf: Leaf, given: str) -> str | None:
    """Write what is no tensor as one, or a class of the user's as a dict; None where that is not known."""
    value, text = part.node, part.text
    plain = re.sub(r"(\.cpu\(\))?\.(numpy|tolist|item)\(\)", "", text)
    if plain != text:
        return re.sub(r"(?<=\))\.(mean|sum)\(\)$", "", plain) if "==" in plain else plain
    if leaf.type in ("int", "float", "bool", "complex"):
        return f"torch.full((len({given}),), {text}, device={given}.device)"
    if (
        leaf.tensors_inside
        and isinstance(value, ast.Call)
        and not value.args
        and ({one.arg for one in value.keywords} == set(_names_inside(leaf)))
    ):
        return f"dict({', '.join(map(ast.unparse, value.keywords))})"
    return None


def _names_inside(leaf: Leaf) -> list[str]:
    """List the attributes of an object that hold tensors."""
    return list(dict.fromkeys(re.split(r"[ .\\[]", inside, maxsplit=1)[0] for inside in leaf.tensors_inside))


def _fields_of(forward: Place | None, leaf: Leaf) -> Repair | None:
    """Write forward's return of an object as one of a dict with its tensors."""
    names = _names_inside(leaf)
    end = whole_return(forward)
    if end is None or leaf.path or not names or not all(name.isidentifier() for name in names):
        return None
    function, statement, value = end
    name = value.id if isinstance(value, ast.Name) else "out"
    fields = "{" + ", ".join(f'"{one}": {name}.{one}' for one in names) + "}"
    if leaf.is_mapping:
        return function.own(statement, (value, f"dict({function.text(value)})"))
    first = "" if isinstance(value, ast.Name) else f"{name} = {function.text(value)}\n"
    return function.rewritten(statement, statement, f"{first}return {fields}")


def _type_example(leaf: Leaf) -> tuple[str, str]:
    """Write the same where forward's own line does not show it."""
    if leaf.type in ("int", "float", "bool", "complex"):
        number = f"torch.full((len(x),), {leaf.text}, device=x.device)"
        return f"return ..., {leaf.text}", f"return ..., {number}   # one for each sample"
    if leaf.tensors_inside:
        inside = ", ".join(f'"{name}": out.{name}' for name in _names_inside(leaf))
        return f"return out   # a {leaf.type}", f"return {{{inside}}}"
    return (
        f"return ..., value   # a {leaf.type}",
        "return ...   # without it, or as a tensor with a row for each sample",
    )


@rule("DP403", "garbled-string", "error")
def garbled_string(evidence: Evidence) -> Iterator[Found]:
    """A text in the result is garbled.

    What happens: 'abc' comes back as '<map object at 0x7f...>', without a word.
    Why: gather calls `type(out)(map(...))` on everything it does not know, and str() takes anything.
    Before: return {"y": y, "names": ["a", "b"]}
    After: return {"y": y}   # keep the names outside
    Seen by: a text in a replica's result. A note where a program ran with the model of an installed package.
    References: pytorch/pytorch#62466, pytorch/pytorch#13447
    """
    place = forward_place(evidence)
    is_librarys = evidence.is_program and place is not None and is_installed(place.file)
    for probe, call in gathered_calls(evidence, at_least=1):
        for leaf in call.replicas[0].output or ():
            if leaf.type == "str":
                came = next((one.text for one in call.gathered or () if one.path == leaf.path), "")
                became = f" and comes back as {came[:14]!r}..." if came.startswith("<map") else ""
                path = _list_of_texts(leaf.path, call.replicas[0].output or ())
                end = result_place(evidence, call)
                part = part_at(end, leaf.path)
                own = _made_outside([leaf], evidence, probe.call)
                own = own or (left_out(end, part.path) if part else None)
                yield Found(
                    re.sub(r"\[\d+\]", "[i]", path),
                    f"{result_at(path)} is the text {leaf.text[:20]!r}{became}",
                    place,
                    probe,
                    "info" if is_librarys else None,
                    before=f"return ...   # with a text in {path or 'it'}",
                    after="return ...   # without it; keep texts outside, where they are known",
                    repair=own,
                )


def _list_of_texts(path: str, leaves: tuple[Leaf, ...]) -> str:
    """Return the path of the list that a text stands in, if there are nothing but texts in it."""
    parent = re.sub(r"\[\d+\]$", "", path)
    inside = [leaf for leaf in leaves if leaf.path.startswith(f"{parent}[")]
    return parent if all(leaf.type == "str" for leaf in inside) else path


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
                own = returned(result_place(evidence, call), leaf.path, _on_its_gpu(evidence))
                yield Found(
                    leaf.path,
                    f"{result_at(leaf.path)} is on the CPU",
                    forward_place(evidence),
                    probe,
                    before="return y.cpu()   # in forward",
                    after=f"{call_of(call)}{leaf.path}.cpu()   # after the call",
                    repair=own,
                )


def _on_its_gpu(evidence: Evidence) -> Rewrite:
    """Write a result without what takes it to the CPU, or moved back."""
    given = (*evidence.scan.inputs, "x")[0]

    def rewrite(_: ast.expr, text: str) -> str:
        stays = re.sub(r"\.cpu\(\)|\.to\([\"']cpu[\"']\)", "", text)
        return stays if stays != text else f"{in_brackets(text)}.to({given}.device)"

    return rewrite
