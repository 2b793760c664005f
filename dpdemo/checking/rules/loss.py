"""Losses and other results over the whole batch: DP501, DP502, DP590."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dpdemo.checking.evidence import UNEQUAL, Evidence, LossGradients, Probe, Reduction
from dpdemo.checking.questions.arguments import delivered_rows
from dpdemo.checking.questions.failures import draws_its_own, gather_failures
from dpdemo.checking.questions.results import all_pairs, is_meant_as_part, is_off, vectors
from dpdemo.checking.questions.words import result_at, sizes_text
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import FEATURES, Advice, Hit, advise, full_batches, of_any_rows
from dpdemo.results.findings import SEVERITIES, Severity


@rule("DP501", "loss-scale", "error", symptoms=("loss",), explains=("vector", "difference"))
def loss_scale(evidence: Evidence) -> Iterator[Hit]:
    """A loss taken inside forward is taken once for each GPU.

    What happens: the loss comes back as a vector, one number for each GPU. Its sum gives gradients n times
        those of one GPU. Its mean gives the right ones only where each replica's number stands for as much as
        every other's: with uneven chunks, with unequal counts of valid labels, with the hardest examples of a
        batch, some samples weigh more.
    Why: each replica averages over its own chunk, and gather puts the averages side by side.
    Before: loss = model(x, y).sum()            # forward returns F.cross_entropy(...)
    After: loss = F.cross_entropy(model(x), y)  # or forward returns sum and count: divide them outside
    Seen by: the parameters' gradients of each replica's loss against those of one GPU, for .sum() and for
        .mean(), at every batch; for a program's own reduction where a program runs.
    References: pytorch/pytorch#5778, huggingface/transformers#608, huggingface/transformers#34242
    """
    told = [(probe, _loss_problem(probe)) for probe in evidence.probes]
    wrong = sorted(
        ((probe, found) for probe, found in told if found),
        key=lambda pair: (SEVERITIES.index(pair[1].severity), -pair[0].batch_size),
    )
    real = [pair for pair in wrong if pair[0].is_real] or wrong
    for probe, problem in real[:1]:
        others = [f"batch {other.batch_size}" for other, _ in real if other.batch_size != probe.batch_size]
        more = f" (so at {', '.join(dict.fromkeys(others))})" if others else ""
        advice = _loss_advice(evidence, probe, problem)
        yield Hit("loss", problem.what + more, evidence.scan.result, probe, problem.severity, advice)


@dataclass(frozen=True)
class _Problem:
    """A fault of a loss, and its severity."""

    what: str
    severity: Severity = "error"
    is_right_summed: bool = False
    is_librarys: bool = False
    is_scaled: bool = False
    """Whether the gradients are those of one GPU but for a factor."""


def _loss_problem(probe: Probe) -> _Problem | None:
    comparison = probe.comparison
    sizes = list(probe.split.sizes()) if probe.split else []
    if comparison.loss_not_finite and comparison.single_finite:
        return _Problem(f"the loss is NaN in a replica, and finite on one GPU: chunks of {sizes_text(sizes)}")
    loss = comparison.loss
    if loss is None or len(loss.dots) < 2 or not _is_faithful(probe):
        return None
    judge = _programs_problem if probe.is_programs else _problem_of_any
    return judge(probe, loss, sizes)


def _problem_of_any(probe: Probe, loss: LossGradients, sizes: list[int]) -> _Problem | None:
    """Look at what a program could do with its losses, where none is known: their mean and their sum."""
    comparison = probe.comparison
    is_sum_right, error = loss.error(loss.sum) <= loss.unequal, loss.error(loss.mean)
    if is_sum_right and error > loss.unequal:
        if is_meant_as_part(probe, comparison.loss_path or ""):
            return None
        return _Problem(
            f"gradients of loss.mean() are {_off(loss, loss.mean)} those of one GPU at batch "
            f"{probe.batch_size}; loss.sum() gives them right",
            "warning",
            is_right_summed=True,
        )
    if error > loss.unequal:
        return _Problem(
            f"gradients of loss.mean() are {_off(loss, loss.mean)}, of loss.sum() {_off(loss, loss.sum)} "
            f"those of one GPU at batch {probe.batch_size}, {_chunks(sizes)}"
        )
    return None if is_sum_right else _Problem(_sum_is_too_much(probe, loss))


def _sum_is_too_much(probe: Probe, loss: LossGradients) -> str:
    return (
        f"gradients of loss.sum() are {_off(loss, loss.sum)} those of one GPU at batch {probe.batch_size}; "
        "loss.mean() gives them right here, and not where chunks are uneven"
    )


def _off(loss: LossGradients, weights: tuple[float, ...]) -> str:
    """Write how far gradients are from those of one GPU: as one number, a factor or a share."""
    factor, error = loss.factor(weights), loss.error(weights)
    more = abs(factor - 1)
    askew = math.sqrt(max(error**2 - more**2, 0.0))
    is_factor = more > 2 * askew or error - more < loss.unequal
    return f"{factor:.2f} times" if is_factor else f"{_percent(error)} off"


def _chunks(sizes: list[int]) -> str:
    """Name the chunks, and why the mean of their losses is not that of the batch."""
    is_uneven = len(set(sizes)) > 1
    why = "each replica's number stands for another count, or choice, of what it averages"
    return f"chunks of {sizes_text(sizes)}: {'samples of a short chunk weigh more' if is_uneven else why}"


def _is_faithful(probe: Probe) -> bool:
    """Return whether the losses are what the chunks give: neither another model's nor BatchNorm's doing."""
    comparison = probe.comparison
    return comparison.equals_chunkwise is not False and not (probe.mode == "train" and probe.norms_batches)


def _programs_problem(probe: Probe, loss: LossGradients, sizes: list[int]) -> _Problem | None:
    """Look at what a program did with its losses: the weights that came back to them, up to their scale.

    Where an installed package goes backward, the user has written no reduction that could be wrong: losses
    that are merely scaled are a note then, and others a warning.
    """
    for reduction in probe.reductions:
        weights, total = reduction.weights, sum(reduction.weights)
        if len(weights) != len(loss.dots) or not total:
            continue
        as_mean = tuple(weight / total for weight in weights)
        is_scaled = loss.error(as_mean) <= loss.unequal
        is_sum = abs(total - len(weights)) < UNEQUAL  # a sum is no mean that was scaled
        if loss.error(weights) <= loss.unequal or (is_scaled and not is_sum):
            continue
        severity: Severity = "error"
        if reduction.is_librarys:
            severity = "info" if is_scaled else "warning"
        if is_sum and is_scaled and not reduction.is_librarys:
            what = _sum_is_too_much(probe, loss)
        else:
            judged = weights if is_sum else min((weights, as_mean), key=loss.error)  # a factor may be meant
            off = f"{_off(loss, judged)} those of one GPU at batch {probe.batch_size}"
            what = f"gradients of {_named(reduction, is_sum=is_sum)} are {off}"
            what += "" if is_scaled else f", {_chunks(sizes)}"
        return _Problem(what, severity, is_librarys=reduction.is_librarys, is_scaled=is_scaled)
    return None


def _named(reduction: Reduction, *, is_sum: bool) -> str:
    """Name a program's reduction as `check` does where it is a mean or a sum."""
    if reduction.is_librarys:
        return "the loss, from which an installed package goes backward,"
    weights = reduction.weights
    if max(weights) - min(weights) >= UNEQUAL * abs(sum(weights)):
        return f"the program's weighted sum of {len(weights)} losses"
    return "loss.sum()" if is_sum else "loss.mean()"


