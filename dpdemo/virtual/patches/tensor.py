"""The methods of `torch.Tensor` that name a device.

Only these need replacing. Everything else a tensor does is an operator, and passes through `dispatch.py`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.dlpack
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]
from torch.overrides import handle_torch_function, has_torch_function_unary

from dpdemo.virtual.applying import Attribute, stands_in, wraps
from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.labels import gpu_of, label_of, notes_of, stamp_all
from dpdemo.virtual.ops.known import is_forgotten
from dpdemo.virtual.ops.meta import is_without_numbers, known
from dpdemo.virtual.state import as_device, check_thread, gpu_index, the_session
from dpdemo.virtual.transfer import move

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[..., Any]

_Tensor = torch.Tensor
_CPU = torch.device("cpu")
_to = _Tensor.to
_type = _Tensor.type
_device: Any = torch._C.TensorBase.device
_PINNED = "_virtual_gpu_pinned"
_NAMES_DEVICE = "what names a device: to C++ every tensor is on the CPU"
_NEEDS_RUNTIME = "C++ would ask for a CUDA runtime"


def _method(name: str, why: str = _NAMES_DEVICE) -> Callable[[Function], Function]:
    """Register a method of `torch.Tensor`, which subclasses and function modes may override as PyTorch's."""

    def decorate(method: Function) -> Function:
        @functools.wraps(getattr(_Tensor, name))
        def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if has_torch_function_unary(self):
                if isinstance(self, UninitializedTensorMixin):
                    return _of_uninitialised(method, self, *args, **kwargs)
                return handle_torch_function(getattr(_Tensor, name), (self,), self, *args, **kwargs)
            return method(self, *args, **kwargs)

        return stands_in(_Tensor, name, why=why)(call)

    return decorate


def _attribute(name: str) -> Callable[[Function], Function]:
    """Register an attribute of `torch.Tensor`, which subclasses and function modes may override too."""

    def decorate(read: Function) -> Function:
        @functools.wraps(read)
        def get(self: torch.Tensor) -> Any:
            if has_torch_function_unary(self) and not isinstance(self, UninitializedTensorMixin):
                return handle_torch_function(vars(_Tensor)[name].__get__, (self,), self)
            return read(self)

        return stands_in(_Tensor, name, why=_NAMES_DEVICE, form=Attribute)(get)

    return decorate


