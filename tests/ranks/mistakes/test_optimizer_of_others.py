"""The optimizer was made before FSDP, so that no step changes the model."""

from rankevents import AT, MADE, MODEL, mistakes

from dpdemo.ranks.events import ByHand, Unstepped

IDLE = ByHand("stepped at train.py:9 on [0, 1] #1", (0, 1), AT, is_idle=True)


def test_an_idle_optimizer_beside_a_model_that_no_step_changes_is_named():
    noted = [MADE, IDLE, Unstepped(MODEL, "fully_shard")]
    (found,) = mistakes(noted, noted)
    assert found.text.startswith("No step changes the model under fully_shard")
    assert found.at == AT


def test_an_idle_optimizer_beside_a_trained_model_is_right():
    assert mistakes([MADE, IDLE], [MADE, IDLE]) == ()


def test_an_optimizer_made_while_parameters_were_whole_is_not_called_too_early():
    idle = ByHand("stepped at train.py:9 on [0, 1] #1", (0, 1), AT, is_idle=True, was_whole=True)
    noted = [MADE, idle, Unstepped(MODEL, "fully_shard")]
    (found,) = mistakes(noted, noted)
    assert "made while the parameters were unsharded" in found.text
    assert "reshard()" in found.advice
