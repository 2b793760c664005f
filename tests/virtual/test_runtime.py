"""What `torch.cuda` and `torch.accelerator` answer."""

import os

import pytest
import torch

from dpdemo.virtual import suspended, virtual_gpus

pytestmark = pytest.mark.usefixtures("gpus")


def test_cuda_says_how_many_devices_there_are_and_what_they_are():
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 4
    assert torch.cuda.get_device_name(3) == "Virtual GPU"
    assert torch.cuda.get_device_capability(3) == (9, 0)
    assert torch.cuda.get_device_properties("cuda:3").multi_processor_count > 0
    assert torch.cuda.get_device_properties(3).total_memory == torch.cuda.mem_get_info(3)[1]
    assert torch.cuda.is_bf16_supported()
    assert torch.cuda.can_device_access_peer(0, 1)
    with pytest.raises(AssertionError, match=r"^Invalid device id$"):
        torch.cuda.get_device_properties(4)


def test_the_current_device_can_be_set_and_entered():
    assert torch.cuda.current_device() == 0
    torch.cuda.set_device("cuda:2")
    assert torch.cuda.current_device() == 2
    with torch.cuda.device(1), torch.cuda.device(None):
        assert torch.cuda.current_device() == 1
        with torch.cuda.device_of(torch.zeros(1, device="cuda:3")):
            assert torch.cuda.current_device() == 3
    assert torch.cuda.current_device() == 2
    torch.cuda.set_device(0)


def test_memory_is_answered_from_the_ledger(gpus):
    kept = torch.empty(1000, dtype=torch.uint8, device="cuda:1")
    large = torch.empty(2**20, dtype=torch.uint8, device="cuda:1")
    del large
    assert torch.cuda.memory_allocated(1) == gpus.live_bytes(1) == 1024
    assert torch.cuda.max_memory_allocated(1) == gpus.peak_bytes(1) == 2**20 + 1024
    assert torch.cuda.memory_reserved(1) == 1024
    free, total = torch.cuda.mem_get_info(1)
    assert total - free == 1024
    assert "1024 B" in torch.cuda.memory_summary(1) or "1 KiB" in torch.cuda.memory_summary(1)
    torch.cuda.reset_peak_memory_stats(1)
    assert torch.cuda.max_memory_allocated(1) == 1024
    torch.cuda.reset_accumulated_memory_stats(1)
    torch.cuda.empty_cache()
    torch.cuda.ipc_collect()
    assert torch.cuda.memory_allocated(0) == 0
    del kept
    assert torch.cuda.memory_allocated(1) == 0


def test_the_accelerator_is_cuda():
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == 4
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    torch.accelerator.set_device_index(1)
    assert torch.accelerator.current_device_index() == torch.cuda.current_device() == 1
    torch.accelerator.set_device_index(0)
    with torch.accelerator.device_index(2):
        assert torch.zeros(1, device="cuda").get_device() == 2
    tensor = torch.zeros(1, device="cuda:1")
    assert torch.accelerator.memory_allocated(1) == 512
    assert torch.accelerator.max_memory_allocated(tensor.get_device()) == 512
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    assert torch.accelerator.current_stream(1).device == torch.device("cuda:1")


def in_a_fork(work):
    """Run `work` in a forked child, and return its result or its error as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = repr(work())
        except RuntimeError as error:
            text = str(error)
        finally:
            os.write(writer, text.encode())
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    text = os.read(reader, 1000).decode()
    os.close(reader)
    return text


def use_cuda():
    torch.manual_seed(0)
    return torch.ones(2, device="cuda:1").mul(2).tolist()


BAD_FORK = "Cannot re-initialize CUDA in forked subprocess"


def test_a_child_forked_before_cuda_was_used_may_use_it():
    """As on real GPUs: `device_count` asks NVML, which does not start CUDA (PyTorch's notes on forks)."""
    assert torch.cuda.device_count() == 4
    torch.manual_seed(0)
    assert in_a_fork(use_cuda) == "[2.0, 2.0]"
    assert in_a_fork(lambda: in_a_fork(use_cuda)) == "'[2.0, 2.0]'"
    assert use_cuda() == [2.0, 2.0]
    assert in_a_fork(use_cuda).startswith(BAD_FORK)
    assert in_a_fork(torch.cuda.is_initialized) == "False"


def test_asking_whether_there_are_gpus_starts_cuda(monkeypatch):
    """So PyTorch documents `is_available`: it "poisons" forks, unless it may ask NVML."""
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    assert torch.cuda.is_available()
    assert in_a_fork(use_cuda) == "[2.0, 2.0]"
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "0")
    assert torch.cuda.is_available()
    assert in_a_fork(use_cuda).startswith(BAD_FORK)


def test_an_unknown_card_is_an_error_that_names_the_argument():
    with (
        suspended(),
        pytest.raises(ValueError, match="`card`: expected a card such as"),
        virtual_gpus(1, card="abacus"),
    ):
        pass


def test_programs_see_the_card():
    with suspended(), virtual_gpus(1, card="T4"):
        properties = torch.cuda.get_device_properties(0)
        assert properties.multi_processor_count == 40
        assert properties.max_threads_per_multi_processor == 1024
        assert torch.cuda.get_device_capability() == (7, 5)
        assert torch.cuda.get_device_name() == "Tesla T4"
        assert torch.cuda.mem_get_info()[1] == int(14.56 * 2**30)
        assert not torch.cuda.is_bf16_supported(including_emulation=False)
