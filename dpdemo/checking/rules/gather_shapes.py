"""Shapes that gather joins wrongly, or cannot join: DP408 to DP410, DP490."""

import ast
import math
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Probe
from dpdemo.checking.looking import (
    all_pairs,
    counts_of,
    forward_place,
    from_the_start,
    gather_failures,
    gathered_calls,
    listed,
    per_sample,
    result_at,
    result_place,
    shapes_of,
    sizes_text,
)
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import around_call
from dpdemo.checking.rewriting.lists import joined_lists
from dpdemo.checking.rewriting.outside import after_layers
from dpdemo.checking.rewriting.results import left_out, returned
from dpdemo.checking.rewriting.turned import pair_of_states, turned_results
from dpdemo.checking.source import function_at, in_brackets
from dpdemo.checking.unregistered import numbers_for_tensors
from dpdemo.reports.check import Place


@rule("DP408", "merged-list", "error")
def merged_list(evidence: Evidence) -> Iterator[Found]:
    """Lists with an element for each sample are merged, not joined.

    What happens: 8 images on 4 GPUs come back as a list of 2, with the boxes of images 0, 2, 4 and 6 in
        one; uneven
        chunks: `zip() argument 4 is shorter than arguments 1-3`.
    Why: gather zips the lists of the replicas and joins element by element.
    Before: return [{"boxes": boxes} for boxes in per_image]
    After: return torch.stack(padded), counts   # tensors with a batch dimension
    Seen by: the length of the list on one GPU, in each replica and after gather.
    References: pytorch/pytorch#25627, pytorch/pytorch#13447
    """
    for probe, call in gathered_calls(evidence):
        path = per_sample(probe, call)
        if path is not None and call.rows > len(call.replicas) and not _is_of_texts(path, probe):
            after = counts_of(call.gathered or ()).get(path)
            ending = f"comes back with {after}" if after else "cannot be joined"
            sizes = sizes_text(list(probe.split.sizes())) if probe.split else ""
            own = joined_lists(probe, evidence)
            yield Found(
                path,
                f"{result_at(path)} is a list of {call.rows}, one for each sample; from {sizes} it {ending}",
                forward_place(evidence),
                probe,
                before="return [...]   # one element for each sample",
                after="return torch.cat(rows), counts   # tensors with a row for each sample, or each box",
                repair=own,
            )


def _is_of_texts(path: str, probe: Probe) -> bool:
    """Whether a list holds nothing but texts: that is DP403."""
    return all(leaf.type == "str" for leaf in probe.single.output if leaf.path.startswith(f"{path}["))


@rule("DP409", "batch-dimension", "error")
def batch_dimension(evidence: Evidence) -> Iterator[Found]:
    """A result has its batch on another dimension than the one that is gathered.

    What happens: results of (L, B, H), or an RNN's h_n of (layers, B, H), are joined along dimension 0:
        right numbers in a wrong shape, without a word. Flattened to (L * B, H) in forward, their rows are in
        another order.
    Why: gather joins along DataParallel's `dim`, 0 if not set, whatever a dimension means.
    Before: return output, h_n
    After: return output, h_n.transpose(0, 1)   # batch first, and back outside
    Seen by: the shape on one GPU against the gathered one.
    References: pytorch/pytorch#7890
    """
    for probe, call in gathered_calls(evidence):
        yield from _in_another_order(probe, evidence)
        alone = {leaf.path: leaf.shape for leaf in probe.single.output}
        pairs = {path for path, _ in all_pairs(probe)}  # that is DP502
        found: dict[int, dict[str, str]] = {}
        for path, shapes in shapes_of(call).items():
            whole = alone.get(path)
            if whole is None or {len(shape) for shape in shapes} != {len(whole)} or call.rows < 2:
                continue
            for dim in range(len(whole)):
                chunks = [shape[dim] for shape in shapes]
                if (
                    dim != from_the_start(call.dim, len(whole))
                    and path not in pairs
                    and not probe.comparison.is_along_another
                    and whole[dim] == call.rows
                    and sum(chunks) == call.rows
                    and len(chunks) > 1
                ):
                    found.setdefault(dim, {})[path] = pair_of_states(path, alone, dim, call.rows)
        for dim, subjects in found.items():
            yield _along_another(subjects, dim, probe, call, evidence)


def _along_another(subjects: dict[str, str], dim: int, probe: Probe, call: Call, evidence: Evidence) -> Found:
    """Tell of the parts of a result that have the batch on one dimension: each with what it belongs to."""
    alone = {leaf.path: leaf.shape for leaf in probe.single.output}
    path, subject = next(iter(subjects.items()))
    whole = alone[path] or ()
    turn = f".transpose({call.dim}, {dim})" if len(whole) > 1 else ".unsqueeze(0)"
    others = [name for name in dict.fromkeys(subjects.values()) if name != subject]
    more = f"; so is {listed(others)}" if len(others) == 1 else f"; so are {listed(others)}" if others else ""
    place = forward_place(evidence)
    end = result_place(evidence, probe.call)
    turned = turned_results(end, subjects.values(), alone, turn) if len(whole) > 1 else None
    if turned is not None:
        first, *rest = turned.changes
        around = around_call(call, turned.names, then=turned.then)
        own: Repair | None = Repair(first.place, first.before, first.after, (*rest, around))
    else:
        own = returned(end, path, lambda _, text: f"{in_brackets(text)}{turn}")
        own = own and own._replace(after=f"{own.after}   # and back outside")
    return Found(
        subject,
        f"{result_at(path)} of shape {whole} has the batch on dimension {dim}, and is joined "
        f"along dimension {call.dim}{more}",
        place,
        probe,
        before=f"return ...   # {result_at(path)}: {whole}",
        after=f"return ...   # {turn} of it, and back outside",
        repair=own,
    )