def _of_uninitialised(method: Callable[..., Any], self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Call `method` past the class's own `__torch_function__`, which knows PyTorch's methods only."""
    with torch._C.DisableTorchFunctionSubclass():
        result = method(self, *args, **kwargs)
        if isinstance(result, _Tensor) and not isinstance(self, torch.nn.Parameter):
            return result.as_subclass(type(self))
        return result


@_attribute("device")
def device(self: torch.Tensor) -> torch.device:
    """Return the device that this tensor is on."""
    session = the_session()
    label = None if session.is_meta and session.current.sees_as_cpp else label_of(self, session.key)
    if label is None:
        seen: torch.device = _device.__get__(self)  # by C++
        return _CPU if seen.type == "meta" and is_without_numbers() else seen
    check_thread(session)
    return session.devices[label.index]


@_attribute("is_cuda")
def is_cuda(self: torch.Tensor) -> bool:
    """Return whether this tensor is on a GPU."""
    return gpu_of(self) is not None


@_attribute("is_cpu")
def _is_cpu(self: torch.Tensor) -> bool:
    return bool(device(self).type == "cpu")


@stands_in(torch, "get_device", why=_NAMES_DEVICE)
@_method("get_device")
def _get_device(self: torch.Tensor) -> int:
    index = gpu_of(self)
    return -1 if index is None else index


@_method("to")
def _to_here(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Move to the device that is named; dtypes and memory formats are PyTorch's own."""
    read = dict(kwargs)
    copy = read.pop("copy", False) or args[3:4] == (True,)  # a module's `to`, whose reader this is, has none
    like = (read.pop("other"),) if "other" in read else ()
    target, dtype, _, memory_format = _parse_to(*like, *args[:3], **read)
    if target is None or target.type not in ("cpu", "cuda"):
        return _to(self, *args, **kwargs)
    options = {"dtype": dtype, "memory_format": memory_format, "copy": copy or None}
    options = {name: value for name, value in options.items() if value is not None}
    return move(self, gpu_index(target), **options)


@_method("cuda")
def _cuda(
    self: torch.Tensor,
    device: Any = None,
    non_blocking: bool = False,  # noqa: ARG001 - copies are done when they return
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    wanted = as_device(device)
    wanted = torch.device("cuda") if wanted is None else torch.device(wanted)  # type: ignore[call-overload]
    if wanted.type != "cuda":
        raise RuntimeError("Invalid device, must be cuda device")
    return move(self, gpu_index(wanted), memory_format=memory_format)


@_method("cpu")
def _cpu(self: torch.Tensor, memory_format: torch.memory_format = torch.preserve_format) -> torch.Tensor:
    return move(self, None, memory_format=memory_format)


@_method("numpy")
def _numpy(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Refuse a GPU tensor, unless `force=True`."""
    index = gpu_of(self)
    if index is None and ((self.is_meta and is_without_numbers()) or is_forgotten(self)):
        return known(self, "Tensor.numpy").numpy(*args, **kwargs)
    if index is None:
        return torch._C.TensorBase.numpy(self, *args, **kwargs)
    if not kwargs.get("force"):
        raise TypeError(
            f"can't convert {the_session().devices[index]} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return move(self.detach(), None).resolve_conj().resolve_neg().numpy()


@_method("type")
def type_(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """Name or take a type, such as ``torch.cuda.FloatTensor``."""
    index = gpu_of(self)
    if dtype is None:
        name = str(_type(self))
        if is_without_numbers():
            name = name.replace("torch.meta.", "torch.", 1)
        return name if index is None else name.replace("torch.", "torch.cuda.", 1)
    if isinstance(dtype, torch.dtype):
        return _type(self, dtype, non_blocking, **kwargs)
    name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
    there = gpu_index(torch.device("cuda")) if name.startswith("torch.cuda.") else None
    return _type(move(self, there), name.replace("torch.cuda.", "torch."), non_blocking, **kwargs)


@wraps(_Tensor, "apply_", "map_", why=_NAMES_DEVICE)
def _for_cpu(original: Function) -> Function:
    """Build the replacement of a method that takes a Python function, and CPU tensors alone."""

    @functools.wraps(original)
    def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if gpu_of(self) is not None:
            raise TypeError(f"{original.__name__} is only implemented on CPU tensors")
        return original(self, *args, **kwargs)

    return call


@_method("pin_memory", _NEEDS_RUNTIME)
def _pin_memory(self: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Copy, and mark the copy as pinned."""
    index = gpu_of(self)
    if index is not None:
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    if _is_pinned(self):
        return self
    pinned = self.clone()
    notes_of(pinned)[_PINNED] = True
    return pinned


@_method("is_pinned", _NEEDS_RUNTIME)
def _is_pinned(self: torch.Tensor, *_: Any, **__: Any) -> bool:
    return _PINNED in notes_of(self)


@_method("record_stream", _NEEDS_RUNTIME)
def _record_stream(self: torch.Tensor, stream: Any) -> None:
    """Record nothing: copies are done on return."""
    if gpu_of(self) is None:
        raise RuntimeError(
            f"record_stream: expected a CUDA tensor, got one on {self.device} (stream {stream})"
        )


def beside(self: torch.Tensor, value: Any) -> Any:
    """Bring `value` to where `self` is, so that its gradient will travel back to its own device."""
    if isinstance(value, _Tensor):
        home = gpu_of(self)
        with torch._C.DisableTorchFunction():
            has_gradient = value.requires_grad and torch.is_grad_enabled()
        if home != gpu_of(value) and (home is None or has_gradient):
            return move(value, home)
    return value


@_method("copy_")
def _copy_(self: torch.Tensor, src: Any, non_blocking: bool = False) -> torch.Tensor:
    return torch._C.TensorBase.copy_(self, beside(self, src), non_blocking)


@_method("type_as")
def _type_as(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return self.to(other.device, other.dtype)


@_method("new_tensor")
def _new_tensor(self: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
    kwargs.setdefault("dtype", self.dtype)
    if kwargs.get("device") is None:
        kwargs["device"] = device(self)
    return torch.tensor(data, **kwargs)


@_method("new")
def _new(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    index = gpu_of(self)
    kwargs.pop("device", None)
    result = torch._C.TensorBase.new(self, *args, **kwargs)
    if index is not None:
        stamp_all(result, the_session(), index)
    return result


@wraps(_Tensor, "__dlpack__", why="it would say that the memory is the CPU's")
@wraps(torch, "to_dlpack", why="it would say that the memory is the CPU's")
@wraps(torch.utils.dlpack, "to_dlpack", why="it would say that the memory is the CPU's")
def _no_dlpack(original: Any) -> Any:
    @functools.wraps(original)
    def hand_out(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
        if gpu_of(tensor) is not None:
            raise UnsupportedOpError(
                "to_dlpack: the memory of a virtual GPU cannot be handed out; use `.cpu()`"
            )
        return original(tensor, *args, **options)

    return hand_out


_parse_to_by_pytorch: Any = torch._C._nn._parse_to


@stands_in(torch._C._nn, "_parse_to", why="a bare number as device, and the device of a tensor")
def _parse_to(*args: Any, **kwargs: Any) -> Any:
    """Parse the arguments of `Module.to`."""
    if args and isinstance(args[0], _Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    if isinstance(kwargs.get("tensor"), _Tensor):
        like = kwargs.pop("tensor")
        kwargs.update(device=like.device, dtype=like.dtype)
    if kwargs.get("device") is not None:
        kwargs["device"] = as_device(kwargs["device"])
    return _parse_to_by_pytorch(*(as_device(arg) for arg in args[:1]), *args[1:], **kwargs)
