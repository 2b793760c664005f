"""Verdicts on steps that are built by hand: the oracle is a linear model's own gradient of all rows."""

import math
from dataclasses import replace

import pytest
import torch
from sides import AT, NAMES, gradients, ranks_and_one, rows, side

from dpdemo.ranks.against.check import by_norms
from dpdemo.ranks.against.compare import Side, Step, vector
from dpdemo.ranks.against.judge import judged
from dpdemo.ranks.against.numbers import sampled
from dpdemo.ranks.against.passes import without_wrappers
from dpdemo.ranks.against.store import Node
from dpdemo.ranks.against.terms import mistakes_of_terms, uneven_terms


def texts(*steps):
    return [each.text for each in judged(steps).mistakes]


def test_means_over_equal_numbers_of_rows_are_equal():
    found = judged([ranks_and_one([5, 5, 5])])
    assert found.verdict == "equal"
    assert found.difference < 1e-5 < found.tolerance


def test_gradients_that_are_all_zero_are_called_so():
    nothing = [torch.zeros(4, 12), torch.zeros(4)]
    made = side(nothing, rows(4)[0])
    step = Step((made, made), side(nothing, rows(8)[0]))
    assert judged([step]).remarks == ("all gradients are zero, on the ranks and on one process",)
    assert judged([ranks_and_one([5, 5])]).remarks == ()


def test_a_sum_over_rows_is_averaged():
    assert texts(ranks_and_one([5, 5, 5], "sum")) == [
        (
            "The gradients of all parameters are 1/3 of one process's: the loss is a sum over a rank's rows, "
            "and sums are averaged over 3 ranks"
        )
    ]


def test_a_parameter_has_the_same_name_however_it_is_wrapped():
    names = ["task.module.fc.weight", "_orig_mod.layer.bias", "layer._fsdp_wrapped_module.weight"]
    assert without_wrappers(names) == ["task.fc.weight", "layer.bias", "layer.weight"]
    names = ["weight", "module.weight", "module.bias"]
    assert without_wrappers(names) == ["weight", "module.weight", "bias"]


def test_what_batchnorm_makes_of_a_skipped_step_does_not_count():
    nan = [torch.full((4, 12), torch.nan), torch.full((4,), torch.nan)]
    made = ranks_and_one([4, 4], average=lambda _: nan, step=1)
    skipped = replace(made, one=replace(made.one, event=replace(made.one.event, is_skipped=True)))
    wrong = ranks_and_one([4, 4], factor=1.5, step=2)
    assert skipped.is_skipped
    assert not math.isfinite(skipped.difference())
    found = by_norms(judged([ranks_and_one([4, 4])]), [skipped, wrong])
    assert (found.verdict, found.difference) == ("different", wrong.difference())


def test_gradients_that_are_summed_and_not_divided_are_named():
    step = ranks_and_one([4, 4], average=lambda local: [sum(each) for each in zip(*local, strict=True)])
    (text,) = texts(step)
    assert text.endswith("gradients are summed over 2 ranks and not divided by their number")


def test_a_mean_that_is_multiplied_by_the_ranks_is_named():
    (text,) = texts(ranks_and_one([4, 4], factor=2.0))
    assert text.endswith("a mean is multiplied by the number of ranks, 2, and then averaged")


def test_means_over_unequal_numbers_are_named_with_the_weights():
    (text,) = texts(ranks_and_one([3, 1]))
    assert "(12 and 4)" in text
    assert "rank 0 weighs 0.5, in one process 0.75; rank 1 weighs 0.5, in one process 0.25" in text


def test_gradients_that_nobody_averages_are_named():
    step = ranks_and_one([4, 4])
    alone = replace(step, ranks=tuple(_stepping_alone(each) for each in step.ranks))
    (text,) = texts(alone)
    assert text.startswith("Each rank steps with gradients of its own, never averaged over the ranks")


def _stepping_alone(each):
    local = [
        torch.frombuffer(bytearray(part), dtype=torch.float32) for part in each.detail.backward[0].gradients
    ]
    return side(local, rows(8)[0][:4])


def test_ranks_that_train_apart_are_not_checked():
    step = ranks_and_one([4, 4])
    apart = tuple(_stepping_alone(each) for each in step.ranks)
    found = judged([replace(step, ranks=apart, is_wrapped=False)])
    assert (found.verdict, found.mistakes) == ("not checked", ())