_FLATTENING = (("view", "-1"), ("reshape", "-1"), ("flatten", "0"))
"""Methods, and their first argument, that make one dimension of a result's first two."""


def _in_another_order(probe: Probe, evidence: Evidence) -> Iterator[Found]:
    """Tell of results that were flattened while the batch was their second dimension."""
    for path, length in probe.comparison.reordered:
        own = _flattened_batch_first(forward_place(evidence))
        yield Found(
            path or "order",
            f"{result_at(path)} is flattened with the batch second: on one GPU its rows are {length} groups "
            "of all samples, and gathered they come GPU by GPU, in another order",
            forward_place(evidence),
            probe,
            repair=own,
        )


def _flattened_batch_first(forward: Place | None) -> Repair | None:
    """Write forward's only line that flattens, and the same with the batch first; None if it has several."""
    function = function_at(forward)
    found = [
        (statement, node)
        for statement in (function.statements() if function else ())
        for node in ast.walk(statement)
        if isinstance(statement, (ast.Assign, ast.Return))
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr, *map(ast.unparse, node.args[:1])) in _FLATTENING
    ]
    if function is None or len(found) != 1:
        return None
    statement, node = found[0]
    assert isinstance(node.func, ast.Attribute)  # noqa: S101 - looked for above
    given = ", ".join(map(function.text, node.args))
    name = node.func.attr.replace("view", "reshape")
    turned = f"{function.text(node.func.value)}.transpose(0, 1).{name}({given})"
    own = function.own(statement, (node, turned))
    return own._replace(after=f"{own.after}   # and what it is compared with likewise")


@rule("DP410", "no-batch-dimension", "error", unless=("DP201", "DP205", "DP207", "DP208", "DP216"))
def no_batch_dimension(evidence: Evidence) -> Iterator[Found]:
    """A result that has no batch dimension comes back once for each GPU.

    What happens: a weight, a mean or a sum over the batch, a table that forward returns: each replica gives
        all of it, and gather puts them one below the other, n times as long.
    Why: gather joins along the batch dimension, and knows no result that is not cut.
    Before: return y, self.fc.weight * 1
    After: return y   # read model.module.fc.weight outside; take a mean over the batch there
    Seen by: a tensor of the same shape on one GPU and in each replica, and n times as long after gather.
    References: torch/nn/parallel/scatter_gather.py, gather_map
    """
    for probe, call in gathered_calls(evidence):
        alone = {leaf.path: leaf.shape for leaf in probe.single.output}
        for path, shapes in shapes_of(call).items():
            whole = alone.get(path) or ()
            if math.prod(whole) < 2 or set(shapes) != {whole} or len(shapes) != len(call.replicas):
                continue  # one number is DP401's, and of none there is nothing to join
            if any(path.startswith(f"{prefix}[") for prefix in _growing_lists(probe, call)):
                continue  # that is DP408, or DP590
            dim = from_the_start(call.dim, len(whole))
            if dim >= len(whole) or whole[dim] == call.rows or len(_sizes_at(path, dim, evidence)) > 1:
                continue  # what is chosen of a batch ends where a short one ends
            after = (*whole[:dim], whole[dim] * len(shapes), *whole[dim + 1 :])
            own = left_out(result_place(evidence, call), path)
            if own is not None:
                own = own._replace(after=f"{own.after}   # {_WITHOUT_IT}")
            own = own or after_layers(evidence, call)
            yield Found(
                path,
                f"{result_at(path)} of shape {whole} has no batch dimension: each of the {len(shapes)} "
                f"replicas returns it, and together they come back as {after}",
                forward_place(evidence),
                probe,
                before=f"return ...   # {result_at(path)}: {whole}",
                after=f"return ...   # {_WITHOUT_IT}",
                repair=own,
            )


def _sizes_at(path: str, dim: int, evidence: Evidence) -> set[int]:
    """List the sizes that a part of one GPU's result has in batches of any size."""
    parts = (leaf for probe in evidence.probes for leaf in probe.single.output if leaf.path == path)
    return {leaf.shape[dim] for leaf in parts if leaf.shape is not None and len(leaf.shape) > dim}


_WITHOUT_IT = "without it: read parameters from model.module, take means outside"


def _growing_lists(probe: Probe, call: Call) -> set[str]:
    """Name the lists of a result that are longer for the batch than for a chunk."""
    alone = counts_of(probe.single.output)
    return {
        path
        for one in call.replicas
        for path, n in counts_of(one.output or ()).items()
        if alone.get(path) != n
    }


@rule("DP490", "gather-failed", "error", unless=("DP205", "DP209", "DP214", "DP317", "DP4"))
def gather_failed(evidence: Evidence) -> Iterator[Found]:
    """Results cannot be gathered, for a reason that no other rule knows.

    What happens: all replicas are through, and joining their results raises.
    Why: gather joins tensors, inside tuples, lists and dicts that all replicas return alike.
    Before: return OwnList([y])
    After: return [y]
    Seen by: an exception while results are gathered.
    References: torch/nn/parallel/scatter_gather.py, gather_map
    """
    for probe, call, error in gather_failures(evidence):
        if any(all_pairs(probe)) or any(numbers_for_tensors(probe, call)):
            continue  # that is DP502, or DP308
        yield Found(error.message, f"the results cannot be gathered: {error}", forward_place(evidence), probe)
