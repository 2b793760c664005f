"""`load_state_dict(strict=False)` took none of the keys, or few."""

from rankevents import AT, mistakes

from dpdemo.ranks.events import StateLoaded


def run(taken, given, wanted, prefix="", keys=()):
    noted = StateLoaded(AT, 1, taken, given, wanted, prefix, keys)
    return mistakes([noted], [noted])


def test_keys_with_the_name_of_a_wrapper_are_named_with_it():
    (found,) = run(0, 4, 4, "module.", ("module.0.bias", "0.bias"))
    assert found.text.startswith(
        "load_state_dict took none of the 4 saved tensors: saved keys have `module.`"
    )
    assert "model.module.state_dict()" in found.advice


def test_other_names_are_shown_on_both_sides():
    (found,) = run(0, 2, 4, keys=("body.weight", "0.weight"))
    assert found.text.endswith("it was given body.weight and wants 0.weight")


def test_the_modules_own_tensors_are_nothing_new():
    (found,) = mistakes(*[[StateLoaded(AT, 1, 4, 4, 4, is_own=True)]] * 2)
    assert found.text == "load_state_dict was given the module's own tensors: it changed nothing"
    assert "copy.deepcopy" in found.advice


def test_tensors_that_a_broadcast_has_filled_on_the_other_ranks_are_right():
    own = StateLoaded(AT, 1, 4, 4, 4, is_own=True)
    assert mistakes([own], [StateLoaded(AT, 1, 4, 4, 4)]) == ()


def test_a_part_of_a_model_is_right():
    assert run(4, 4, 100) == ()


def test_a_head_of_another_shape_left_out_is_right():
    assert run(98, 100, 102, keys=("fc.bias", "head.bias")) == ()
