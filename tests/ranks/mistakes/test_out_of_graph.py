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