def _averaged_in_groups(step, *groups):
    sides = list(step.ranks)
    for group in groups:
        pairs = zip(*(_stepping_alone(sides[rank]).detail.gradients for rank in group), strict=True)
        mean = [torch.stack([vector(part.data) for part in pair]).mean(0).float() for pair in pairs]
        for rank in group:
            detail = replace(sides[rank].detail, gradients=tuple(map(sampled, mean)))
            sides[rank] = replace(sides[rank], detail=detail)
    return replace(step, ranks=tuple(sides))


@pytest.mark.parametrize("is_wrapped", [True, False])
def test_ranks_that_average_in_groups_train_a_model_in_each(is_wrapped):
    step = replace(ranks_and_one([4, 4, 4, 4]), is_wrapped=is_wrapped)
    found = judged([_averaged_in_groups(step, (0, 2), (1, 3))])
    assert (found.verdict, found.mistakes) == ("not checked", ())
    assert found.reason == "each group of ranks (0, 2; 1, 3) trains a model of its own"


def test_ranks_that_average_parameters_are_not_checked():
    step = ranks_and_one([4, 4])
    first = replace(step, ranks=tuple(_stepping_alone(each) for each in step.ranks))
    found = judged([first, ranks_and_one([4, 4], step=2)])
    assert found.verdict == "not checked"
    assert "average parameters" in found.reason


def test_parameters_that_differ_are_named():
    step = ranks_and_one([4, 4])
    first, second = step.ranks
    other = replace(second, event=replace(second.event, sums=(1, 2)))
    assert texts(replace(step, ranks=(first, other))) == [
        "The parameters differ between ranks from the start, although gradients are averaged"
    ]


def test_gradients_clipped_before_the_average_are_named():
    def clipped(local):
        cut = [
            [each * 0.1 / float(torch.cat([p.flatten() for p in mine]).norm()) for each in mine]
            for mine in local
        ]
        return [sum(each) / len(local) for each in zip(*cut, strict=True)]

    step = ranks_and_one([4, 4], average=clipped)
    norms = (3.0, 4.0)
    sides = tuple(
        replace(each, detail=replace(each.detail, clips=(side([], rows(1)[0], norm=norm).detail.clips)))
        for each, norm in zip(step.ranks, norms, strict=True)
    )
    (text,) = texts(replace(step, ranks=sides))
    assert text.startswith(
        "Gradients are clipped before they are averaged: their norms are 3, 4 on the ranks"
    )


def test_a_factor_of_some_parameters_is_named():
    def scaled(local):
        return [
            sum(each) / len(local) * (2 if place else 1)
            for place, each in enumerate(zip(*local, strict=True))
        ]

    (text,) = texts(ranks_and_one([4, 4], average=scaled))
    assert text == "The gradients of bias are 2 times one process's, and those of weight are equal"


@pytest.mark.parametrize("seed", [1, 2])
def test_other_rows_are_not_checked(seed):
    step = ranks_and_one([4, 4])
    x, y = rows(8, seed)
    other, loss = gradients(x, y)
    found = judged([replace(step, one=side(other, x, elements=32.0, loss=loss))])
    assert (found.verdict, found.mistakes) == ("not checked", ())
    assert "other rows" in found.reason


def test_fewer_rows_are_not_checked():
    step = ranks_and_one([4, 4])
    x, y = rows(8)
    fewer, loss = gradients(x[:4], y[:4])
    found = judged([replace(step, one=side(fewer, x[:4], elements=16.0, loss=loss))])
    assert found.verdict == "not checked"
    assert "one process trained on 4 rows where the ranks trained on 8" in found.reason


def test_stages_of_a_pipeline_are_not_checked():
    step = ranks_and_one([4, 4])
    whole = replace(step.one.event, names=("0.weight", "0.bias", "1.weight", "1.bias"))
    found = judged([replace(step, one=replace(step.one, event=whole))])
    assert (found.verdict, found.mistakes) == ("not checked", ())
    assert "each rank trains a part of the model, as a stage of a pipeline does" in found.reason


