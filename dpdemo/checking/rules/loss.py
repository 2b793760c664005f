"""Losses and other results over the whole batch: DP501, DP502, DP590."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dpdemo.checking.evidence import UNEQUAL, Counted, Evidence, LossGradients, Probe
from dpdemo.checking.looking import (
    all_pairs,
    call_of,
    delivered_rows,
    for_any_rows,
    forward_place,
    is_meant_as_part,
    is_off,
    result_place,
    sizes_text,
    vectors,
)
from dpdemo.checking.methods import seeds_itself
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.aftercall import change_outside
from dpdemo.checking.rewriting.before import before_layers, head_before
from dpdemo.checking.rewriting.outside import after_layers, from_mixing
from dpdemo.checking.rewriting.reductions import sum_and_count
from dpdemo.checking.rewriting.results import part_at
from dpdemo.checking.rewriting.shared import globals_outside
from dpdemo.checking.source import function_at
from dpdemo.checking.statechanges import lost_in
from dpdemo.reports.check import SEVERITIES, Place, Severity


@rule("DP501", "loss-scale", "error", unless=("DP408",))
def loss_scale(evidence: Evidence) -> Iterator[Found]:
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
        others = [f"batch {one.batch_size}" for one, _ in real if one.batch_size != probe.batch_size]
        more = f" (so at {', '.join(dict.fromkeys(others))})" if others else ""
        repair = _loss_repair(evidence, probe, problem)
        yield Found("loss", problem.what + more, repair.place, probe, problem.severity, repair=repair)


@dataclass(frozen=True)
class _Problem:
    """What is wrong with a loss, and how bad it is."""

    what: str
    severity: Severity = "error"
    is_right_summed: bool = False
    is_librarys: bool = False
    is_scaled: bool = False
    """Whether the gradients are those of one GPU but for a factor."""


def _loss_problem(probe: Probe) -> _Problem | None:
    comparison = probe.comparison
    sizes = list(probe.split.sizes()) if probe.split else []
    chunks = f"chunks of {sizes_text(sizes)}"
    if comparison.loss_not_finite and comparison.single_finite:
        return _Problem(f"the loss is NaN in a replica, and finite on one GPU: {chunks}")
    loss = comparison.loss
    if loss is None or len(loss.dots) < 2 or not _is_faithful(probe):
        return None
    return _programs_problem(probe, loss) if probe.is_programs else _problem_of_any(probe, loss, sizes)


def _problem_of_any(probe: Probe, loss: LossGradients, sizes: list[int]) -> _Problem | None:
    """Look at what a program could do with its losses, where none is known: their mean and their sum."""
    comparison, chunks = probe.comparison, f"chunks of {sizes_text(sizes)}"
    by_sum = loss.factor(loss.sum)
    by_mean, error = loss.factor(loss.mean), loss.error(loss.mean)
    if loss.error(loss.sum) <= UNEQUAL < error:
        if is_meant_as_part(probe, comparison.loss_path or ""):
            return None
        return _Problem(
            f"gradients of loss.mean() are {by_mean:.2f} times those of one GPU at batch {probe.batch_size}; "
            "loss.sum() gives them right",
            "warning",
            is_right_summed=True,
        )
    if error > UNEQUAL:
        how = f"{by_mean:.2f} times" if abs(error - abs(by_mean - 1)) < UNEQUAL else f"{_percent(error)} off"
        return _Problem(
            f"gradients of loss.mean() are {how}, of loss.sum() {by_sum:.2f} times those of one GPU at batch "
            f"{probe.batch_size}, {chunks}: {_why_uneven(sizes)}"
            + (f"; {comparison.heaviest}" if loss.is_sum and comparison.heaviest else "")
        )
    if loss.error(loss.sum) <= UNEQUAL:
        return None
    return _Problem(
        f"gradients of loss.sum() are {by_sum:.2f} times those of one GPU at batch {probe.batch_size}; "
        f"loss.mean() gives them right here, and not where chunks are uneven"
    )


def _why_uneven(sizes: list[int]) -> str:
    if len(set(sizes)) > 1:
        return "samples of a short chunk weigh more"
    return "each replica's number stands for another count, or choice, of what it averages"


def _is_faithful(probe: Probe) -> bool:
    """Return whether the losses are what the chunks give: neither another model's nor BatchNorm's doing."""
    comparison = probe.comparison
    return comparison.equals_chunkwise is not False and not (probe.mode == "train" and probe.norms_batches)


def _programs_problem(probe: Probe, loss: LossGradients) -> _Problem | None:
    """Look at what a program did with its losses: the weights that came back to them, up to their scale.

    Where an installed package goes backward, the user has written no reduction that could be wrong: losses
    that are merely scaled are a note then, and others a warning.
    """
    for reduction in probe.reductions:
        weights, total = reduction.weights, sum(reduction.weights)
        if len(weights) != len(loss.dots) or not total:
            continue
        errors = [loss.error(weights), loss.error(tuple(weight / total for weight in weights))]
        if abs(total - 1) > UNEQUAL and abs(total - len(weights)) < UNEQUAL:
            errors.pop()  # a sum is no mean that was scaled
        if min(errors) > UNEQUAL:
            as_mean = loss.error(tuple(weight / total for weight in weights))
            is_scaled, is_librarys = as_mean <= UNEQUAL, reduction.is_librarys
            is_sum = is_librarys and len(errors) == 1  # a loop's factor is one thing, its weights another
            off = f"{_percent(as_mean)} off as a mean" if is_sum else f"{_percent(min(errors))} off"
            return _Problem(
                f"the program's sum of {len(weights)} losses has gradients {loss.factor(weights):.2f} times "
                f"those of one GPU at batch {probe.batch_size}" + ("" if is_scaled else f", {off}"),
                "error" if not is_librarys else "info" if is_scaled else "warning",
                is_librarys=is_librarys,
                is_scaled=is_scaled,
            )
    return None


def _percent(share: float) -> str:
    """Write a share, a small one with a digit behind the point."""
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"


def _loss_repair(evidence: Evidence, probe: Probe, problem: _Problem) -> Repair:
    """Write the line that reduces the losses, or forward's end with the loss in two sums or outside."""
    given = call_of(probe.call) if probe.call else "model(x, y)"
    part, forward = probe.comparison.loss_path or "", forward_place(evidence)
    if problem.is_librarys and (own := _trainers_repair(evidence, probe, problem)):
        return own  # neither line is the user's
    before = f"loss = {given}{part}.mean()"
    if problem.is_right_summed:
        return Repair(forward, before, f"loss = {given}{part}.sum()")
    is_sum = probe.comparison.loss is None or probe.comparison.loss.is_sum
    own = sum_and_count(result_place(evidence, probe.call), part, given) if is_sum else None
    own = own or after_layers(evidence, probe.call, "result" if part else "loss")
    if own is not None:
        return own
    if (counted := _counted(evidence, probe)) is not None:
        chunks = f"{counted.argument}.chunk(len(model.device_ids))"
        lines = [
            f"losses = {given}{part}",
            f"counts = torch.stack([{counted.code.format('part')} for part in {chunks}]).to(losses)",
            "loss = (losses * counts)[counts > 0].sum() / counts.sum()",
        ]
        return Repair(None, before, "\n".join(lines))
    if not is_sum:
        features = f"features = {given}; loss = criterion(features)"
        return Repair(forward, before, f"{features}   # forward returns what the loss is computed from")
    after = f"total, count = {given}; loss = total.sum() / count.sum()   # forward returns both"
    return Repair(forward, before, f"{after}, of shape (1,) each")


