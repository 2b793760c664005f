"""Results that gather joins wrongly, or cannot join: DP405, DP406, DP408 to DP410."""

import math
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Probe
from dpdemo.checking.fills import bracketed, returned, swapped
from dpdemo.checking.questions.results import (
    all_pairs,
    counts_of,
    from_the_start,
    gathered_calls,
    parts_of,
    per_sample,
    shapes_of,
)
from dpdemo.checking.questions.words import listed, result_at, sizes_text
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Hit, advise, without


@rule("DP405", "structure-differs", "error", symptoms=("rows",))
def structure_differs(evidence: Evidence) -> Iterator[Hit]:
    """Replicas return results of different structure, or a part that is None in some only.

    What happens: `All dicts must have the same number of keys`, KeyError, `zip() argument 2 is longer`, or
        `Expected all input tensors to have the same number of dimensions`. None in replica 0 drops the other
        replicas' data without a word; None in another one: `'NoneType' object has no attribute 'device'`.
    Why: gather joins part by part, and looks at replica 0's result to decide what it has before it.
    Before: return {"y": y, **({"aux": aux} if found else {})}
    After: return y, aux   # in every replica the same parts: zeros where there is nothing
    Seen by: the structure of each replica's result, before gather.
    References: open-mmlab/mmdetection#2303, torch/nn/parallel/scatter_gather.py, gather_map
    """
    for probe, call in gathered_calls(evidence):
        yield from _missing_parts(probe, call, evidence)
        first = call.replicas[0].structure
        for replica in call.replicas[1:]:
            is_it = replica.structure != first and per_sample(probe, call) is None
            if is_it and "None" not in replica.structure + first:
                what = f"replica 0 returns {first}, replica {replica.index} {replica.structure}"
                yield Hit("structure", what, evidence.scan.result, probe, advice=advise())
                break


def _missing_parts(probe: Probe, call: Call, evidence: Evidence) -> Iterator[Hit]:
    """Report parts of a result that are None in some replicas."""
    nones = [
        {leaf.path for leaf in replica.output or () if leaf.type == "NoneType"} for replica in call.replicas
    ]
    for path in sorted(set().union(*nones)):
        where = [index for index, paths in enumerate(nones) if path in paths]
        if len(where) < len(nones):
            lost = ": what the others give is dropped" if where[0] == 0 else ""
            what = f"{result_at(path)} is None in replica {where[0]} and not in all{lost}"
            yield Hit(path, what, evidence.scan.result, probe, advice=advise())


@rule("DP406", "shape-differs", "error", symptoms=("rows",))
def shape_differs(evidence: Evidence) -> Iterator[Hit]:
    """Replicas return tensors that differ in more than their rows.

    What happens: `Input tensor at index 1 has invalid shape [1, 230], but expected [1, 231]`.
    Why: gather joins along the batch dimension and wants all others equal; sizes that depend on the data,
        such as padding to the longest of a chunk, differ.
    Before: return y[:, : lengths.max()]
    After: y = F.pad(y, (0, longest - y.size(-1)))   # to a length that does not depend on the chunk
    Seen by: the shapes of each replica's result, before gather.
    References: pytorch/pytorch#44141, huggingface/transformers#1220
    """
    for probe, call in gathered_calls(evidence):
        ragged = {path: found for path, *found in _ragged(probe, call, evidence)}
        if not ragged or call.gathered is not None:  # a wrapper of the user's own has padded them
            continue
        (path, (dim, sizes)), *others = ragged.items()
        also = f"; sizes of {listed([other for other, _ in others])} differ too" if others else ""
        what = f"{result_at(path)} has size {sizes} on dimension {dim}{also}"
        yield Hit(",".join(ragged), what, evidence.scan.result, probe, advice=advise())


def _ragged(probe: Probe, call: Call, evidence: Evidence) -> Iterator[tuple[str, int, str]]:
    """List the parts of a result whose sizes differ from replica to replica: path, dimension and sizes."""
    alone = probe.single.shapes
    for path, shapes in shapes_of(call).items():
        ranks = {len(shape) for shape in shapes}
        if len(shapes) < 2 or len(ranks) > 1:
            continue
        for dim in range(max(ranks)):
            sizes = [shape[dim] for shape in shapes]
            if dim == from_the_start(call.dim, max(ranks)) or len(set(sizes)) == 1:
                continue
            if alone.get(path, ())[dim : dim + 1] != (call.rows,) or not _follows(path, dim, evidence):
                yield path, dim, f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"


def _follows(path: str, dim: int, evidence: Evidence) -> bool:
    """Return whether a size of the result is that of the batch for any batch: then it is of pairs."""
    known = [
        (probe.single.shapes.get(path), probe.call.rows)
        for probe in evidence.probes
        if probe.call is not None
    ]
    return all(shape[dim : dim + 1] == (rows,) for shape, rows in known if shape is not None)


