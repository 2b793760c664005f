"""Tensors that `to_empty` left without values are noted at the first step that trains them."""

import ctypes

import pytest
import torch
from torch import nn

from dpdemo.ranks.events import Event, Trap
from dpdemo.ranks.observe import empties
from dpdemo.ranks.observe.notes import Notes
from dpdemo.virtual import virtual_gpus
from dpdemo.virtual.ops.mode import VirtualGpuMode

DISPATCH = VirtualGpuMode.__torch_dispatch__


@pytest.fixture
def notes(tmp_path):
    with virtual_gpus(1):
        notes = Notes(tmp_path)
        empties.watch(notes)
        yield notes
        notes.close()
    assert VirtualGpuMode.__torch_dispatch__ is DISPATCH


def emptied():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    return model.to_empty(device="cuda")


def step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 3, device="cuda")).sum().backward()
    optimizer.step()


def found(notes):
    if not notes.path.exists():
        return []
    events = map(Event.from_line, notes.path.read_bytes().splitlines())
    return [event.detail for event in events if isinstance(event, Trap)]


def test_what_no_operator_has_written_is_named(notes):
    model = emptied()
    model[1].reset_parameters()
    model.eval()
    step(model)
    assert found(notes) == ["0.weight, 0.bias"]
    assert VirtualGpuMode.__torch_dispatch__ is DISPATCH  # nothing is watched any longer


@pytest.mark.parametrize("fill", ["data", "state", "initialized", "memory"])
def test_values_may_come_in_many_ways(notes, fill):
    model = emptied()
    tensors = [*model.parameters(), *model.buffers()]
    if fill == "data":
        for each in tensors:
            each.data.zero_()
    elif fill == "state":
        model.load_state_dict(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).state_dict())
    elif fill == "initialized":
        model[0].reset_parameters()
        model[1].reset_parameters()
    else:  # by no operator
        for each in tensors:
            ctypes.memset(each.untyped_storage().data_ptr(), 1, each.untyped_storage().nbytes())
    step(model)
    assert found(notes) == []


def test_nothing_is_watched_for_a_module_whose_parameters_a_wrapper_took(notes):
    model = emptied()
    for each in model:
        each._parameters.clear()  # as FSDP1 does, which has a flat one
    step(nn.Sequential(nn.Linear(3, 4)).cuda())
    assert found(notes) == []
    assert VirtualGpuMode.__torch_dispatch__ is DISPATCH


def test_a_step_of_another_model_does_not_count(notes):
    model, other = emptied(), nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).cuda()
    step(other)
    assert found(notes) == []
    step(model)
    assert found(notes) == ["0.weight, 0.bias, 1.weight and 3 more"]


def test_a_batch_gives_no_values_to_the_statistics_of_batch_normalization(notes):
    model = emptied()
    for each in model.parameters():
        nn.init.ones_(each)
    step(model)
    assert found(notes) == ["1.running_mean, 1.running_var"]
