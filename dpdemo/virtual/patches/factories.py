"""The functions that make tensors.

`dispatch.py` sees `device="cuda:1"` by itself; the replacements here are for calls that C++ would refuse
before that: a bare number as device on a build without CUDA, and the functions that copy data in with
dispatch turned off (`tensor`, `as_tensor`, `asarray` and the sparse ones). Those make their result on the CPU
and then move it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._device

from dpdemo.virtual.applying import wraps
from dpdemo.virtual.labels import gpu_of, gpus_of, label_of, stamp, unstamp, unwrapped
from dpdemo.virtual.ops.provenance import note_users
from dpdemo.virtual.state import as_device, gpu_index, is_seen_by_us_alone, the_session
from dpdemo.virtual.transfer import move

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[..., Any]

_CPU = torch.device("cpu")
_transform_level: Any = torch._C._functorch.maybe_current_level
# Functions of `torch` that take `device=`; those that copy data are below.
PLAIN = (
    *("arange", "bartlett_window", "blackman_window", "empty", "empty_like", "empty_permuted"),
    *("empty_strided", "eye", "full", "full_like", "hamming_window", "hann_window", "kaiser_window"),
    *("linspace", "logspace", "normal", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like"),
    *("randn", "randn_like", "randperm", "range", "scalar_tensor", "tril_indices", "triu_indices"),
    *("zeros", "zeros_like"),
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
def plain(original: Function) -> Function:
    """Build a replacement that reads a bare number as a GPU and leaves the rest to `dispatch.py`."""

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        return _made(original, args, kwargs)

    return make


def _made(original: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `original`, and see to it that a user's "cpu" means the CPU."""
    pinned = kwargs.pop("pin_memory", False)
    named = _device_in(kwargs)
    index = None if named is None else gpu_index(named)  # before C++ is asked: it may refuse in other words
    out = kwargs.get("out")
    if named is not None and out is not None and gpu_of(out) == index:
        del kwargs["device"]  # C++ would compare it with the CPU, on which it sees `out`
        return original(*args, **kwargs)
    if index is not None and original in _SIMPLE and not pinned and is_seen_by_us_alone():
        kwargs["device"] = _CPU
        try:
            with torch._C._DisableTorchDispatch():  # `dispatch.py` would take twice as long
                result = original(*args, **kwargs)
        except RuntimeError as refusal:
            the_session().check_room(index, refusal)
            raise
        stamp(result, the_session(), index)
        return result
    result = original(*args, **kwargs)
    if index is None:
        if named is not None:
            unstamp(result, the_session())
        if _transform_level() is not None:
            _note_made_by_user(result)
    if pinned and gpu_of(result) is not None:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    return result.pin_memory() if pinned else result


def _note_made_by_user(result: torch.Tensor) -> None:
    """Note that a tensor made inside `torch.func` is the user's: what it wraps looks like one of C++'s."""
    session = the_session()
    for tensor in unwrapped(result):
        if label_of(tensor, session.key) is None:
            note_users(session, tensor)


def _device_in(kwargs: dict[str, Any]) -> torch.device | None:
    """Read the device that a call names, and leave it there as C++ can read it."""
    given = as_device(kwargs.get("device"))
    if given is None or hasattr(type(given), "__torch_function__"):
        return None  # a proxy of torch.fx stands for a device that is not known yet
    kwargs["device"] = device = torch.device(given)  # type: ignore[call-overload]
    return device  # type: ignore[no-any-return]


@wraps(torch, *COPYING, why=_COPIES)
@wraps(torch.nested, "nested_tensor", why=_COPIES)
def copying(original: Function) -> Function:
    """Build a replacement that makes its tensor on the CPU and then moves it to the GPU asked for."""
    of_lists = original is torch.nested.nested_tensor  # other lists are read as numbers

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        device = _device_in(kwargs)  # else the result belongs where the data is
        data = [each for each in (*args, *kwargs.values()) if of_lists or isinstance(each, torch.Tensor)]
        homes = gpus_of(data) if device is None else {gpu_index(device)}
        target = next(iter(homes - {None}), None)
        if target is None:
            return _made(original, args, kwargs)
        rest = {name: value for name, value in kwargs.items() if name not in ("device", "pin_memory")}
        leaf = rest.pop("requires_grad", False)
        made = move(original(*args, **rest), target)
        return made.requires_grad_() if leaf else made

    return make


@wraps(torch, "as_tensor", why=_COPIES)
def _as_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build the replacement of `torch.as_tensor`, which returns a tensor that fits unchanged."""
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
