"""Triton's interpreter runs a program's kernels in the memory of virtual GPUs."""

import importlib
import sys

import pytest
import torch
from torch import nn

from dpdemo.virtual import virtual_gpus

triton = pytest.importorskip("triton")
NUMBER = 100
pytestmark = pytest.mark.filterwarnings(
    "ignore:TRITON_DEFAULT_FP_FUSION"
)  # Triton's own, at its first kernel


@pytest.fixture(params=["before the block", "inside it"])
def import_kernels(request):
    """Import the kernels, each test its own ones."""
    if request.param == "before the block":
        importlib.import_module("kernels_in_triton")
    yield lambda: importlib.import_module("kernels_in_triton")
    sys.modules.pop("kernels_in_triton", None)


def grid(meta):
    return (triton.cdiv(NUMBER, meta["block"]),)


@pytest.mark.parametrize("gpu", [0, 1])
def test_a_kernel_works_in_place_and_nothing_is_copied(import_kernels, gpu):
    with virtual_gpus(2) as gpus:
        kernels = import_kernels()
        given = torch.randn(2 * NUMBER, device=f"cuda:{gpu}")[::2].contiguous()
        out = torch.zeros_like(given)
        before = gpus.bytes_moved, torch.cuda.max_memory_allocated(gpu)
        kernels.scaled[(4,)](given, out, NUMBER, 2.5, block=32)
        assert (gpus.bytes_moved, torch.cuda.max_memory_allocated(gpu)) == before
        assert out.device == given.device
        assert torch.equal(out, given * 2.5)


def test_autotuning_takes_a_configuration_and_libdevice_computes(import_kernels):
    with virtual_gpus(1):
        given = torch.rand(NUMBER, device="cuda") + 0.1
        out = torch.zeros_like(given)
        import_kernels().rooted[grid](given, out, NUMBER)
        torch.testing.assert_close(out, given.rsqrt())


def test_a_function_that_nobody_computes_is_an_error(import_kernels):
    with virtual_gpus(1):
        kernels = import_kernels()
        given = torch.ones(1, device="cuda")
        with pytest.raises(Exception, match="Triton's interpreter does not have libdevice's `j0`"):
            kernels.bessel[(1,)](given, torch.zeros_like(given))


def test_a_tensor_of_the_host_is_the_error_that_it_is_on_a_gpu(import_kernels):
    with virtual_gpus(1):
        kernels = import_kernels()
        with pytest.raises(ValueError, match=r"Pointer argument \(at 1\) cannot be accessed from Triton"):
            kernels.scaled[(4,)](torch.ones(NUMBER, device="cuda"), torch.ones(NUMBER), NUMBER, 2.0, block=32)


def test_gpus_without_numbers_have_the_outputs_already(import_kernels):
    with virtual_gpus(1, storage="meta"):
        kernels = import_kernels()
        given = torch.ones(NUMBER, device="cuda")
        kernels.scaled[(4,)](given, torch.empty_like(given), NUMBER, 2.0, block=32)
        assert torch.cuda.max_memory_allocated() == 1024


def test_replicas_in_threads_take_turns(import_kernels):
    class Summed(nn.Module):
        def forward(self, rows):
            out = torch.zeros(1, device=rows.device)
            kernels.summed[grid](rows, out, rows.numel(), block=8)
            return out

    with virtual_gpus(4):
        kernels = import_kernels()
        rows = torch.arange(NUMBER, dtype=torch.float32, device="cuda")
        found = nn.DataParallel(Summed())(rows)
        assert found.tolist() == [part.sum().item() for part in rows.chunk(4)]


def test_the_driver_knows_the_block_s_gpus_and_runs_no_compiled_kernel():
    with virtual_gpus(2, card="A100-80GB"):
        driver = triton.runtime.driver.active
        assert driver.get_current_target().arch == 80
        assert driver.utils.get_device_properties(1)["multiprocessor_count"] == 108
        with pytest.raises(RuntimeError, match="`load_binary` needs a real GPU"):
            driver.utils.load_binary("name", b"", 0, 0)


def test_a_block_leaves_triton_as_it_was():
    names = "triton.runtime.interpreter", "triton.language.extra.libdevice", "triton.runtime.autotuner"
    modules = [importlib.import_module(name) for name in names]
    before = [dict(vars(module)) for module in modules]
    before += [dict(vars(modules[0].GridExecutor)), dict(vars(triton.knobs.runtime))]
    with virtual_gpus(1):
        assert triton.knobs.runtime.interpret
    after = [dict(vars(module)) for module in modules]
    after += [dict(vars(modules[0].GridExecutor)), dict(vars(triton.knobs.runtime))]
    assert after == before
    assert not triton.knobs.runtime.interpret


def test_what_another_release_lacks_is_a_warning(monkeypatch):
    monkeypatch.delattr("triton.runtime.autotuner.Autotuner")
    with pytest.warns(RuntimeWarning, match=r"may not run .*: triton\.runtime\.autotuner"), virtual_gpus(1):
        pass