def _percent(share: float) -> str:
    """Write a share, a small one with a digit behind the point."""
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"


def _loss_advice(evidence: Evidence, probe: Probe, problem: _Problem) -> Advice:
    """Advise what a program can make of its losses; or an option of the package that goes backward."""
    path = probe.comparison.loss_path or ""
    right = [
        probe.batch_size for probe in evidence.probes if probe.comparison.loss and not _loss_problem(probe)
    ]
    if problem.is_librarys and probe.batch_size < max(right, default=0):
        return full_batches(max(right), max(right), drop_last=True)
    forward = evidence.scan.forward
    if problem.is_librarys and forward is not None and "/transformers/" in forward.file:
        option = "TrainingArguments(folder, average_tokens_across_devices=False)"
        if problem.is_scaled:
            return advise(option, before="TrainingArguments(folder)")
        return advise(_TRAINERS_LOSS, before="Trainer(model, args)")
    mean = "loss = {call}{result}.mean()"
    if problem.is_right_summed:
        return advise("loss = {call}{result}.sum()", before=mean, result=path)
    is_sum = probe.comparison.loss is None or probe.comparison.loss.is_sum
    return advise(_SUM_AND_COUNT if is_sum else _LOSS_OUTSIDE, before=mean, result=path)


_TRAINERS_LOSS = """Trainer(model, args, compute_loss_func=total_loss)   # which divides the sum of the losses
# of all labels by num_items_in_batch.sum()"""
_SUM_AND_COUNT = """\
return total.reshape(1), count.reshape(1)   # in forward: the sum of the losses, and of how many
total, count = {call}   # outside
loss = total.sum() / count.sum()"""
_LOSS_OUTSIDE = """features = {call}   # forward returns what the loss is computed from
loss = criterion(features)"""


