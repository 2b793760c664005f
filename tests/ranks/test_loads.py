"""Loading a module's own tensors changes nothing, unless something filled them in place."""

from types import SimpleNamespace

import torch
from torch import nn

from dpdemo.ranks.observe.loads import LoadNotes


def test_a_state_of_a_modules_own_tensors_is_in_vain():
    found, module = LoadNotes(None, SimpleNamespace(steps=0)), nn.Linear(2, 2)
    assert found.is_in_vain(module, module.state_dict())
    assert not found.is_in_vain(module, nn.Linear(2, 2).state_dict())


def test_it_is_not_once_the_tensors_were_filled_in_place():
    found, module = LoadNotes(None, SimpleNamespace(steps=0)), nn.Linear(2, 2)
    state = module.state_dict()
    found.gives(module, state)
    state["weight"].copy_(torch.ones(2, 2))
    assert not found.is_in_vain(module, state)


def test_it_is_if_steps_of_an_optimizer_changed_them():
    training, module = SimpleNamespace(steps=0), nn.Linear(2, 2)
    found, best = LoadNotes(None, training), module.state_dict()
    found.gives(module, best)
    with torch.no_grad():
        module.weight += 1
    training.steps = 1
    assert found.is_in_vain(module, best)


def test_a_distributed_checkpoint_writes_into_the_tensors_of_a_state():
    found, module = LoadNotes(None, SimpleNamespace(steps=0)), nn.Linear(2, 2)
    found.reads_in_place = True
    assert not found.is_in_vain(module, module.state_dict())
