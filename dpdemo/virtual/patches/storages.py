"""The methods of `torch.UntypedStorage` that name a device: saving and loading go through them."""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch

from dpdemo.virtual.applying import Attribute, stands_in
from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.ledger import Allocation
from dpdemo.virtual.ops.known import copy_storage_shadow
from dpdemo.virtual.state import as_device, gpu_index, the_session

_Function = TypeVar("_Function")
_new: Any = torch._C.StorageBase.__new__
_copy_bytes: Any = torch._C.StorageBase.copy_  # type: ignore[attr-defined]
_resize: Any = torch._C.StorageBase.resize_  # type: ignore[attr-defined]
_is_shared: Any = torch._C.StorageBase.is_shared  # type: ignore[attr-defined]
_device: Any = torch._C.StorageBase.device  # type: ignore[attr-defined]


def _method(name: str, form: Callable[[Any], Any] | None = None) -> Callable[[_Function], _Function]:
    why = "what names a device: to C++ every storage is on the CPU"
    return stands_in(torch.UntypedStorage, name, why=why, form=form)


def _index(storage: torch.UntypedStorage) -> int | None:
    label = storage.__dict__.get(the_session().key)
    return None if label is None else label.index


@_method("copy_")
def copy_(
    self: torch.UntypedStorage, source: torch.UntypedStorage, non_blocking: Any = None
) -> torch.UntypedStorage:
    """Copy a storage into another, which may be on another device."""
    if _device.__get__(self).type == "meta":
        copy_storage_shadow(source, self)
    else:
        with torch._C._DisableTorchDispatch():
            _copy_bytes(self, source, non_blocking)
    there, here = _index(source), _index(self)
    if there != here:
        the_session().ledger.transfer(there, here, self.nbytes())
    return self


@_method("resize_")
def resize_(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
    """Resize a storage, and count it (FSDP frees parameters with it)."""
    resized: torch.UntypedStorage = _resize(self, size)
    label = self.__dict__.get(the_session().key)
    if label is not None and label.requested != self.nbytes():
        label.resize(self.nbytes())
    return resized


@_method("__new__")
def _make(cls: type, *args: Any, device: Any = None, **options: Any) -> torch.UntypedStorage:
    index = None if device is None else gpu_index(torch.device(as_device(device)))  # type: ignore[call-overload]
    if index is None:
        named = options if device is None else {**options, "device": device}
        return _new(cls, *args, **named)  # type: ignore[no-any-return]
    session = the_session()
    made: torch.UntypedStorage = _new(cls, *args, **options, device="meta" if session.is_meta else "cpu")
    made.__dict__[session.key] = Allocation(session.ledger, index, made.nbytes())
    return made


@_method("_share_cuda_")
def _share(self: torch.UntypedStorage, *_: Any, **__: Any) -> NoReturn:  # noqa: ARG001
    raise UnsupportedOpError(
        "sharing a CUDA tensor with another process: each process has virtual GPUs of its own; send `.cpu()`"
    )


@_method("is_shared")
def _is_shared_here(self: torch.UntypedStorage) -> bool:
    # the memory of a GPU always counts as shared
    return _index(self) is not None or _is_shared(self)


@_method("device", Attribute)
def _device_of(self: torch.UntypedStorage) -> torch.device:
    index = _index(self)
    return _device.__get__(self) if index is None else the_session().devices[index]


@_method("to")
def _to(self: torch.UntypedStorage, *, device: Any, non_blocking: bool = False) -> torch.UntypedStorage:  # noqa: ARG001
    target = gpu_index(torch.device(as_device(device)))  # type: ignore[call-overload]
    if target == _index(self):
        return self
    is_meta = the_session().is_meta and _device.__get__(self).type == "meta"
    where = ("meta" if is_meta else "cpu") if target is None else f"cuda:{target}"
    return copy_(torch.UntypedStorage(self.nbytes(), device=where), self)  # type: ignore[no-untyped-call]


@_method("cpu")
def _cpu(self: torch.UntypedStorage) -> torch.UntypedStorage:
    return _to(self, device="cpu")
