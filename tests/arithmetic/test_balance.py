"""DataParallel's balance rule."""

import importlib
import types
import warnings

import hypothesis.strategies as st
from hypothesis import given

from dpdemo.arithmetic.balance import VisibleDevice, find_imbalance


def gpu(ordinal, memory, multiprocessors=100):
    return VisibleDevice(f"cuda:{ordinal}", memory, multiprocessors)


def test_equal_devices_are_balanced():
    assert find_imbalance([gpu(0, 24), gpu(1, 24)]) is None


def test_no_devices_are_balanced():
    assert find_imbalance([]) is None


def test_the_pair_that_breaks_the_rule_is_named():
    found = find_imbalance([gpu(0, 24), gpu(1, 16), gpu(2, 48)])
    assert (found.what, found.smaller.name, found.larger.name) == ("memory", "cuda:1", "cuda:2")
    assert found.ratio == 16 / 48


def test_exactly_75_percent_is_balanced():
    assert find_imbalance([gpu(0, 75), gpu(1, 100)]) is None


def test_multiprocessors_count_only_when_memory_is_balanced():
    assert find_imbalance([gpu(0, 24, 100), gpu(1, 24, 50)]).what == "multiprocessors"
    assert find_imbalance([gpu(0, 24, 100), gpu(1, 12, 50)]).what == "memory"


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100)), min_size=1, max_size=6))
def test_the_rule_is_torchs_own(sizes):
    devices = [gpu(i, memory, units) for i, (memory, units) in enumerate(sizes)]
    said = _torchs_warning(devices)
    found = find_imbalance(devices)
    assert (found is None) == (said is None)
    if found:
        assert f"exclude GPU {found.smaller.name[5:]} which" in said
        assert f"of the memory or cores of GPU {found.larger.name[5:]}." in said


def _torchs_warning(devices):
    """Run torch's own `_check_balance` over cards with these properties."""
    properties = [
        types.SimpleNamespace(total_memory=device.memory_bytes, multi_processor_count=device.multiprocessors)
        for device in devices
    ]
    # torch.nn.parallel holds a function of this name, which hides the module
    data_parallel = importlib.import_module("torch.nn.parallel.data_parallel")
    genuine = data_parallel._get_devices_properties
    data_parallel._get_devices_properties = lambda ids: [properties[i] for i in ids]
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            data_parallel._check_balance(list(range(len(devices))))
    finally:
        data_parallel._get_devices_properties = genuine
    return str(caught[0].message) if caught else None