def _counted(evidence: Evidence, probe: Probe) -> Counted | None:
    """Find the count that weighs losses: at this batch, or of uneven chunks where even ones are right."""
    loss = probe.comparison.loss
    if probe.comparison.counted is not None or loss is None or loss.error(loss.mean) > UNEQUAL:
        return probe.comparison.counted
    alike = (
        one.comparison for one in evidence.probes if one.comparison.loss_path == probe.comparison.loss_path
    )
    return next((one.counted for one in alike if one.counted is not None), None)


_TOTAL_LOSS = """\
def total_loss(outputs, labels, num_items_in_batch):
    logits = outputs.logits.flatten(0, -2)
    total = torch.nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum")
    return total / num_items_in_batch.sum()

Trainer(model, args, {collator}compute_loss_func=total_loss)   # each valid label counts alike"""
_SHIFTS = "data_collator=DataCollatorForSeq2Seq(tokenizer, model=model), "
"""What makes a decoder's inputs of the labels, which a model is not given where the loss is taken outside."""


def _trainers_repair(evidence: Evidence, probe: Probe, problem: _Problem) -> Repair | None:
    """Write what a user can say to a loop that is not theirs; None where nothing is known to help.

    transformers' Trainer takes losses times the number of GPUs, for models that divide by the labels of all
    GPUs; with `average_tokens_across_devices=False` it does not (transformers 5, `Trainer.compute_loss`).
    """
    right = [one.batch_size for one in evidence.probes if one.comparison.loss and not _loss_problem(one)]
    if probe.batch_size < (fullest := max(right, default=0)):
        loader = f"DataLoader(data, batch_size={fullest}"
        after = f"{loader}, drop_last=True)   # of a Trainer: dataloader_drop_last=True"
        return Repair(None, f"{loader})", after)
    forward = evidence.scan.forward
    if forward is None or "/transformers/" not in forward.file or probe.call is None:
        return None
    if problem.is_scaled:
        arguments = "TrainingArguments(folder"
        return Repair(None, f"{arguments})", f"{arguments}, average_tokens_across_devices=False)")
    given = {leaf.path: leaf.shape for leaf in probe.call.arguments}
    logits = next((leaf.shape for leaf in probe.single.output if leaf.path == "['logits']"), None)
    if logits is None or len(logits) < 3 or given.get("labels") != logits[:-1]:
        return None
    needs_shifted = "decoder_input_ids" in evidence.scan.inputs and "decoder_input_ids" not in given
    return Repair(None, "Trainer(model, args)", _TOTAL_LOSS.format(collator=_SHIFTS if needs_shifted else ""))


