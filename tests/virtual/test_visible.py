"""`CUDA_VISIBLE_DEVICES` that a program sets itself, and when CUDA is initialised.

What each value means is NVIDIA's (CUDA programming guide, "CUDA_VISIBLE_DEVICES") and, for what stands in no
list of numbers, what PyTorch's own tests expect (test/test_cuda.py, `test_cuda_visible_devices...`).
"""

import inspect
import os
import subprocess
import sys

import pytest
import torch

from dpdemo.virtual import suspended, virtual_gpus

VARIABLE = "CUDA_VISIBLE_DEVICES"
# torch 2.11's `device_count` reads the variable once more when CUDA was initialised, with NVIDIA's library
READS_ONCE_MORE = "is_initializing" not in inspect.getsource(torch.cuda.device_count)


@pytest.fixture
def four(monkeypatch):
    """Four GPUs of 1 to 4 MiB, where the variable is set outside too: that one is about real GPUs."""
    monkeypatch.setenv(VARIABLE, "1")
    with virtual_gpus(4, memory=["1MiB", "2MiB", "3MiB", "4MiB"]) as opened:
        assert VARIABLE not in os.environ
        yield opened
    assert os.environ[VARIABLE] == "1"


@pytest.mark.parametrize(
    ("value", "visible"),
    [
        ("2", [2]),
        ("3,1", [3, 1]),
        (" 1, 2", [1, 2]),
        ("1,5", [1]),
        ("5,1", []),
        ("0,-1,2", [0]),
        ("-1", []),
        ("", []),
        ("0,0", []),
        ("1,2,1", []),
        ("1gpu2,2ampere", [1, 2]),
        ("gpu", []),
        (f"GPU-{2:032d}", []),
        ("MIG-1", []),
    ],
)
def test_a_program_sees_the_gpus_that_it_names_up_to_the_first_that_is_not_there(four, value, visible):
    os.environ[VARIABLE] = value
    assert torch.cuda.device_count() == len(visible)
    assert torch.cuda.is_available() == bool(visible)
    assert len(four) == len(visible)
    assert four.visible == tuple(visible)
    for index, named in enumerate(visible):
        assert torch.cuda.mem_get_info(index)[1] == (named + 1) * 2**20
        assert torch.cuda.get_device_properties(index).pci_bus_id == named
    with pytest.raises(RuntimeError, match=r"invalid device ordinal|No CUDA GPUs are available"):
        torch.ones(1, device=f"cuda:{len(visible)}")


@pytest.mark.usefixtures("four")
def test_a_count_of_gpus_is_taken_anew_until_cuda_is_initialised():
    for value, count in (("1", 1), ("0,2", 2)):
        os.environ[VARIABLE] = value
        assert (torch.cuda.device_count(), torch.cuda.is_initialized()) == (count, False)
    torch.zeros(1).cuda()
    os.environ[VARIABLE] = "0,1,2"
    assert (torch.cuda.device_count(), torch.cuda.is_initialized()) == (3 if READS_ONCE_MORE else 2, True)


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    "question",
    [
        torch.cuda.is_available,
        torch.cuda.current_device,
        lambda: torch.cuda.set_device(1),
        lambda: torch.ones(1, device="cuda:1"),
        lambda: torch.nn.Linear(1, 1).to("cuda"),
        lambda: torch.nn.DataParallel(torch.nn.Linear(1, 1), [0]),
        lambda: torch.cuda.Stream(1),
        lambda: torch.Generator("cuda"),
    ],
)
def test_what_is_set_after_the_first_question_comes_too_late(question):
    question()
    os.environ[VARIABLE] = "0"
    torch.zeros(1, device="cuda:3")
    assert torch.cuda.device_count() in ({1, 4} if READS_ONCE_MORE else {4})


@pytest.mark.usefixtures("four")
def test_a_seed_that_is_set_before_cuda_is_initialised_counts_then():
    torch.manual_seed(1)
    torch.cuda.manual_seed(0)
    assert torch.cuda.default_generators == ()
    assert torch.rand(3, device="cuda").tolist() == pytest.approx([0.3990, 0.5167, 0.0249], abs=5e-5)
    assert [generator.initial_seed() for generator in torch.cuda.default_generators] == [0, 1, 1, 1]


def test_gpus_put_aside_keep_what_the_program_hid(four):
    os.environ[VARIABLE] = "0,3"
    with suspended():
        assert os.environ[VARIABLE] == "1"
        with virtual_gpus(3):
            assert torch.cuda.device_count() == 3
    kept = torch.zeros(2, device="cuda:1")
    assert four.live_bytes(1) == 512
    with suspended():
        pass
    assert (torch.cuda.device_count(), torch.cuda.is_initialized()) == (2, True)
    assert kept.device == torch.device("cuda:1")


@pytest.mark.usefixtures("four")
def test_other_processes_see_what_was_set_outside_until_the_program_sets_it():
    ask = [sys.executable, "-c", f"import os; print(os.environ.get({VARIABLE!r}))"]
    assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout == "1\n"
    os.environ[VARIABLE] = "0,3"
    assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout == "0,3\n"
