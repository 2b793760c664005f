"""Copies of a model are those of `copy.deepcopy`, with functions, tensors and locks that it cannot copy."""

import copy

import pytest
import torch
from torch import nn

from dpdemo.checking.observing.state import same, snapshot
from dpdemo.checking.running.copying import ModelSource, deep_copy
from dpdemo.virtual import virtual_gpus


def ringed():
    """Build a model of which one part holds another, and two share a dict of hooks and a container."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LSTM(4, 4))
    object.__setattr__(model[0], "after", model[1])
    model[1]._forward_hooks = model[0]._forward_hooks
    model[1].seen = model[0].seen = [torch.ones(2)]
    return model


def test_parts_that_are_shared_are_shared_in_the_copy():
    model = ringed()
    twin = deep_copy(model)
    assert twin[0].after is twin[1] is not model[1]
    assert twin[0]._forward_hooks is twin[1]._forward_hooks is not model[0]._forward_hooks
    assert twin[0].seen is twin[1].seen is not model[0].seen


def tapped():
    """Build a model whose hook fills a dict of the model's, which it knows by another name."""
    model = nn.Sequential(nn.Linear(4, 4))
    store = model.kept = {}
    model[0].register_forward_hook(lambda *what: store.update(out=what[-1]))
    return model


def test_a_function_over_a_container_of_the_model_follows_its_copy():
    model = tapped()
    twin = deep_copy(model)
    twin(torch.ones(2, 4))
    assert list(twin.kept) == ["out"]
    assert not model.kept


@pytest.mark.parametrize(
    "make",
    [
        ringed,
        lambda: nn.TransformerEncoderLayer(4, 2),
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)),
        lambda: nn.ParameterDict({"a": torch.ones(3)}),
    ],
    ids=["ringed", "transformer", "parametrized", "parameters"],
)
def test_a_copy_is_the_one_that_python_makes(make):
    model = make()
    twin, pythons = deep_copy(model), copy.deepcopy(model)
    assert [list(vars(part)) for part in twin.modules()] == [list(vars(part)) for part in pythons.modules()]
    mine, theirs = snapshot(twin), snapshot(pythons)
    assert mine.keys() == theirs.keys()
    assert all(same(mine[path].value, theirs[path].value, of_one_model=False) for path in mine)


def test_copies_on_a_gpu_are_alike_apart_and_counted():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model[0].weight.note = "kept"
    source, gpu = ModelSource(model), torch.device("cuda", 1)
    with virtual_gpus(2) as gpus:
        source.fresh_on(gpu)  # the first makes one more, of which the others are copies
        before = gpus.live_bytes(1)
        first, other = source.fresh_on(gpu), source.fresh_on(gpu)
        assert gpus.live_bytes(1) - before == 2 * 512 * len(model.state_dict())
        assert {part.device for part in (*first.parameters(), *first.buffers())} == {gpu}
        with torch.no_grad():
            first[0].weight.zero_()
        assert torch.equal(other[0].weight.cpu(), model[0].weight)
        assert other[0].weight.note == "kept"
    assert model[0].weight.device.type == "cpu"


def test_a_model_that_is_copied_once_only_is_built_anew():
    class Once(nn.Linear):
        def __deepcopy__(self, memo):
            raise TypeError("no second one")

    built = []

    def build():
        built.append(Once(2, 3))
        return built[-1]

    source = ModelSource(build(), build)
    with virtual_gpus(2):
        twins = [source.fresh_on(torch.device("cuda", 0)) for _ in range(2)]
    assert type(twins[0]) is Once
    assert len({id(model) for model in (built[0], *twins)}) == 3
    assert torch.equal(twins[1].weight, built[0].weight)
