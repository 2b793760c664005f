"""No gradient was averaged, or replicas differ."""

from dataclasses import replace

from rankevents import AT, MADE, MODEL, mistakes, parameters

from dpdemo.ranks.events import Hyperparameters, Late, ModelMade, Rows, StateLoaded, Steps, Trained, Unsynced


def run(*first_and_second, **values):
    return mistakes(*([MADE, *parameters(*sums), *values.get("more", ())] for sums in first_and_second))


def test_replicas_that_differ_from_some_step_to_the_end_are_named():
    (found,) = run((1, 2, 3), (1, 2, 4))
    assert found.text == "The parameters differ between ranks after step 2"
    assert found.at == AT


def test_replicas_that_differ_at_once_are_named():
    (found,) = run((1, 2), (3, 4))
    assert found.text == "The parameters differ between ranks before step 1"
    assert found.advice.startswith("load a checkpoint on every rank")


def test_replicas_that_become_equal_again_are_right():
    assert run((1, 2, 3), (1, 4, 3)) == ()


def test_parameters_that_the_program_averages_itself_are_right():
    averaged = Trained(MODEL, 2, 2, 2, {}, is_averaged_by_hand=True)
    assert run((1, 2, 3), (1, 2, 4), more=[averaged]) == ()


def test_equal_replicas_are_right():
    assert run((1, 2, 3), (1, 2, 3)) == ()


def test_a_state_that_one_rank_loaded_or_that_differs_is_the_cause():
    loaded = StateLoaded("train.py:8", 1, 2, 2, 2, of=MODEL, step=1, sum=5)
    other = replace(loaded, sum=6)
    for mine, theirs, words in (
        ([loaded], [], "the model loaded a state on rank 0 alone"),
        ([loaded], [other], "the model loaded another state on each rank"),
        ([], [replace(other, is_optimizers=True)], "the optimizer loaded a state on rank 1 alone"),
    ):
        (found,) = mistakes([MADE, *parameters(1, 2, 3), *mine], [MADE, *parameters(1, 2, 4), *theirs])
        assert found.text == f"The parameters differ between ranks after step 2: {words}"
        assert found.at == "train.py:8"


def test_a_state_of_another_step_or_model_is_no_cause():
    for more in ({"step": 0, "of": MODEL}, {"step": 1, "of": "another"}):
        loaded = StateLoaded("train.py:8", 1, 2, 2, 2, **more)
        (found,) = mistakes([MADE, *parameters(1, 2, 3), loaded], [MADE, *parameters(1, 2, 4)])
        assert found.text == "The parameters differ between ranks after step 2"


def test_a_step_without_averaging_is_named_with_the_call_that_went_past_the_wrapper():
    (found,) = run((1, 2), (1, 3), more=[Unsynced(MODEL, AT, "train.py:7")])
    assert found.text == "No gradient was averaged; the parameters differ between ranks after step 1"
    assert (found.at, "`.module`" in found.advice) == ("train.py:7", True)


def test_a_wrapper_that_was_never_called_is_the_advice():
    (found,) = run((1, 2), (1, 3), more=[Unsynced(MODEL, AT, was_called=False)])
    assert found.advice.startswith("the wrapper was never called")


def test_steps_without_averaging_are_named_beside_hyperparameters_that_differ():
    found = mistakes(
        *(
            [
                MADE,
                *parameters(1, sum_),
                Unsynced(MODEL, AT),
                Hyperparameters("SGD", (0, 1), AT, (1,), ({"lr": rate},)),
            ]
            for sum_, rate in ((2, 0.1), (3, 0.2))
        )
    )
    assert [each.text.split()[0] for each in found] == ["The", "No"]


def test_unused_parameters_are_the_advice():
    (found,) = run((1, 2), (1, 3), more=[Unsynced(MODEL, AT, unused=("head.bias",))])
    assert found.advice == "no gradient reached head.bias: find_unused_parameters=True"


