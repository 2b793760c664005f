"""Kernels that a program writes in Triton: its own interpreter runs them, in the memory of virtual GPUs.

Autotuning takes the first configuration: there are no speeds to compare. GPUs without numbers run no kernel:
its outputs are there already.

Source: triton/runtime/interpreter.py, autotuner.py and backends/nvidia/driver.py (3.6 to 3.9).
"""

import contextlib
import functools
import importlib
import inspect
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from dpdemo.startup.hook import when_imported
from dpdemo.virtual import state
from dpdemo.virtual.applying import Patch, Patches, always
from dpdemo.virtual.errors import VirtualGpuError

_patches = Patches()
_WHY = "no GPU runs a compiled kernel"
_STUB = "the interpreter has stubs, which return None"
_LIBDEVICE = frozenset({"triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice"})
_one_kernel = threading.RLock()
"""Held while a kernel runs: the interpreter has one grid for all threads, and DataParallel has several."""
_FUNCTIONS = frozenset(
    [
        *(
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atan2",
            "atanh",
            "cos",
            "cosh",
            "sin",
            "sinh",
            "tan",
            "tanh",
        ),
        *("ceil", "erf", "erfc", "exp", "exp2", "expm1", "floor", "fmod", "hypot", "log", "log10", "log1p"),
        *("log2", "pow", "rsqrt", "sqrt", "trunc"),
    ]
)
"""Functions of libdevice that PyTorch has under the same name."""


class GpuQuestions:
    """Stands for Triton's library on the CUDA driver: it knows the GPUs, and launches nothing."""

    def get_device_properties(self, index: int) -> dict[str, int]:
        """Return what Triton asks of a GPU: its multiprocessors, bytes of shared memory and registers."""
        found: Any = torch.cuda.get_device_properties(index)
        return {
            "multiprocessor_count": found.multi_processor_count,
            "max_shared_mem": found.shared_memory_per_block_optin,
            "max_num_regs": found.regs_per_multiprocessor,
            "warpSize": found.warp_size,
        }

    def __getattr__(self, name: str) -> Any:
        """Refuse all that needs a driver.

        Raises:
            VirtualGpuError: always.

        """
        raise VirtualGpuError(
            f"Triton's `{name}` needs a real GPU; virtual GPUs run kernels by Triton's interpreter alone"
        )


def _interpret(knobs: Any) -> None:
    _patches.apply(Patch(vars(knobs.runtime), "interpret", True, _WHY))


