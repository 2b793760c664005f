"""The errors a virtual GPU raises: CUDA's own types and words, and two of ours where PyTorch has none.

VirtualGpuError          the emulation itself cannot do what was asked (a RuntimeError)
└── UnsupportedOpError   an operator that virtual GPUs do not run; the message names it

Everything else is raised as PyTorch raises it on a real GPU, so that an ``except`` clause written for CUDA
catches it here too. Each function below says where PyTorch keeps the words.
"""

from __future__ import annotations

import torch


class VirtualGpuError(RuntimeError):
    """Raised when virtual GPUs cannot be set up, or cannot do what was asked of them."""


class UnsupportedOpError(VirtualGpuError, NotImplementedError):
    """Raised for an operator that virtual GPUs do not run; the message names it."""


def invalid_ordinal() -> Exception:
    """Build the error of a device that is not there (cudaErrorInvalidDevice, c10/cuda/CUDAException.cpp)."""
    message = (
        "CUDA error: invalid device ordinal\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
        "might be incorrect.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )
    return torch.AcceleratorError(message)


def two_devices(first: object, second: object) -> RuntimeError:
    """Build the error of an elementwise op over two devices (aten/src/ATen/TensorIterator.cpp)."""
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{first} and {second}!"
    )


def stray_argument(argument: str, device: object, others: object, method: str) -> RuntimeError:
    """Build the error of a kernel's argument on another device (ATen/core/op_registration/adaption.cpp)."""
    return RuntimeError(
        f"Expected all tensors to be on the same device, but got {argument} is on {device}, "
        f"different from other tensors on {others} (when checking argument in method {method})"
    )


def numpy_of_device_tensor(device: object) -> TypeError:
    """Build the error of ``.numpy()`` on a GPU tensor (torch/csrc/utils/tensor_numpy.cpp)."""
    return TypeError(
        f"can't convert {device} device type tensor to numpy. "
        "Use Tensor.cpu() to copy the tensor to host memory first."
    )


def wrong_generator(wanted: str, found: str) -> RuntimeError:
    """Build the error of a generator from another kind of device (ATen/core/Generator.h)."""
    return RuntimeError(f"Expected a '{wanted}' device type for generator but found '{found}'")


def forked() -> RuntimeError:
    """Build the error of CUDA in a forked child (torch/cuda/__init__.py, `_lazy_init`)."""
    return RuntimeError(
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
        "'spawn' start method"
    )


def convolution_types(input_type: str, kind: str, other_type: str, *, or_mkldnn: bool) -> RuntimeError:
    """Build the error of a convolution over a CPU and a GPU tensor (ATen/native/Convolution.cpp)."""
    hint = " or input should be a MKLDNN tensor and weight is a dense tensor" if or_mkldnn else ""
    return RuntimeError(f"Input type ({input_type}) and {kind} type ({other_type}) should be the same{hint}")


def invalid_gradient(where: str, index: int, wanted: object, found: object) -> RuntimeError:
    """Build the error of a gradient on another device (torch/csrc/autograd/engine.cpp, validate_outputs)."""
    return RuntimeError(
        f"{where}invalid gradient at index {index} - expected device {wanted} but got {found}"
    )


def nothing_to_copy() -> NotImplementedError:
    """Build the error of a meta tensor that is moved (aten/src/ATen/native/TensorConversions.cpp)."""
    return NotImplementedError("Cannot copy out of meta tensor; no data!")


def recurrent_devices(kind: str, data: object, other: object) -> RuntimeError:
    """Build the error of a recurrent network with parts elsewhere (ATen/native/RNN.cpp)."""
    return RuntimeError(
        f"Input and {kind} tensors are not at the same device, "
        f"found input tensor at {data} and {kind} tensor at {other}"
    )


def attention_devices(query: object, key: object, value: object) -> RuntimeError:
    """Build the error of attention over two kinds of device (native/transformers/attention.cpp)."""
    return RuntimeError(
        "Expected query, key, and value to have the same device type, but got "
        f"query.device: {query} key.device: {key} and value.device: {value} instead."
    )


def not_deterministic(kernel: str, *, only_warn: bool) -> RuntimeError:
    """Build the error of a kernel whose results differ from run to run (aten/src/ATen/Context.cpp)."""
    mode = "True, warn_only=True" if only_warn else "True"
    ways_out = (
        "You can"
        if only_warn
        else "You can turn off determinism just for this operation, or you can use the 'warn_only=True' "
        "option, if that's acceptable for your application. You can also"
    )
    return RuntimeError(
        f"{kernel} does not have a deterministic implementation, but you set "
        f"'torch.use_deterministic_algorithms({mode})'. {ways_out} file an issue at "
        "https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for "
        "this operation."
    )


def foreign_thread() -> VirtualGpuError:
    """Build the error of a thread that the GPUs are not known to."""
    return VirtualGpuError(
        "this thread was running before the block of virtual GPUs was opened, and does not see them; "
        "start it inside the block"
    )


def needs_numbers(op: str) -> UnsupportedOpError:
    """Build the error of an operator that needs numbers where there are only sizes."""
    return UnsupportedOpError(
        f"{op}: expected an operator whose result has the same shape whatever the numbers are, since there "
        'are none with storage="meta"; use storage="cpu", or keep what decides (lengths, masks, losses that '
        "are printed) out of the step or on the host"
    )


def out_of_memory(index: int, nbytes: int, limit: int, in_use: int, allowed: int | None = None) -> Exception:
    """Build the error of a full GPU (c10/cuda/CUDACachingAllocator.cpp, `malloc`).

    What is asked of the driver is more than what is asked of the allocator: `get_allocation_size` there.
    `allowed` is what the program may use of the GPU, where it set that.
    """
    free, request = limit - in_use, nbytes
    if nbytes <= _SMALL_REQUEST:
        request = _SMALL_SEGMENT
    elif nbytes < _LARGE_REQUEST:
        request = _MEDIUM_SEGMENT
    else:
        request = -(-nbytes // _LARGE_ROUNDING) * _LARGE_ROUNDING
    permission = "" if allowed is None else f"{_size(allowed)} allowed; "
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {_size(request)}. GPU {index} has a total capacity of "
        f"{_size(limit)} of which {_size(free)} is free. Including non-PyTorch memory, this process has "
        f"{_size(in_use)} memory in use. {permission}Of the allocated memory {_size(in_use)} is "
        f"allocated by PyTorch, and {_size(0)} is reserved by PyTorch but unallocated. If reserved but "
        "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
        "fragmentation.  "
        "See documentation for Memory Management  "
        "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    )


# kSmallSize, kSmallBuffer, kMinLargeAlloc, kLargeBuffer and kRoundLarge of the caching allocator
_SMALL_REQUEST, _SMALL_SEGMENT = 2**20, 2 * 2**20
_LARGE_REQUEST, _MEDIUM_SEGMENT = 10 * 2**20, 20 * 2**20
_LARGE_ROUNDING = 2 * 2**20


def _size(num_bytes: int) -> str:
    """Write a size as `format_size` there does."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes > unit:
            return f"{num_bytes / unit:.2f} {name}"
    return f"{num_bytes} bytes"


def no_code_for_cuda(name: str) -> NotImplementedError:
    """Return PyTorch's error for an operator that has code for the CPU only (its first sentences)."""
    return NotImplementedError(
        f"Could not run '{name}' with arguments from the 'CUDA' backend. "
        "This could be because the operator doesn't exist for this backend, or was omitted during the "
        "selective/custom build process (if using custom build)."
    )
