"""One process gets rank 0's buffers and frozen parameters, since a program without a seed makes others."""

from types import SimpleNamespace

import torch
from torch import nn

from dpdemo.ranks.against import frozen
from dpdemo.ranks.against.settings import Settings
from dpdemo.ranks.against.state import State


def _model(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.requires_grad_(False)[0].requires_grad_(True)
    model.register_buffer("queue", torch.randn(2, 5))
    return model


def _state(folder, noted, *, is_replay, model):
    state = State(
        Settings(str(folder), 1, is_replay=is_replay),
        SimpleNamespace(write=lambda event: noted.append(event.to_line()), process=1),
    )
    state.optimizers.append(torch.optim.SGD(model[0].parameters()))
    return state


def test_one_process_gets_what_no_optimizer_of_rank_0_changes(tmp_path, monkeypatch):
    ranks = SimpleNamespace(is_initialized=lambda: True, get_rank=lambda: 0)
    monkeypatch.setattr(frozen, "dist", ranks)
    noted, first, second = [], _model(1), _model(2)
    state = _state(tmp_path, noted, is_replay=False, model=first)
    frozen.meet(state, first)
    frozen.meet(state, first)
    assert len(noted) == 1  # a model is noted at its first call alone
    state.settings.events(0).write_bytes(b"".join(noted))
    state.store.path.rename(state.settings.store(0))
    kept = second[0].weight.clone()
    replay = _state(tmp_path, noted, is_replay=True, model=second)
    frozen.meet(replay, second)
    assert torch.equal(second[0].weight, kept)  # an optimizer's parameters are set before each step
    for mine, other in zip(first[1:].parameters(), second[1:].parameters(), strict=True):
        assert torch.equal(mine, other)
    assert torch.equal(first.queue, second.queue)
    first.queue.zero_()
    assert second.queue.any()