@rule("DP502", "cross-sample", "error", unless=("DP201", "DP205", "DP207", "DP216"))
def cross_sample(evidence: Evidence) -> Iterator[Found]:
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
            given = evidence, probe.call
            own = after_layers(*given) or from_mixing(*given) or _features(result_place(*given))
            yield Found(
                "pairs",
                f"{_result(path)} of shape {shape} compares each sample with every other of its batch: a "
                "replica compares those of its chunk",
                forward_place(evidence),
                probe,
                before="return a @ b.T                # in forward, the features of a chunk",
                after="a, b = model(...); a @ b.T    # forward returns the features; compare them outside",
                repair=own,
            )
        comparison = probe.comparison
        if comparison.values_equal is not False or not comparison.equals_chunkwise or comparison.blamed:
            continue
        if comparison.reordered or seeds_itself(evidence):
            continue  # that is DP409, or DP603
        if probe.mode == "train" and probe.norms_batches:
            continue
        ways = (after_layers, before_layers, head_before, from_mixing)
        own = next((own for way in ways if (own := way(evidence, probe.call)) is not None), None)
        lost = lost_in(probe) if own is None else []  # forward may read what it has just written of the batch
        own = own or next(
            (its for one in lost if (its := change_outside(one, evidence, probe.call, lost))), None
        )
        yield Found(
            comparison.differing or "result",
            f"{_result(comparison.differing)} of a sample depends on the others of its batch: it differs "
            "from one "
            f"GPU's by up to {comparison.largest_difference:.2g}, and is that of the chunk alone",
            comparison.mixing.place if comparison.mixing else forward_place(evidence),
            probe,
            repair=own,
        )


