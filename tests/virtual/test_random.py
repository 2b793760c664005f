"""Each GPU draws from a generator of its own."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom

pytestmark = pytest.mark.usefixtures("gpus")


@pytest.mark.parametrize(
    "draw",
    [
        lambda device: torch.randn(5, device=device),
        lambda device: torch.rand(5, device=device),
        lambda device: torch.randint(9, (5,), device=device),
        lambda device: torch.randperm(9, device=device),
        lambda device: torch.zeros(5, device=device).uniform_(),
        lambda device: torch.rand_like(torch.zeros(5, device=device)),
        lambda device: torch.bernoulli(torch.full((9,), 0.5, device=device)),
        lambda device: torch.multinomial(torch.ones(9, device=device), 4),
        lambda device: F.dropout(torch.ones(9, device=device)),
        lambda device: F.rrelu(-torch.ones(9, device=device), training=True),
    ],
)
def test_every_gpu_draws_what_the_cpu_draws_from_the_same_seed(draw: Any) -> None:
    torch.manual_seed(7)
    expected = draw("cpu").tolist()
    again = draw("cpu").tolist()
    assert expected != again
    for device in ("cuda:0", "cuda:1"):
        assert draw(device).tolist() == expected
        assert draw(device).tolist() == again


def test_drawing_on_a_gpu_leaves_the_cpus_generator_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3).tolist()
    torch.manual_seed(1)
    torch.rand(3, device="cuda")
    torch.rand_like(torch.zeros(3, device="cuda"))
    assert torch.rand(3).tolist() == expected


def test_seeds_and_states_are_each_devices_own() -> None:
    torch.cuda.manual_seed_all(5)
    assert torch.cuda.initial_seed() == 5
    state = torch.cuda.get_rng_state(1)
    first = torch.rand(2, device="cuda:1").tolist()
    torch.cuda.set_rng_state(state, 1)
    assert torch.rand(2, device="cuda:1").tolist() == first
    with torch.cuda.device(2):
        torch.cuda.manual_seed(6)
    assert torch.rand(2, device="cuda:2").tolist() != first
    assert torch.rand(2, device="cuda:3").tolist() == first
    assert len(torch.cuda.get_rng_state_all()) == 4
    with torch.random.fork_rng(devices=[0]):
        torch.rand(1, device="cuda:0")
    assert torch.rand(2, device="cuda:0").tolist() == first


def test_generators_can_be_made_copied_and_pickled_for_a_gpu() -> None:
    generator = torch.Generator("cuda:1").manual_seed(3)
    assert generator.device == torch.device("cuda:1")
    assert isinstance(generator, torch.Generator)
    assert isinstance(torch.Generator(), torch.Generator)
    expected = torch.rand(2, generator=torch.Generator().manual_seed(3)).tolist()
    again = pickle.loads(pickle.dumps(generator))  # noqa: S301
    for one in (copy.deepcopy(again), again, generator):
        assert one.device == torch.device("cuda:1")
        assert torch.rand(2, device="cuda:1", generator=one).tolist() == expected


def test_dropout_in_replicas_is_what_each_device_draws() -> None:
    torch.manual_seed(2)
    output = torch.nn.DataParallel(torch.nn.Dropout(0.5))(torch.ones(8, 3))
    torch.manual_seed(2)
    assert output.tolist() == F.dropout(torch.ones(2, 3)).tolist() * 4
