"""The list of visible devices, in words and in JSON."""

import io

import pytest
from jsonforms import keeps_to
from rich.console import Console

from dpdemo.arithmetic.balance import VisibleDevice
from dpdemo.render import write
from dpdemo.reports.visible import VisibleDevices


def gpu(number, gigabytes):
    return VisibleDevice(f"cuda:{number}", "A card", gigabytes * 2**30, 80)


def drawn(devices, form="table"):
    file = io.StringIO()
    write(VisibleDevices(tuple(devices)), form, Console(file=file, width=80, _environ={}))
    return file.getvalue()


@pytest.mark.parametrize(
    ("gigabytes", "said"),
    [
        ([], "No GPU is visible; DataParallel would make one plain call on the CPU."),
        ([80], "One GPU has nothing to balance."),
        ([80, 80], "Balanced: DataParallel would not warn."),
        (
            [80, 40, 80],
            "cuda:1 has 50% of the memory of cuda:0, and DataParallel warns under 75%.",
        ),
    ],
)
def test_a_sentence_says_whether_dataparallel_would_warn(gigabytes, said):
    devices = [gpu(number, size) for number, size in enumerate(gigabytes)]
    assert said in " ".join(drawn(devices).split())


def test_the_remedy_leaves_the_smaller_one_out():
    assert "--gpus 0,2 leaves it out." in drawn([gpu(0, 80), gpu(1, 40), gpu(2, 80)])


def test_json_holds_every_device_and_the_pair_that_breaks_the_rule():
    found = keeps_to("devices", drawn([gpu(0, 80), gpu(1, 40)], "json"))
    assert [device["memory_bytes"] for device in found["devices"]] == [80 * 2**30, 40 * 2**30]
    assert (found["imbalance"]["smaller"], found["imbalance"]["ratio"]) == (found["devices"][1], 0.5)
    assert keeps_to("devices", drawn([gpu(0, 80), gpu(1, 80)], "json"))["imbalance"] is None