def _interpret_all(jit: Any) -> None:
    """Interpret also what was decorated before the block: `tl.sum` and others of Triton's own functions."""

    def interpreted(compiled: Any) -> Any:
        return importlib.import_module("triton.runtime.interpreter").InterpretedFunction(compiled.fn)

    @_patches.around(jit.JITFunction, "run", why=_WHY)
    def run(_: Any, /, self: Any, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> Any:
        return interpreted(self).run(*args, grid=grid, warmup=warmup, **kwargs)

    @_patches.around(jit.JITFunction, "__call__", why=_WHY)
    def call(_: Any, /, self: Any, *args: Any, **kwargs: Any) -> Any:
        return interpreted(self)(*args, **kwargs)


def _run_in_place(interpreter: Any) -> None:
    """Make the interpreter work in the GPUs' memory instead of in copies on the host."""
    executor, language = interpreter.GridExecutor, interpreter.tl

    @_patches.around(
        interpreter.InterpretedFunction,
        "rewrite",
        why="libdevice's functions have names of the kernel's module",
    )
    def rewrite(rewrite: Any, /, self: Any) -> Any:
        function = rewrite(self)
        names = function.__globals__
        for name, value in list(names.items()):
            if getattr(value, "__module__", None) in _LIBDEVICE and inspect.isfunction(value):
                _patches.apply(Patch(names, name, functools.partial(_compute, value.__name__), _STUB))
        return function

    @_patches.around(executor, "__call__", why="GPUs without numbers run no kernel")
    def run(run: Any, /, self: Any, *args_dev: Any, **kwargs: Any) -> None:
        _expect_gpus([*args_dev, *kwargs.values()])
        if state.session is None or not state.session.is_meta:
            with _one_kernel:
                run(self, *args_dev, **kwargs)

    def take(_: Any, args_dev: Any, kwargs: Any) -> Any:
        return list(args_dev), dict(kwargs)

    _patches.apply(Patch(executor, "_init_args_hst", take, "the program made no copy"))
    _patches.apply(Patch(executor, "_restore_args_dev", always(None), "the kernel has worked in place"))

    @_patches.around(interpreter, "_implicit_cvt", why="a compiled kernel gets a tensor of float32")
    def convert(convert: Any, /, arg: Any) -> Any:
        if type(arg) is not float:
            return convert(arg)
        numbers = interpreter.np.array([arg], dtype=interpreter.np.float32)
        return language.tensor(interpreter.TensorHandle(numbers, language.float32), language.float32)


def _expect_gpus(args: list[Any]) -> None:
    """Raise Triton's own error for a tensor of the host, whose memory a GPU cannot reach."""
    for place, each in enumerate(args):
        if isinstance(each, torch.Tensor) and each.device.type == "cpu" and not each.is_pinned():
            raise ValueError(f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?)")


def _tune_nothing(autotuner: Any) -> None:
    first = property(lambda _: lambda *_, **__: (0.0, 0.0, 0.0))
    _patches.apply(Patch(autotuner.Autotuner, "do_bench", first, "there are no speeds to compare"))


def _ask_again(runtime: Any) -> None:
    for name in ("_default", "_active"):
        _patches.apply(Patch(vars(runtime.driver), name, None, "the block's driver knows virtual GPUs"))


def _know_gpus(driver: Any) -> None:
    _patches.apply(Patch(driver, "CudaUtils", GpuQuestions, "there is no driver to ask"))


def _compute_functions(libdevice: Any) -> None:
    """Put functions that compute in the place of libdevice's stubs."""
    for name, stub in list(vars(libdevice).items()):
        if inspect.isfunction(stub):
            _patches.apply(Patch(libdevice, name, functools.partial(_compute, name), _STUB))


def _compute(name: str, *args: Any, _semantic: Any = None, **_: Any) -> Any:
    """Return a function's values by PyTorch's of the same name; numbers are in the kernel's precision.

    Raises:
        VirtualGpuError: if it is none of these.

    """
    if name not in _FUNCTIONS:
        raise VirtualGpuError(f"Triton's interpreter does not have libdevice's `{name}`")
    first = next(each for each in args if hasattr(each, "handle"))
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        numbers = [torch.from_numpy(each.handle.data) if hasattr(each, "handle") else each for each in args]
        found = getattr(torch, name)(*numbers).numpy()
    return type(first)(type(first.handle)(found, first.dtype), first.type)


_FOLLOWED = {
    "triton.knobs": _interpret,
    "triton.runtime.jit": _interpret_all,
    "triton.runtime.interpreter": _run_in_place,
    "triton.runtime.autotuner": _tune_nothing,
    "triton.runtime.driver": _ask_again,
    "triton.backends.nvidia.driver": _know_gpus,
    **dict.fromkeys(_LIBDEVICE, _compute_functions),
}


def _follow(_: object) -> None:
    """Follow Triton's modules; those of another release are to work as they do without."""
    if state.session is None:
        return
    for name, follow in _FOLLOWED.items():
        try:
            follow(importlib.import_module(name))
        except Exception as error:  # noqa: BLE001 - whatever another release lacks
            text = f"virtual GPUs may not run this release's kernels in Triton: {name}: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


@functools.cache
def _await_triton() -> None:
    """Follow Triton once it is imported while any block is open; a later block finds it imported."""
    when_imported("triton", _follow)


@contextlib.contextmanager
def interpreted() -> Iterator[None]:
    """Run kernels of Triton by its interpreter for the length of a `with` block."""
    try:
        if "triton" in sys.modules:
            _follow(None)
        else:
            _await_triton()
        yield
    finally:
        _patches.undo()