@rule("DP408", "merged-list", "error", explains=("loss", "difference"))
def merged_list(evidence: Evidence) -> Iterator[Hit]:
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
        if path is not None and call.rows > len(call.replicas):
            after = counts_of(call.gathered or ()).get(path)
            ending = f"comes back with {after}" if after else "cannot be joined"
            sizes = sizes_text(list(probe.split.sizes())) if probe.split else ""
            what = (
                f"{result_at(path)} is a list of {call.rows}, one for each sample; from {sizes} it {ending}"
            )
            place, about = evidence.scan.result, (f"result {path}",)
            yield Hit(path, what, place, probe, advice=advise(_ROWS_AND_COUNTS), symptoms=about)


_ROWS_AND_COUNTS = """return torch.cat(rows), torch.tensor([len(one) for one in rows], device={x}.device)
rows, counts = {call}
rows = rows.split(counts.tolist())   # outside"""


@rule("DP409", "batch-dimension", "error")
def batch_dimension(evidence: Evidence) -> Iterator[Hit]:
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
        for path, length in probe.comparison.reordered:
            what = (
                f"{result_at(path)} is flattened with the batch second: on one GPU its rows are {length} "
                "groups of all samples, and gathered they come GPU by GPU, in another order"
            )
            place = evidence.scan.result
            advice = advise(
                "out.transpose(0, 1).reshape(-1, out.size(-1))   # and what it is compared with likewise",
                fill=swapped(r"\.(view|reshape)\(-1", ".transpose(0, 1).reshape(-1"),
            )
            yield Hit(path or "order", what, place, probe, advice=advice, explains=("rows",))
        found: dict[int, list[str]] = {}
        for path, dim in _along_others(probe, call):
            found.setdefault(dim, []).append(path)
        for dim, paths in found.items():
            yield _along_another(paths, dim, probe, call, evidence)


def _along_others(probe: Probe, call: Call) -> Iterator[tuple[str, int]]:
    """List the parts of a result with the batch on another dimension than the one that is joined."""
    pairs = {path for path, _ in all_pairs(probe)}
    for path, whole, shapes in parts_of(probe, call):
        is_like = {len(shape) for shape in shapes} == {len(whole)} and call.rows > 1
        if not is_like or path in pairs or probe.comparison.is_along_another:
            continue
        for dim in range(len(whole)):
            chunks = [shape[dim] for shape in shapes]
            if whole[dim] == call.rows == sum(chunks) and dim != from_the_start(call.dim, len(whole)):
                yield path, dim


def _along_another(paths: list[str], dim: int, probe: Probe, call: Call, evidence: Evidence) -> Hit:
    """Report the parts of a result that have the batch on one dimension."""
    path, *others = paths
    whole = probe.single.shapes[path]
    turn = f".transpose({call.dim}, {dim})" if len(whole) > 1 else ".unsqueeze(0)"
    more = f"; so {'is' if len(others) == 1 else 'are'} {listed(others)}" if others else ""
    what = (
        f"{result_at(path)} of shape {whole} has the batch on dimension {dim}, and is joined along "
        f"dimension {call.dim}{more}"
    )
    advice = advise(
        "return out{turn}   # in forward, and the same again outside",
        fill=returned(lambda code, names: f"{bracketed(code)}{names['turn']}", "   # and back outside"),
        result=path, turn=turn,
    )  # fmt: skip
    return Hit(path, what, evidence.scan.result, probe, advice=advice)


@rule("DP410", "no-batch-dimension", "error", symptoms=("rows",))
def no_batch_dimension(evidence: Evidence) -> Iterator[Hit]:
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
        for path, whole, shapes in parts_of(probe, call):
            if math.prod(whole) < 2 or set(shapes) != {whole}:
                continue  # one number has no rows, and of none there is nothing to join
            if any(path.startswith(f"{prefix}[") for prefix in _growing_lists(probe, call)):
                continue
            dim = from_the_start(call.dim, len(whole))
            if dim >= len(whole) or whole[dim] == call.rows or len(_sizes_at(path, dim, evidence)) > 1:
                continue  # what is chosen of a batch ends where a short one ends
            after = (*whole[:dim], whole[dim] * len(shapes), *whole[dim + 1 :])
            what = (
                f"{result_at(path)} of shape {whole} has no batch dimension: each of the {len(shapes)} "
                f"replicas returns it, and together they come back as {after}"
            )
            advice = without("it: take means over the batch outside; a weight or table")
            yield Hit(path, what, evidence.scan.result, probe, advice=advice)


def _sizes_at(path: str, dim: int, evidence: Evidence) -> set[int]:
    """List the sizes that a part of one GPU's result has in batches of any size."""
    shapes = (probe.single.shapes.get(path, ()) for probe in evidence.probes)
    return {shape[dim] for shape in shapes if len(shape) > dim}


def _growing_lists(probe: Probe, call: Call) -> set[str]:
    """Name the lists of a result that are longer for the batch than for a chunk."""
    alone = counts_of(probe.single.output)
    return {
        path
        for replica in call.replicas
        for path, n in counts_of(replica.output or ()).items()
        if alone.get(path) != n
    }
