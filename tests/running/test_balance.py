"""`run`'s hint about GPUs that are not balanced.

tests/arithmetic/test_balance.py compares the rule with torch's own.
"""

from types import SimpleNamespace

import pytest

from dpdemo.results.devices import Devices
from dpdemo.running.visible import warn_of_balance


@pytest.fixture
def show_cards(monkeypatch):
    """Make torch describe cards with these sizes of memory."""

    def show(*sizes):
        cards = [SimpleNamespace(total_memory=size * 2**30, multi_processor_count=100) for size in sizes]
        monkeypatch.setattr("torch.cuda.get_device_properties", cards.__getitem__)

    return show


def test_the_hint_names_the_pair_and_how_to_leave_the_smaller_out(show_cards):
    show_cards(24, 12, 24)
    said = "cuda:1 has 50% of the memory of cuda:0, and DataParallel warns under 75%; --gpus {} leaves it out"
    assert warn_of_balance(Devices.of("cuda", [0, 1, 2])) == said.format("0,2")
    assert warn_of_balance(Devices.of("cuda", [0, 1])) == said.format("0,")


def test_balanced_gpus_and_the_cpu_have_no_hint(show_cards):
    show_cards(24, 18, 24)
    assert warn_of_balance(Devices.of("cuda", [0, 1, 2])) is None
    assert warn_of_balance(Devices.of("cuda", [1])) is None
    assert warn_of_balance(Devices.cpu()) is None