def test_a_difference_without_a_cause_is_not_called_a_mistake():
    step = ranks_and_one([4, 4])
    x, y = rows(8)
    whole, loss = gradients(x, y)
    noisy = [each + torch.randn(each.shape, generator=torch.Generator().manual_seed(3)) for each in whole]
    found = judged([replace(step, one=side(noisy, x, elements=32.0, loss=loss))])
    assert (found.verdict, found.mistakes) == ("not checked", ())
    assert "no known cause fits" in found.reason


def _with_nodes(step, of_ranks, of_one):
    x, y = rows(8)
    whole, loss = gradients(x, y)
    noisy = [each + torch.randn(each.shape, generator=torch.Generator().manual_seed(3)) for each in whole]
    one = side(noisy, x, elements=32.0, loss=loss)
    ranks = tuple(_with_pass(each, nodes=(of_ranks,)) for each in step.ranks)
    return replace(step, ranks=ranks, one=_with_pass(one, nodes=(of_one,)))


def _with_pass(each, **values):
    made = replace(each.detail.backward[0], **values)
    return replace(each, detail=replace(each.detail, backward=(made,)))


def test_a_loss_that_compares_rows_is_named_by_its_operation():
    small, large = Node("MmBackward0", (4, 4), ((4, 12),)), Node("MmBackward0", (8, 8), ((8, 12),))
    (text,) = texts(_with_nodes(ranks_and_one([4, 4]), small, large))
    assert "as a contrastive loss does (Mm: [4, 4] on a rank, [8, 8] on one process)" in text


def test_a_statistic_of_rows_is_named_by_its_operation():
    small, large = Node("MmBackward0", (12, 12), ((12, 4),)), Node("MmBackward0", (12, 12), ((12, 8),))
    (text,) = texts(_with_nodes(ranks_and_one([4, 4]), small, large))
    assert "(Mm: [12, 12] from [12, 4] on a rank, from [12, 8] on one process)" in text


def test_a_loss_that_reduces_over_the_ranks_itself_is_not_named():
    small, large = Node("MmBackward0", (12, 12), ((12, 4),)), Node("MmBackward0", (12, 12), ((12, 8),))
    step = _with_nodes(ranks_and_one([4, 4]), small, large)
    nodes = (Node("_AllReduceBackward", (12, 12), ()), small)
    assert texts(replace(step, ranks=tuple(_with_pass(each, nodes=nodes) for each in step.ranks))) == []


def test_texts_padded_to_another_length_are_not_compared_rows():
    small, large = Node("MmBackward0", (4, 7), ()), Node("MmBackward0", (8, 9), ())
    assert texts(_with_nodes(ranks_and_one([4, 4]), small, large)) == []


def test_rounding_is_no_difference():
    step = ranks_and_one([3, 1])
    rounded = replace(step, noise={"": 0.5, **dict.fromkeys(NAMES, 0.5)})
    assert judged([rounded]).tolerance == 0.1


def test_shards_are_judged_by_their_losses():
    step = ranks_and_one([3, 1])
    sides = tuple(
        replace(
            each,
            event=replace(each.event, pieces=(number, number)),
            detail=replace(each.detail, gradients=_half(each.detail.gradients, number)),
        )
        for number, each in enumerate(step.ranks)
    )
    (text,) = texts(Step(sides, step.one))
    assert (
        text
        == "The ranks' means are averaged although they are over different numbers of elements (12 and 4)"
    )


