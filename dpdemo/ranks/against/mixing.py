"""Find operations of a loss in which each row meets the other rows of its own rank, by the graphs' shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.ranks.against.library import where_scaled
from dpdemo.ranks.against.weights import uneven_counts
from dpdemo.ranks.observe.losses import _SCALAR
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.ranks.against.compare import Step
    from dpdemo.ranks.against.store import Backward, Node, Shape

_COLLECTIVES = ("AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "AllToAll")
_CURVED = ("Sqrt", "Rsqrt", "Log", "Exp", "Pow", "Reciprocal", "Softplus", "Sigmoid", "Tanh")
_REDUCES = ("Mean", "Sum", "MseLoss", "L1Loss", "NllLoss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy")
_NUMERATORS, _DENOMINATORS = ("Sum", "Mul", "Add"), ("Sum", "Mean", "Add", "Sub", "Clamp")
_NO_MEANS = (
    "LinalgVectorNorm",
    "Norm",
    "Std",
    "Var",
    "Logsumexp",
    "Max",
    "Min",
    "Prod",
    "Median",
    "Kthvalue",
)
_GATHER = "gather the rows over the ranks with gradients (torch.distributed.nn.functional.all_gather)"


def find_mixing(step: Step) -> Iterator[Mistake]:
    """Find a loss over the rows of a rank alone: contrastive, or a statistic that is no mean over rows."""
    passes = [side.detail.backward for side in step.data]
    for number, single in enumerate(step.one.detail.backward):
        mine = [each[number] for each in passes if number < len(each)]
        if len(mine) < len(passes):
            return
        if any(part in node.name for each in mine for node in each.nodes for part in _COLLECTIVES):
            return  # rows do meet those of other ranks; what is left may be meant
        columns = zip(*map(_operations, mine), strict=False)
        for nodes, large in zip(columns, _operations(single), strict=False):
            if any(node.name != large.name or len(node.shape) != len(large.shape) for node in nodes):
                break
            found = _contrastive(nodes, large) or _statistic(nodes, large)
            if found:
                scaled = where_scaled(mine[0].lines)
                also = f"; {scaled} multiplies it by the number of ranks" if "library" in scaled else ""
                yield Mistake(f"{found}{also}", mine[0].at, _GATHER)
                return


def find_function_of_mean(step: Step) -> Iterator[Mistake]:
    """Find a root, a logarithm or the like of a mean over a rank's rows, or a ratio of sums over them."""
    if uneven_counts(step):
        return
    for noted in step.data[0].detail.backward[:1]:
        found = [node for node in noted.nodes if _is_curved(node)]
        if any(part in node.name for node in noted.nodes for part in _COLLECTIVES):
            return
        if found and step.has_same_rows():
            of = "ratio of sums" if _short(found[0]) == "Div" else "function of a mean"
            yield Mistake(
                f"The loss is a {of} over a rank's rows ({_short(found[0])}): the average "
                "of the ranks' values is another number than that of all rows",
                noted.at,
                "average over the ranks first, with gradients (torch.distributed.nn.functional.all_reduce)",
            )


def _is_curved(node: Node) -> bool:
    """Return whether a scalar in the loss's graph is a nonlinear function of means or sums over the rows."""
    if _short(node) == "Div" and len(node.of) > 1:  # of two numbers that have gradients
        is_of_sums = node.of[0].startswith(_NUMERATORS) and node.of[1].startswith(_DENOMINATORS)
        return not node.shape and is_of_sums and not any(node.inputs)
    is_of_mean = any(name.startswith(_REDUCES) for name in node.of)
    return not node.shape and is_of_mean and _short(node).startswith(_CURVED)


def _operations(noted: Backward) -> list[Node]:
    """Return the nodes of a pass without the sums and factors of scalars, which ranks may have more of."""
    return [node for node in noted.nodes if node.shape or not _short(node).startswith(_SCALAR)]


def _contrastive(nodes: tuple[Node, ...], large: Node) -> str | None:
    """Recognize a result that grows with the rows in two dimensions."""
    shapes = [node.shape for node in nodes]
    grown = [dim for dim, size in enumerate(large.shape) if size == sum(shape[dim] for shape in shapes) > 0]
    if len(grown) < 2 or any(shape[dim] < 2 for shape in shapes for dim in grown):
        return None
    return (
        f"The loss compares the rows of a rank with each other, as a contrastive loss does ({_short(large)}: "
        f"{list(shapes[0])} on a rank, {list(large.shape)} on one process): a row never meets those of other "
        "ranks"
    )


def _statistic(nodes: tuple[Node, ...], large: Node) -> str | None:
    """Recognize a result with the same shape everywhere whose input grows with the rows."""
    shapes = {node.shape for node in nodes}
    if _short(large) == "Topk" and any(_selects(each.shape, each.inputs[0]) for each in nodes if each.inputs):
        return (
            f"The loss selects among the rows of a rank alone, one process among all rows ({_short(large)})"
        )
    has_size = any(size > 1 for size in large.shape) or _short(large).startswith(_NO_MEANS)
    if shapes != {large.shape} or not has_size:
        return None
    for place, whole in enumerate(large.inputs):
        parts = [node.inputs[place] for node in nodes if place < len(node.inputs)]
        if len(parts) == len(nodes) and _rows_grow(parts, whole):
            return (
                f"The loss has a statistic of a rank's rows that is no mean over them ({_short(large)}: "
                f"{list(large.shape)} from {list(parts[0])} on a rank, from {list(whole)} on one process): "
                "one process computes it of all rows"
            )
    return None


def _selects(found: Shape, among: Shape) -> bool:
    """Return whether fewer rows are left, and not fewer columns of each."""
    return len(found) == len(among) > 0 and found[0] < among[0] and found[1:] == among[1:]


def _rows_grow(parts: list[Shape], whole: Shape) -> bool:
    if len({len(part) for part in parts} | {len(whole)}) > 1:
        return False
    return any(size == sum(part[dim] for part in parts) for dim, size in enumerate(whole))


def _short(node: Node) -> str:
    return node.name.rstrip("0123456789").removesuffix("Backward")
