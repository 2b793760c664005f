import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.results.devices import Devices

ordinals = st.lists(st.integers(0, 20), max_size=12)


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        (Devices.cpu(), "cpu"),
        (Devices.of("cuda", []), ""),
        (Devices.of("cuda", [3]), "cuda:3"),
        (Devices.of("cuda", range(7)), "cuda:0–6"),
        (Devices.of("cuda", [2, 3, 4]), "cuda:2–4"),
        (Devices.of("cuda", [2, 0]), "cuda:2, cuda:0"),
        (Devices.of("cuda", [0, 0, 0]), "cuda:0, cuda:0, cuda:0"),
        (Devices.of("cuda", range(0, 6, 2)), "cuda:0, cuda:2, cuda:4"),
        (Devices.of("cuda", range(0, 80, 2)), "cuda:0, cuda:2, cuda:4, cuda:6, ... cuda:78 (40 devices)"),
    ],
)
def test_devices_write_themselves_short(devices, text):
    assert str(devices) == text


@given(ordinals, st.data())
def test_without_leaves_the_other_devices(numbers, data):
    devices = Devices.of("cuda", numbers)
    assert devices.ordinals == numbers
    places = data.draw(st.sets(st.sampled_from(range(len(numbers))))) if numbers else set()
    left = devices.without([name for place, name in enumerate(devices) if place in places])
    assert sorted(left) == sorted(name for place, name in enumerate(devices) if place not in places)
    assert isinstance(left, Devices)
