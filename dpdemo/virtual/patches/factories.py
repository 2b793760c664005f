"""The functions that make tensors.

`dispatch.py` sees `device="cuda:1"` by itself; the stand-ins here are for what C++ would refuse before it
gets there: a bare number as device on a build without CUDA, and the functions that copy data in with dispatch
turned off (`tensor`, `as_tensor`, `asarray` and the sparse ones): those make their result on the CPU and then
move it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._device

from dpdemo.virtual.applying import wraps
from dpdemo.virtual.blocks import Kind
from dpdemo.virtual.kinds import mark_forward
from dpdemo.virtual.labels import gpu_of, gpus_of, label_of, stamp, unstamp, unwrapped
from dpdemo.virtual.ops.provenance import note_users
from dpdemo.virtual.state import as_device, gpu_index, is_seen_by_us_alone, the_session
from dpdemo.virtual.transfer import move

if TYPE_CHECKING:
    from collections.abc import Callable

_CPU = torch.device("cpu")
_device = torch.device
_transform_level: Any = torch._C._functorch.maybe_current_level
# Functions of `torch` that take `device=`; those that copy data are below.
PLAIN = (
    *("arange", "bartlett_window", "blackman_window", "empty", "empty_like", "empty_permuted"),
    *(
        "empty_strided",
        "eye",
        "full",
        "full_like",
        "hamming_window",
        "hann_window",
        "kaiser_window",
        "linspace",
        "logspace",
    ),
    *("normal", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like"),
    *("randperm", "range", "scalar_tensor", "tril_indices", "triu_indices", "zeros", "zeros_like"),
)
COPYING = (
    *("tensor", "asarray", "sparse_coo_tensor", "sparse_compressed_tensor", "sparse_csr_tensor"),
    *("sparse_csc_tensor", "sparse_bsr_tensor", "sparse_bsc_tensor"),
)
# Made of their arguments alone: no random numbers, no other tensor.
_SIMPLE = frozenset(
    {torch.arange, torch.empty, torch.empty_strided, torch.eye, torch.full}
    | {torch.linspace, torch.logspace, torch.ones, torch.scalar_tensor, torch.zeros}
)
_NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")
_NUMBERS = "C++ refuses a bare number as device in a CPU build"
_COPIES = "it copies data in with dispatch turned off"


@wraps(torch, *PLAIN, why=_NUMBERS)
@wraps(torch.fft, "fftfreq", "rfftfreq", why=_NUMBERS)
@wraps(torch.Tensor, *_NEW, why=_NUMBERS)
def plain(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build a stand-in that reads a bare number as a GPU and leaves the rest to `dispatch.py`."""

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            return make_on(original, args, kwargs)
        pinned = kwargs.pop("pin_memory", False)
        result = original(*args, **kwargs)
        if _transform_level() is not None:
            note_made_by_user(result)
        return result.pin_memory() if pinned else result

    return make


def note_made_by_user(result: torch.Tensor) -> None:
    """Note that a tensor made inside `torch.func` is the user's: what it wraps looks like one of C++'s."""
    session = the_session()
    for tensor in unwrapped(result):
        if label_of(tensor, session.key) is None:
            note_users(session, tensor)


def make_on(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `original` with a device that was named, and see to it that a user's "cpu" means the CPU."""
    given = kwargs["device"]
    device = given if type(given) is _device else torch.device(as_device(given))  # type: ignore[call-overload]
    kwargs["device"] = device
    index = gpu_index(device)  # before C++ is asked: it may refuse in other words
    pinned = kwargs.pop("pin_memory", False)
    out = kwargs.get("out")
    if out is not None and gpu_of(out) == index:
        del kwargs["device"]  # C++ would compare it with the CPU, on which it sees `out`
        return original(*args, **kwargs)
    if index is not None and original in _SIMPLE and not pinned and is_seen_by_us_alone():
        return _make_at(index, original, args, kwargs)
    result = original(*args, **kwargs)
    if index is None:
        unstamp(result, the_session())
        if _transform_level() is not None:
            note_made_by_user(result)
    return result.pin_memory() if pinned else result


def _make_at(index: int, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a tensor without passing through `dispatch.py`, which would only put it on the GPU too."""
    kwargs["device"] = _CPU
    with torch._C._DisableTorchDispatch():
        result = original(*args, **kwargs)
    stamp(result, the_session(), index)
    return result


@wraps(torch, *COPYING, why=_COPIES)
@wraps(torch.nested, "nested_tensor", why=_COPIES)
def copying(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build a stand-in that makes its tensor on the CPU and then moves it to the GPU asked for."""
    is_tensor = (
        original is torch.tensor
    )  # it copies, always; the others may keep the memory that they are given

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        target = _target(args, kwargs)
        if target is not None and is_tensor and not isinstance(args[0] if args else None, torch.Tensor):
            kwargs.pop("pin_memory", None)
            if is_seen_by_us_alone():
                return _copy_in(target, original, args, kwargs)
        if target is None:
            result = original(*args, **kwargs)
            if _transform_level() is not None:
                note_made_by_user(result)
            return result.pin_memory() if kwargs.get("pin_memory") else result
        kwargs.pop("device", None)
        leaf = kwargs.pop("requires_grad", False)
        made = move(original(*args, **kwargs), target)
        return made.requires_grad_() if leaf else made

    return make


def _copy_in(target: int, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Copy data of Python's to a GPU at once, as `move` would after making a tensor on the CPU."""
    result = _make_at(target, original, args, kwargs)
    the_session().ledger.transfer(None, target, result.nbytes)
    mark_forward((result,), Kind.INPUT)
    return result


def _target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Return the GPU that the result belongs on: the one named, else the one that the data is on."""
    device = as_device(kwargs.get("device"))
    if device is not None:
        kwargs["device"] = device = torch.device(device)  # type: ignore[call-overload]
        return gpu_index(device)
    return next(iter(gpus_of((*args, *kwargs.values())) - {None}), None)


@wraps(torch, "as_tensor", why=_COPIES)
def _as_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build the stand-in for `torch.as_tensor`, which returns a tensor that fits as it is."""
    copy_in = copying(original)

    @functools.wraps(original)
    def make(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> Any:
        if isinstance(data, torch.Tensor) and (device is not None or gpu_of(data) is not None):
            return data.to(data.device if device is None else device, dtype or data.dtype)
        return copy_in(data, dtype=dtype, device=device)

    return make


# It keeps the functions that it finds at its first call: these must be PyTorch's own.
torch.utils._device._device_constructors()
_REPLACED = {getattr(torch, name): name for name in (*PLAIN, *COPYING, "as_tensor")}


@wraps(torch.utils._device.DeviceContext, "__torch_function__", why="it calls PyTorch's own functions")
def _device_context(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build the replacement that fills in `device=` (`with torch.device("cuda:1"):`) and calls ours."""

    def __torch_function__(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: N807
        name = _REPLACED.get(func)
        if name is None or self.device.type != "cuda":
            return original(self, func, types, args, kwargs)
        kwargs = kwargs or {}
        if kwargs.get("device") is None and not name.endswith("_like") and name != "normal":
            kwargs["device"] = self.device
        return getattr(torch, name)(*args, **kwargs)

    return __torch_function__