def _features(forward: Place | None) -> Repair | None:
    """Write forward's return with the factors of its only product in place of what is made of it."""
    whole = part_at(forward, "")
    function = function_at(forward)
    products = [
        (statement, node)
        for statement in (function.statements() if function else ())
        for node in ast.walk(statement)
        if isinstance(statement, (ast.Assign, ast.Return))
        and isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.MatMult)
    ]
    if whole is None or function is None or len(products) != 1:
        return None
    statement, product = products[0]
    turned = re.fullmatch(r"(.+?)\.(?:[Tt](?:\(\))?|transpose\(.*\))", function.text(product.right))
    if turned is None:
        return None
    outside = function.own(statement, (product, "a @ b.T")).after.removeprefix("return ")
    if not isinstance(whole.statement, ast.Return):
        return None
    own = whole.own(f"{function.text(product.left)}, {turned[1]}")
    return own._replace(after=f"{own.after}   # and outside: a, b = model(...); {outside}")


def _result(path: str | None) -> str:
    return f"the result `{path}`" if path else "the result"


def _has_another_shape(probe: Probe) -> bool:
    """Return whether a result has another shape, except a number that became a vector (that is DP401)."""
    comparison, call = probe.comparison, probe.call
    if comparison.differing is None or comparison.loss_path is not None:
        return False
    return call is None or comparison.differing not in vectors(probe, call)


# all that come before, but for what changes no shape of a result and leaves it that of its chunk: idle GPUs,
# BatchNorm, where an RNN's weights lie, random numbers
_EXPLANATIONS = (
    *("DP1", "DP20", "DP210", "DP211", "DP212", "DP214", "DP216"),
    *(
        "DP301",
        "DP302",
        "DP303",
        "DP304",
        "DP305",
        "DP308",
        "DP309",
        "DP310",
        "DP311",
        "DP312",
        "DP313",
        "DP314",
        "DP317",
    ),
    *("DP39", "DP4", "DP5", "DP601", "DP602"),
)


@rule("DP590", "unexplained-difference", "error", unless=_EXPLANATIONS)
def unexplained_difference(evidence: Evidence) -> Iterator[Found]:
    """Results or gradients differ from one GPU's, for a reason that no other rule knows.

    What happens: numbers, shapes or gradients are not those of one GPU, in eval mode and without random
        numbers.
    Why: unknown; what forward makes of its GPU's number, or of a dict of the file, is a candidate.
    Before: return y * (1 + x.device.index)
    After: return y
    Seen by: results and gradients against those of one GPU.
    References: pytorch/pytorch#5778
    """
    for probe in evidence.probes:
        comparison = probe.comparison
        if probe.raised is not None or probe.single.used_random:
            continue
        if is_off(probe) and comparison.values_equal is False:
            gap = comparison.largest_difference
            what = f"{_result(comparison.differing)} differs from one GPU's by up to {gap:.2g}"
            own = globals_outside(evidence, probe.call)
            yield Found("values", what, forward_place(evidence), probe, repair=own)
        elif is_off(probe):
            yield Found("gradients", "gradients differ from one GPU's, results do not", None, probe)
        elif comparison.values_equal is None and _has_another_shape(probe):
            what = f"{_result(comparison.differing)} has another shape than on one GPU"
            repair = _without_a_number(probe, evidence)
            yield Found("shape", what, forward_place(evidence), probe, repair=repair)


def _without_a_number(probe: Probe, evidence: Evidence) -> Repair | None:
    """Write forward's line that names the size of the batch, and the same for any size."""
    function = function_at(forward_place(evidence))
    for statement in function.statements() if function else ():
        code = function.text(statement) if function else ""
        after = for_any_rows(code, probe, evidence)
        if function and after and "\n" not in code:
            return function.whole(statement, after)
    return None
