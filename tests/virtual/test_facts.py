"""What programs ask a build for CUDA: every public name answers, or is refused by its name."""

import contextlib
import importlib
import inspect
import io
import re
import warnings

import pytest
import torch
from torch import nn

from dpdemo.virtual import UnsupportedOpError, suspended, virtual_gpus
from dpdemo.virtual.ops import provenance

pytestmark = pytest.mark.usefixtures("gpus")

MODULES = (
    *("torch.cuda", "torch.cuda.memory", "torch.cuda.nccl", "torch.cuda.profiler", "torch.cuda.nvtx"),
    *("torch.cuda.random", "torch.cuda.graphs", "torch.cuda.streams", "torch.cuda.tunable", "torch.cuda.gds"),
    *("torch.backends.cuda", "torch.backends.cudnn", "torch.backends.cusparselt", "torch.accelerator"),
)
# They ask NVIDIA's own tools, or read files that are not there, and say so on a machine with GPUs too.
OF_OTHERS = {"list_gpu_processes", "tune_gemm_in_file", "mgpu_tune_gemm_in_file"}


def functions():
    """Yield every public function of the modules that can be called with nothing."""
    for name in MODULES:
        module = importlib.import_module(name)
        for public in sorted(getattr(module, "__all__", ()) or vars(module)):
            function = getattr(module, public, None)
            if public.startswith("_") or public in OF_OTHERS or not inspect.isfunction(function):
                continue
            parameters = inspect.signature(function).parameters.values()
            if all(each.default is not each.empty or each.kind in (2, 4) for each in parameters):
                yield pytest.param(name, public, id=f"{name}.{public}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("module", "name"), list(functions()))
def test_every_public_function_answers_or_is_refused_by_name(module, name):
    function = getattr(importlib.import_module(module), name)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(UnsupportedOpError):
        function()


REFUSED = {
    "torch.cuda.graphs.CUDAGraph": torch.cuda.CUDAGraph,
    "_graph_pool_handle": torch.cuda.graph_pool_handle,
    "torch.cuda.graphs.CUDAGraph:": lambda: torch.cuda.make_graphed_callables(nn.Linear(2, 2), (batch(),)),
    "torch.cuda.memory.MemPool": torch.cuda.MemPool,
    "torch.cuda.memory.CUDAPluggableAllocator": lambda: torch.cuda.memory.CUDAPluggableAllocator(
        "x", "a", "b"
    ),
    "torch.cuda.streams.ExternalStream": lambda: torch.cuda.ExternalStream(5),
    "_gds_register_buffer": lambda: torch.cuda.gds.gds_register_buffer(batch().untyped_storage()),
    "sensors": torch.cuda.temperature,
    "no sensors": torch.cuda.utilization,
    "_cuda_getCurrentBlasHandle": torch.cuda.current_blas_handle,
    "_cuda_tunableop_enable": torch.cuda.tunable.enable,
    "_cuda_memorySnapshot": torch.cuda.memory_snapshot,
    "_cuda_record_memory_history": torch.cuda.memory._record_memory_history,
    "_cuda_cudaCachingAllocator_raw_alloc": lambda: torch.cuda.caching_allocator_alloc(1000),
}


def batch():
    return torch.ones(3, 2, device="cuda")


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_need_a_real_gpu_are_refused(name):
    with pytest.raises(UnsupportedOpError, match=re.escape(name)):
        REFUSED[name]()


def test_a_refused_class_is_as_before_after_the_block():
    with suspended(), pytest.raises(OSError, match="no-such-file"):
        torch.cuda.memory.CUDAPluggableAllocator("no-such-file", "allocate", "free")


def test_versions_are_those_of_a_build_for_cuda():
    assert float(torch.version.cuda) >= 12
    assert torch.backends.cuda.is_built()
    assert torch.backends.cudnn.is_available()
    assert torch.backends.cudnn.version() >= 90000
    assert "sm_90" in torch.cuda.get_arch_list()
    assert torch.cuda.nccl.version() >= (2, 0, 0)
    assert torch.cuda.get_allocator_backend() == "native"
    assert torch.get_device_module() is torch.cuda
    assert not torch.backends.cudnn.is_acceptable(torch.ones(1, device="cuda"))
    assert str(torch.cuda.get_device_properties(0)).startswith("_CudaDeviceProperties(name='Virtual GPU'")


def test_the_facts_go_with_the_block():
    with suspended():
        assert torch.version.cuda is None or torch.cuda._is_compiled()
        assert hasattr(torch._C, "_cuda_getArchFlags") == torch.cuda._is_compiled()
        assert torch.get_device_module() is not None


def test_a_part_of_the_memory_is_all_that_may_be_used():
    torch.cuda.set_per_process_memory_fraction(0.5, 1)
    assert torch.cuda.get_per_process_memory_fraction(1) == 0.5
    assert torch.cuda.get_per_process_memory_fraction(0) == 1.0
    with suspended(), virtual_gpus(2, memory="8MiB"):
        torch.cuda.set_per_process_memory_fraction(0.5)
        assert torch.cuda.mem_get_info()[1] == 8 * 2**20
        kept = torch.ones(2**20, device="cuda")
        words = r"total capacity of 8\.00 MiB of which 4\.00 MiB is free.*in use\. 4\.00 MiB allowed; Of the"
        with pytest.raises(torch.OutOfMemoryError, match=words):
            torch.ones(1, device="cuda")
        torch.ones(2**20, device="cuda:1")
        del kept


def test_settings_that_a_build_for_the_cpu_lacks_can_be_read_and_set():
    assert torch.backends.cudnn.benchmark_limit == 10
    torch.backends.cudnn.benchmark_limit = 5
    assert torch.backends.cudnn.benchmark_limit == 5
    with torch.backends.cudnn.flags(enabled=False, benchmark_limit=7):
        assert torch.backends.cudnn.benchmark_limit == 7
    assert torch.backends.cudnn.benchmark_limit == 5
    assert torch.cuda.has_magma
    assert torch.ones(1, device="cuda").is_shared()
    assert not torch.ones(1).is_shared()


def test_the_ways_into_a_refused_class_are_refused_too():
    contexts = pytest.importorskip("torch.cuda.green_contexts")
    with pytest.raises(UnsupportedOpError, match="GreenContext: "):
        contexts.GreenContext.create(num_sms=2, device_id=0)


def test_a_program_that_profiles_or_checks_errors_goes_on():
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()
    assert torch.profiler.ProfilerActivity.CUDA in torch.profiler.supported_activities()
    torch.cuda.check_error(0)
    assert torch.cuda.cudart().cudaMemGetInfo(0)[1] == 80 * 2**30
    with pytest.raises(UnsupportedOpError, match=r"cudart\(\)\.cudaStreamCreate"):
        torch.cuda.cudart().cudaStreamCreate(0)


def test_streams_keep_a_priority_within_cudas_range():
    assert torch.cuda.Stream.priority_range() == (0, -5)
    assert [torch.cuda.Stream(priority=wanted).priority for wanted in (3, -2, -9)] == [0, -2, -5]


def test_storages_are_made_on_a_gpu(gpus):
    storage = torch.UntypedStorage(1000, device="cuda:1")
    assert storage.device == torch.device("cuda:1")
    assert gpus.live_bytes(1) == 1024
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.cuda.FloatStorage(3).device == torch.device("cuda:0")
    with pytest.raises(UnsupportedOpError, match="each process has virtual GPUs of its own"):
        storage._share_cuda_()


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_a_default_type_of_cuda_makes_tensors_on_the_gpu_until_the_block_ends():
    torch.set_default_tensor_type("torch.cuda.DoubleTensor")
    made = torch.zeros(2)
    assert (made.device, made.dtype) == (torch.device("cuda:0"), torch.float64)
    torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.zeros(2).device == torch.device("cpu")
    torch.set_default_tensor_type(torch.cuda.FloatTensor)
    with suspended():
        assert torch.zeros(2).device == torch.device("cpu")


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_a_default_type_of_cuda_holds_for_old_constructors_and_in_replicas():
    class Old(nn.Module):
        def forward(self, x):
            return x + torch.Tensor([1, 2]) + torch.zeros(2) + torch.Tensor(2).zero_()

    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    provenance._least_references.cache_clear()  # measured when it is first asked for
    assert torch.Tensor([1, 2]).view(-1).device == torch.device("cuda:0")
    assert torch.Tensor(torch.ones(2)).tolist() == [1, 1]
    assert torch.FloatTensor([1]).device == torch.device("cpu")
    names = list(inspect.signature(torch.Tensor.__new__).parameters.values())
    assert [name.kind.name for name in names] == [
        "VAR_POSITIONAL",
        "VAR_KEYWORD",
    ]  # as torch._dynamo wants it
    assert torch.equal(nn.DataParallel(Old())(torch.zeros(4, 2)), torch.Tensor([[1, 2]] * 4))
    with torch.cuda.device(1):
        assert torch.Tensor([1]).device == torch.device("cuda:1")
    torch.set_default_tensor_type("torch.FloatTensor")
    assert torch.Tensor([1]).device == torch.device("cpu")
    assert "__new__" not in vars(torch.Tensor)


def test_settings_of_cudas_libraries_are_kept():
    assert "Magma" in str(torch.backends.cuda.preferred_linalg_library("magma"))
    torch._C._cuda_clearCublasWorkspaces()


def test_a_cache_of_fft_plans_keeps_none():
    caches = torch.backends.cuda.cufft_plan_cache
    caches[1].max_size = 7
    caches.clear()
    assert (caches[1].max_size, caches.size) == (7, 0)
    with suspended(), virtual_gpus(9):
        assert torch.backends.cuda.cufft_plan_cache[8].max_size == 4096


def test_a_type_of_tensors_tells_the_cpu_from_a_gpu():
    here, there = torch.ones(2), torch.ones(2, device="cuda")
    assert [isinstance(here, kind) for kind in (torch.FloatTensor, torch.cuda.FloatTensor)] == [True, False]
    assert [isinstance(there, kind) for kind in (torch.FloatTensor, torch.cuda.FloatTensor)] == [False, True]
    assert there.type(torch.DoubleTensor).type() == "torch.DoubleTensor"
    assert torch.LongTensor([1, 2]).tolist() == [1, 2]