def test_parameters_that_came_later_are_the_advice():
    before, after = parameters(1, 2)
    late = replace(after, added=("head.bias",))
    (found,) = mistakes([MADE, before, late], [MADE, before, replace(late, sum=9)])
    assert found.advice.startswith("head.bias came after the model was wrapped")


def steps(*sums, first=1, **values):
    return Steps(MODEL, first, AT, sums, **values)


def test_the_exact_first_step_is_named():
    equal = tuple(range(64))
    noted = [[MADE, steps(*equal), steps(64, 65, last, first=65)] for last in (1, 2)]
    assert mistakes(*noted)[0].text == "The parameters differ between ranks after step 67"


def test_parameters_that_alone_differ_are_named():
    noted = [[MADE, steps(1, total, each={"body": total, "head": 5})] for total in (2, 3)]
    assert mistakes(*noted)[0].text == "body differs between ranks after step 2"


def test_parameters_that_were_frozen_when_wrapped_are_the_cause():
    late = Late(MODEL, 2, ("body",), "train.py:20")
    noted = [[MADE, steps(1, total, each={"body": total, "head": 5}), late] for total in (2, 3)]
    (found,) = mistakes(*noted)
    assert "body needed no gradient when the model was wrapped" in found.text
    assert (found.at, found.advice[:20]) == ("train.py:20", "wrap the model again")


def test_the_last_pass_of_a_window_is_named_with_no_sync():
    event = Unsynced(MODEL, AT, step=1, backward_at="train.py:8", no_sync="train.py:7", was_averaged=True)
    noted = [[MADE, *parameters(1), steps(total, total), event] for total in (2, 3)]
    (found,) = mistakes(*noted)
    assert found.text == (
        "The last backward pass before step 1 was not averaged (no_sync at train.py:7); "
        "the parameters differ between ranks after step 1"
    )
    assert found.at == "train.py:8"


def test_a_second_backward_pass_of_the_same_forward_calls_gets_advice_of_its_own():
    (found,) = run((1, 2), (1, 3), more=[Unsynced(MODEL, AT, backward_at="train.py:8", was_averaged=True)])
    assert found.text.startswith("The last backward pass before step 1 was not averaged; ")
    assert (found.at, found.advice[:14]) == ("train.py:8", "add the losses")


def test_a_step_inside_a_backward_pass_gets_advice_of_its_own():
    (found,) = run((1, 2), (1, 3), more=[Unsynced(MODEL, AT, unused=("body",), in_backward=True)])
    assert found.text.startswith("No gradient was averaged; ")
    assert found.advice.startswith("step after backward()")


def test_factors_of_gradients_are_the_cause():
    noted = [
        [MADE, *parameters(1), steps(*sums, scales=(scale,))] for sums, scale in (((2,), 0.5), ((3,), 0.25))
    ]
    assert mistakes(*noted)[0].text.endswith(
        "each multiplied its gradients by a number of its own, 0.5 on rank 0, 0.25 on rank 1"
    )


SHARDED = ModelMade("fully_shard on [0, 1] #1", "Net", "fully_shard", (0, 1), "train.py:4")


def sharded(*scales, more=()):
    model = SHARDED.model
    return mistakes(
        *([SHARDED, Rows(model, 1, 4, AT), Steps(model, 1, AT, (0,), (each,)), *more] for each in scales)
    )


def test_shards_are_judged_by_their_factors():
    (found,) = sharded(0.5, 0.25)
    assert found.text.startswith("Each rank multiplied its gradients by a number of its own before step 1")
    assert found.text.endswith("0.5 on rank 0, 0.25 on rank 1")
    assert sharded(0.5, 0.5) == ()
    assert sharded(0.5, 0.0) == ()  # unknown


def test_shards_whose_last_pass_was_not_averaged_are_named():
    event = Unsynced(SHARDED.model, AT, step=2, backward_at="train.py:8", no_sync="train.py:7")
    (found,) = sharded(0.0, 0.0, more=[event])
    assert found.text == "The last backward pass before step 2 was not averaged (no_sync at train.py:7)"