def _half(gradients_, number):
    cut = lambda data: data[: len(data) // 2] if number == 0 else data[len(data) // 2 :]  # noqa: E731
    return tuple(replace(each, data=cut(each.data), norm=each.norm / 2**0.5) for each in gradients_)


def test_a_skipped_step_is_left_out():
    step = ranks_and_one([4, 4])
    skipped = lambda each: replace(each, event=replace(each.event, is_skipped=True))  # noqa: E731
    first = replace(step, ranks=tuple(map(skipped, step.ranks)), one=skipped(step.one))
    assert judged([first]).verdict == "not checked"
    assert judged([replace(step, one=skipped(step.one))]).verdict == "not checked"
    some = replace(step, ranks=(skipped(step.ranks[0]), step.ranks[1]))
    assert "on some ranks only" in judged([some]).reason
    assert judged([first, ranks_and_one([4, 4], step=2)]).steps == (2,)


def test_gradients_that_are_not_finite_are_not_compared():
    step = ranks_and_one([4, 4], factor=float("nan"))
    assert judged([step]).reason == "gradients of step 1 are not finite"


def test_a_mistake_has_the_line_of_the_backward_pass():
    assert judged([ranks_and_one([3, 1])]).mistakes[0].at == AT


def test_a_fixed_divisor_of_a_ranks_size_is_no_mistake():
    found = judged([_divided_by_rows(4.0)])
    assert (found.verdict, found.mistakes) == ("equal", ())
    assert "as many rows or elements as a rank has" in found.remarks[0]


def test_a_sum_divided_by_all_ranks_rows_is_named():
    (text,) = texts(_divided_by_rows(8.0))
    assert text.endswith("the loss is a sum divided by 8, as on one process, and then averaged")


def test_rows_gathered_without_their_gradients_are_named():
    step = ranks_and_one([4, 4], factor=0.5)
    *ranks, one = (_with_pass(each, averaged=(32.0,), over=((8, 4),)) for each in (*step.ranks, step.one))
    (text,) = texts(replace(step, ranks=tuple(ranks), one=one))
    assert "1/2 of one process's: each rank's loss has the rows of all ranks" in text


def test_a_sum_that_is_multiplied_by_the_ranks_has_no_divisor_of_its_own():
    found = judged([_divided_by_rows(4.0, 2.0)])  # such as the number of all ranks' tokens
    assert (found.verdict, found.remarks) == ("equal", ())


def _divided_by_rows(divisor, factor=1.0):
    step = ranks_and_one([4, 4], "sum", factor=factor / divisor)
    whole, _ = gradients(*rows(8), "sum")
    one = side([each / divisor for each in whole], rows(8)[0])
    *ranks, one = (
        _with_pass(each, divisors=(divisor,), over=((size, 4),))
        for each, size in ((step.ranks[0], 4), (step.ranks[1], 4), (one, 8))
    )
    return replace(step, ranks=tuple(ranks), one=one)


def test_passes_that_one_process_cuts_otherwise_prove_nothing():
    step = ranks_and_one([3, 1])
    one = replace(step.one, detail=replace(step.one.detail, calls=((1,), (3,))))
    ranks = tuple(replace(each, detail=replace(each.detail, calls=((1,), (1,)))) for each in step.ranks)
    found = judged([replace(step, ranks=ranks, one=one)])
    assert (found.verdict, found.mistakes) == ("not checked", ())
    assert "cuts its batches into other passes" in found.reason


def _then_drifts(step):
    first, second = ranks_and_one([4, 4], step=2).ranks
    other = replace(second, event=replace(second.event, sums=(1, 2)))
    return [step, replace(ranks_and_one([4, 4], step=2), ranks=(first, other))]


def test_gradients_that_one_rank_changes_are_named():
    step = ranks_and_one([4, 4])
    first, second = step.ranks
    mean = [torch.frombuffer(bytearray(each.data), dtype=torch.float32) for each in first.detail.gradients]
    halved = replace(
        second, detail=replace(second.detail, gradients=(first.detail.gradients[0], sampled(mean[1] / 2)))
    )
    (text,) = texts(*_then_drifts(replace(step, ranks=(first, halved))))
    assert text.startswith(
        "The ranks step with different gradients for bias, which are not what their passes"
    )


def test_a_gradient_on_some_ranks_only_is_named():
    step = ranks_and_one([4, 4])
    first, second = step.ranks
    without = replace(second, detail=replace(second.detail, gradients=(second.detail.gradients[0], None)))
    (text,) = texts(*_then_drifts(replace(step, ranks=(first, without))))
    assert text == "Only rank 0 of 2 step with a gradient for bias; the parameters differ afterwards"


def test_each_optimizer_has_its_own_mistake():
    wrong, doubled = ranks_and_one([4, 4], "sum"), ranks_and_one([4, 4], factor=2.0)
    sides = (*doubled.ranks, doubled.one)
    second = [replace(each, event=replace(each.event, optimizer=1)) for each in sides]
    found = texts(wrong, replace(doubled, ranks=tuple(second[:2]), one=second[2]))
    assert ["1/2 of" in found[0], "2 times" in found[1]] == [True, True]


def test_the_root_of_a_mean_is_named():
    node = Node("SqrtBackward0", (), ((),), ("MeanBackward0",))
    (text,) = texts(_with_nodes(ranks_and_one([4, 4]), node, node))
    assert text.startswith("The loss is a function of a mean over a rank's rows (Sqrt)")


@pytest.mark.parametrize(
    ("of", "is_named"),
    [(("AddBackward0", "AddBackward0"), True), (("SumBackward0",), False), (("MeanBackward0", "Pow"), False)],
)
def test_a_ratio_of_sums_is_named(of, is_named):
    step = ranks_and_one([4, 4], average=lambda local: [each.abs() for each in local[0]])
    node = Node("DivBackward0", (), ((),) * len(of), of)
    found = [text.partition(" over")[0] for text in texts(_with_nodes(step, node, node))]
    assert found == (["The loss is a ratio of sums"] if is_named else [])


def test_ranks_that_tensor_parallelism_joins_count_once():
    step = ranks_and_one([8, 8])
    whole, loss = gradients(*rows(16))
    first = side(whole, rows(16)[0], elements=64.0, loss=loss, owner=0)
    found = judged([replace(step, ranks=(first, first), one=first)])
    assert found.verdict == "equal"
    assert replace(step, ranks=(first, first)).data == (first,)


def _with_terms(step, *terms):
    """Return the step with losses of several terms: the shape that each reduces, and its divisor, by row."""

    def noted(side):
        own = len(side.detail.inputs[0][0])
        return _with_pass(
            side,
            averaged=tuple(own * width if is_mean else 1.0 for width, is_mean in terms),
            divisors=(1.0,) * len(terms),
            over=tuple((own, width) for width, _ in terms),
        )

    return replace(step, ranks=tuple(map(noted, step.ranks)), one=noted(step.one))


def test_terms_of_different_reductions_have_factors_of_their_own():
    step = _with_terms(ranks_and_one([4, 4]), (3, True), (5, False))
    factors = uneven_terms([step])
    assert factors == {"0": (((4, 1.0),) * 2, ((4, 0.5),) * 2)}
    (mistake,) = mistakes_of_terms([step], factors)
    assert mistake.text == (
        "One term of the loss, over [4, 5], is a sum over a rank's rows: its gradients are 1/2 of one "
        "process's, those of the other terms are not"
    )


def test_a_term_with_a_fixed_divisor_of_a_ranks_size_is_no_mistake():
    step = _with_terms(ranks_and_one([4, 4]), (3, True), (5, False))
    *ranks, one = (_with_pass(each, divisors=(1.0, 4.0)) for each in (*step.ranks, step.one))
    step = replace(step, ranks=tuple(ranks), one=one)
    assert uneven_terms([step]) == {"0": (((4, 1.0),) * 2, ((4, 0.5),) * 2)}
    assert mistakes_of_terms([step], uneven_terms([step])) == ()


def test_two_sums_with_a_fixed_divisor_are_no_mistake():
    step = _divided_by_rows(4.0)
    *ranks, one = (
        _with_pass(each, averaged=(1.0,) * 2, divisors=(4.0,) * 2, over=each.detail.backward[0].over * 2)
        for each in (*step.ranks, step.one)
    )
    assert judged([replace(step, ranks=tuple(ranks), one=one)]).verdict == "equal"


@pytest.mark.parametrize("is_mean", [True, False])
def test_terms_of_one_reduction_have_one_factor(is_mean):
    assert uneven_terms([_with_terms(ranks_and_one([4, 4]), (3, is_mean), (5, is_mean))]) == {}
    assert uneven_terms([_with_terms(ranks_and_one([3, 5]), (3, True), (5, False))]) == {}


def test_a_term_over_unequal_numbers_is_named_beside_one_over_equal_numbers():
    step = _with_terms(ranks_and_one([4, 4]), (3, True), (5, True))
    *ranks, one = (
        _with_pass(each, averaged=(own, 1.0), divisors=(1.0, own_masked))
        for each, own, own_masked in zip((*step.ranks, step.one), (12, 12, 24), (2.0, 3.0, 5.0), strict=True)
    )
    step = replace(step, ranks=tuple(ranks), one=one)
    assert uneven_terms([step]) == {}
    factors = uneven_terms([step], by_rank=True)
    assert factors == {"0": (((4, 1.0),) * 2, ((4, 1.25), (4, 0.833333)))}
    (mistake,) = mistakes_of_terms([step], factors)
    assert "over [4, 5], divides by 2 and 3 on the ranks and by 5 on one process" in mistake.text


def test_a_gradient_that_is_zero_but_for_rounding_is_equal_to_none():
    step = ranks_and_one([4, 4])
    nothing = sampled(torch.zeros(4))
    ranks = [_with_gradient(each, nothing) for each in step.ranks]
    one = _with_gradient(step.one, sampled(torch.full((4,), 1e-9)))
    assert judged([replace(step, ranks=tuple(ranks), one=one)]).verdict == "equal"
    one = _with_gradient(step.one, sampled(torch.full((4,), 1e-2)))
    assert (
        judged([replace(step, ranks=tuple(ranks), one=one)]).reason == "bias got a gradient on one side only"
    )


def test_a_gradient_that_is_rounding_alone_on_both_sides_is_equal():
    step = ranks_and_one([4, 4])
    total = sampled(torch.cat([each.ranks for each in step.parameters])).norm
    noise = [sampled(torch.full((4,), factor * total)) for factor in (2e-6, 3e-7)]  # about the limit
    ranks = [_with_gradient(each, noise[0]) for each in step.ranks]
    found = judged([replace(step, ranks=tuple(ranks), one=_with_gradient(step.one, noise[1]))])
    assert "one side" not in found.reason


@pytest.mark.parametrize(
    ("dtype", "noise", "sizes"), [("float32", 0.0, (8e-3, 4e-4)), ("bfloat16", 0.01, (0.08, 0.035))]
)
def test_weights_that_are_close_or_leave_much_of_a_difference_are_no_cause(dtype, noise, sizes):
    step = ranks_and_one([4, 4])
    single = torch.cat([vector(part.data) for part in step.one.detail.gradients])
    local = torch.cat([vector(part) for part in step.data[0].detail.backward[0].gradients])
    apart = torch.randn(52, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    parts = [own * part / part.norm() for own, part in zip(sizes, (local, apart), strict=True)]
    shifted = (single + sum(parts) * single.norm()).float().split([48, 4])
    one = Side(
        replace(step.one.event, dtype=dtype),
        replace(step.one.detail, gradients=tuple(map(sampled, shifted))),
    )
    found = judged([replace(step, one=one, noise={"": noise})])
    assert (found.verdict, found.mistakes) == ("not checked", ())


def _with_gradient(each, bias):
    return replace(each, detail=replace(each.detail, gradients=(each.detail.gradients[0], bias)))


def test_a_later_step_tells_the_cause_where_the_first_does_not():
    step = ranks_and_one([4, 4])
    noisy = _with_nodes(step, Node("Mm", (), ()), Node("Mm", (), ())).one
    (text,) = texts(replace(step, one=noisy), ranks_and_one([3, 1], step=2))
    assert "rank 0 weighs 0.5, in one process 0.75" in text


def test_examples_chosen_among_a_ranks_rows_are_named():
    small, large = Node("TopkBackward0", (2,), ((4,),)), Node("TopkBackward0", (4,), ((8,),))
    (text,) = texts(_with_nodes(ranks_and_one([4, 4]), small, large))
    assert text == "The loss selects among the rows of a rank alone, one process among all rows (Topk)"
    small, large = Node("TopkBackward0", (4, 2), ((4, 9),)), Node("TopkBackward0", (8, 2), ((8, 9),))
    assert texts(_with_nodes(ranks_and_one([4, 4]), small, large)) == []


@pytest.mark.parametrize(("sizes", "verdict"), [([9, 7], "different"), ([8, 8], "equal")])
def test_uneven_means_are_found_where_a_low_precision_hides_them(sizes, verdict):
    step = ranks_and_one(sizes, dtype="bfloat16")
    step = replace(step, noise={"": 0.5, **dict.fromkeys(NAMES, 0.5)})
    assert step.difference() < step.tolerance()
    assert judged([step]).verdict == verdict
