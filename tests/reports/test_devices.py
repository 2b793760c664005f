import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.reports.devices import Devices

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


@given(ordinals)
def test_names_lead_back_to_the_devices(numbers):
    devices = Devices.of("cuda", numbers)
    assert list(devices) == [f"cuda:{number}" for number in numbers]
    assert Devices.from_names(list(devices)) == devices
    assert [devices.name(i) for i in range(len(devices))] == list(devices)


@given(ordinals, st.integers(0, 12), st.integers(0, 12))
def test_a_slice_is_the_devices_in_it(numbers, start, stop):
    assert list(Devices.of("cuda", numbers)[start:stop]) == list(Devices.of("cuda", numbers))[start:stop]


@given(st.integers(0, 5), st.integers(0, 9), st.integers(1, 3))
def test_equal_devices_compare_equal_however_they_were_given(start, stop, step):
    span = range(start, stop, step)
    assert Devices.of("cuda", span) == Devices.of("cuda", list(span)) == Devices.of("cuda", tuple(span))
    assert hash(Devices.of("cuda", span)) == hash(Devices.of("cuda", list(span)))


def test_names_of_the_cpu_and_of_a_device_without_ordinal_are_read():
    assert Devices.from_names(["cpu"]) == Devices.cpu()
    assert Devices.from_names(["cuda"]) == Devices.of("cuda", [0])
    assert len(Devices.from_names([])) == 0


def test_devices_of_several_kinds_are_an_error():
    with pytest.raises(ValueError, match="expected devices of one kind, got cuda:0, cpu"):
        Devices.from_names(["cuda:0", "cpu"])


def test_a_hundred_thousand_devices_are_kept_as_a_range():
    assert Devices.of("cuda", list(range(100_000))).ordinals == range(100_000)
    assert isinstance(Devices.of("cuda", range(100_000))[5:50_000].ordinals, range)