@rule("DP502", "cross-sample", "error", symptoms=("rows",))
def cross_sample(evidence: Evidence) -> Iterator[Hit]:
    """Forward mixes samples of a batch, and under DataParallel sees a chunk only.

    What happens: batch means, contrastive losses, in-batch negatives, shuffles: each replica uses its own
        chunk, and the numbers differ from those of one GPU without a word. All-pairs similarities come back
        as the blocks on the diagonal.
    Why: a replica never sees the other chunks.
    Before: return h - h.mean(0)                     # or f(a) @ f(b).T
    After: h = model(x); h = h - h.mean(0)           # outside; or a, b = model(...); a @ b.T
    Seen by: in eval mode results differ from one GPU's, and equal those of the chunks run one by one.
    References: HobbitLong/SupContrast#36, pytorch/pytorch#21810
    """
    for probe in evidence.probes:
        if probe.call and delivered_rows(probe.call) < probe.call.rows:
            continue
        for path, shape in all_pairs(probe):
            what = (
                f"{result_at(path)} of shape {shape} compares each sample with every other of its batch: a "
                "replica compares those of its chunk"
            )
            yield Hit("pairs", what, evidence.scan.result, probe, advice=FEATURES)
        comparison = probe.comparison
        is_it = comparison.values_equal is False and comparison.equals_chunkwise
        if not is_it:
            continue
        if (probe.mode == "train" and probe.norms_batches) or _is_of_state(probe) or draws_its_own(probe):
            continue
        what = (
            f"{result_at(comparison.differing)} of a sample depends on the others of its batch: it differs "
            f"from one GPU's by up to {comparison.largest_difference:.2g}, and is that of the chunk alone"
        )
        place = comparison.mixing or evidence.scan.forward
        subject = comparison.differing or "result"
        yield Hit(subject, what, place, probe, advice=FEATURES)


def _is_of_state(probe: Probe) -> bool:
    """Whether samples mix in state that forward changes, not in what it computes.

    Either chunks are right once that is set, or the line that first mixes samples names it.
    """
    if probe.comparison.is_of_state:
        return True
    lost = [
        change
        for change in probe.changes
        if not change.harmless and not change.same and change.kind != "gradient"
    ]
    code = probe.comparison.mixing.code if probe.comparison.mixing is not None else ""
    names = {name for change in lost for name in change.path.split(".")}
    return any(re.search(rf"\.{re.escape(name)}\b", code) for name in names)


@rule("DP590", "unexplained-difference", "error", symptoms=("difference",), explains=())
def unexplained_difference(evidence: Evidence) -> Iterator[Hit]:
    """Results or gradients differ from one GPU's, or cannot be joined, for a reason that no other rule knows.

    What happens: numbers, shapes or gradients are not those of one GPU, in eval mode and without random
        numbers; or all replicas are through, and joining their results raises.
    Why: unknown; what forward makes of its GPU's number, of a dict or a count of the file, or of what its
        thread has for itself (a ContextVar, a `threading.local()`), is a candidate.
    Before: return y * (1 + x.device.index)
    After: return y
    Seen by: results and gradients against those of one GPU; an exception of gather.
    References: pytorch/pytorch#5778, torch/nn/parallel/scatter_gather.py, gather_map
    """
    forward = evidence.scan.result
    for probe, _, error in gather_failures(evidence):
        yield Hit(error.message, f"the results cannot be gathered: {error}", forward, probe)
    for probe in evidence.probes:
        comparison = probe.comparison
        if probe.raised is not None or probe.single.used_random:
            continue
        if is_off(probe) and comparison.values_equal is False:
            gap = comparison.largest_difference
            what = f"{result_at(comparison.differing)} differs from one GPU's by up to {gap:.2g}"
            yield Hit("values", what, forward, probe, symptoms=(f"difference of {probe}",))
        elif is_off(probe):
            what = "gradients differ from one GPU's, results do not"
            yield Hit("gradients", what, None, probe, symptoms=(f"difference of {probe}",))
        elif comparison.values_equal is None and _has_another_shape(probe):
            what = f"{result_at(comparison.differing)} has another shape than on one GPU"
            yield Hit("shape", what, forward, probe, advice=of_any_rows(forward, probe))


def _has_another_shape(probe: Probe) -> bool:
    """Return whether a result has another shape, except a number that became a vector."""
    comparison, call = probe.comparison, probe.call
    if comparison.differing is None or comparison.loss_path is not None:
        return False
    return call is None or comparison.differing not in vectors(probe, call)
