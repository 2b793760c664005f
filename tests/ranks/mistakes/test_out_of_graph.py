"""A collective changed a tensor that backward goes through."""

from rankevents import AT, mistakes

from dpdemo.ranks.events import OutOfGraph


def test_the_line_of_the_collective_is_named_once():
    noted = [OutOfGraph("all_reduce", "train.py:7", "SUM", AT)]
    (found,) = mistakes(noted, noted)
    assert found.text.startswith("all_reduce changed a tensor that backward (train.py:9) goes through")
    assert found.at == "train.py:7"
    assert "torch.distributed.nn.functional.all_reduce(tensor)" in found.advice


def test_collectives_outside_of_the_graph_are_right():
    assert mistakes([], []) == ()


def test_gathered_features_without_a_gradient_are_named():
    noted = [OutOfGraph("all_gather", "train.py:7", "", AT)]
    (found,) = mistakes(noted, noted)
    assert found.text.startswith("The loss of train.py:9 uses what all_gather gathered")
    assert found.kind == "mistake"


def test_gathered_features_with_the_ranks_own_are_a_note():
    noted = [OutOfGraph("all_gather_into_tensor", "train.py:7", "", AT, has_own=True)]
    (found,) = mistakes(noted, noted)
    assert (found.kind, "functional.all_gather," in found.advice) == ("note", True)


def test_tokens_sent_away_are_named():
    noted = [OutOfGraph("all_to_all_single", "train.py:7", is_lost=True)]
    (found,) = mistakes(noted, noted)
    assert found.text.startswith("all_to_all_single ends autograd's graph")
