"""The label on a tensor's storage that names its GPU.

To C++ and to autograd a tensor on a virtual GPU is an ordinary CPU tensor: same class, same kernels, same
views. All that makes it a GPU tensor is an `Allocation` in its storage's `__dict__`. So a view of a GPU
tensor is on that GPU because it shares the storage; a `Parameter`, a `.data` or a `detach()` likewise; and a
tensor that C++ made on its own has none and is a CPU tensor. PyTorch keeps a storage's Python object alive
for as long as the storage itself (torch/csrc/StorageMethods and `PyObjectPreservation`), so the label cannot
get lost while the storage lives.

The attribute's name is the session's own: labels of a block that was left mean nothing afterwards.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from dpdemo.virtual.ledger import Allocation
from dpdemo.virtual.state import Session, the_session

_device: Any = torch._C.TensorBase.device
_plain_dispatch: Any = torch._C._disabled_torch_dispatch_impl


_Function = TypeVar("_Function", bound="Callable[..., Any]")
_has_own_functions: Any = torch._C._has_torch_function_unary


def as_cpp(function: _Function) -> _Function:
    """Let a function see tensors as C++ does: their classes and function modes are not asked."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return function(*args, **kwargs)

    return call  # type: ignore[return-value] # it takes and returns the same


def _past_its_class(function: _Function) -> _Function:
    """As `as_cpp`, at less cost for a first argument of no class with functions of its own."""
    slowly = as_cpp(function)

    @functools.wraps(function)
    def call(tensor: torch.Tensor, *args: Any) -> Any:
        return (slowly if _has_own_functions(tensor) else function)(tensor, *args)

    return call  # type: ignore[return-value] # it takes and returns the same


@_past_its_class
def label_of(tensor: torch.Tensor, key: str) -> Allocation | None:
    """Return the allocation that `tensor` lives in, or None for a CPU tensor."""
    try:
        label: Allocation | None = tensor.untyped_storage().__dict__.get(key)
    except (NotImplementedError, RuntimeError, ValueError):
        return _label_without_storage(tensor, key)
    if label is None and has_operators_of_its_own(type(tensor)):
        return _label_of_part(tensor, key)
    return label


def _label_of_part(tensor: torch.Tensor, key: str) -> Allocation | None:
    """Find the label of a wrapper that C++ made without asking Python (DTensor): its first part has it."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    parts = flatten()[0] if flatten is not None else []
    return label_of(getattr(tensor, parts[0]), key) if parts else None


def notes_of(tensor: torch.Tensor) -> dict[str, Any]:
    """Return the attributes of a tensor's storage; of a tensor without one, a dict that nobody keeps."""
    try:
        return tensor.untyped_storage().__dict__
    except (NotImplementedError, RuntimeError, ValueError):
        return {}


def is_of_a_block(tensor: torch.Tensor) -> bool:
    """Return whether `tensor` is, or was, on a GPU of any block, which may have been left."""
    with torch._C.DisableTorchFunction():
        return any(isinstance(value, Allocation) for value in notes_of(tensor).values())


def gpu_of(tensor: torch.Tensor) -> int | None:
    """Return the GPU that `tensor` is on, or None if it is not on one."""
    session = the_session()
    if session.is_meta and session.current.sees_as_cpp:
        return None
    label = label_of(tensor, session.key)
    if label is not None:
        return label.index
    with torch._C.DisableTorchFunction():
        seen: torch.device = _device.__get__(tensor)  # C++ itself names a GPU for fake tensors
    return seen.index if seen.type == "cuda" else None


def flat_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested lists, or a tensor itself."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from flat_tensors(item)


def gpus_of(value: Any) -> set[int | None]:
    """Return the GPUs that the tensors in nested lists are on; None is the CPU."""
    return {gpu_of(tensor) for tensor in flat_tensors(value)}


def has_operators_of_its_own(kind: Any) -> bool:
    """Return whether a class of tensors has operators of its own (`__torch_dispatch__`)."""
    return kind.__torch_dispatch__ is not _plain_dispatch


def _label_without_storage(tensor: torch.Tensor, key: str) -> Allocation | None:
    """Find the label of a tensor that has no storage of its own, or does not show it."""
    inner = _inside_functorch(tensor)
    if inner is not None:
        return label_of(inner, key)
    for part in sparse_parts(tensor):
        return label_of(part, key)
    return tensor.__dict__.get(key)  # opaque layouts (mkldnn): the tensor itself carries it


def _inside_functorch(tensor: torch.Tensor) -> torch.Tensor | None:
    """Unwrap one level of `torch.func` (vmap, grad), whose tensors have no storage."""
    functorch: Any = torch._C._functorch
    return functorch.get_unwrapped(tensor) if functorch.is_functorch_wrapped_tensor(tensor) else None


def unwrapped(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensor with storage that the wrappers of `torch.func` hold, or `tensor` itself."""
    inner = _inside_functorch(tensor)
    return [tensor] if inner is None else unwrapped(inner)


@_past_its_class
def sparse_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the dense tensors that a sparse one is made of, values first."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._values(), tensor._indices()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.values(), tensor.crow_indices(), tensor.col_indices()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.values(), tensor.ccol_indices(), tensor.row_indices()]
    return []


@_past_its_class
def stamp(tensor: torch.Tensor, session: Session, index: int) -> None:
    """Put `tensor`'s storage on GPU `index`, unless it is on a GPU already."""
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        _stamp_without_storage(tensor, session, index)
        return
    attributes = storage.__dict__
    label = attributes.get(session.key)
    if label is None:
        uncounted = session.num_uncounted and session.current.uncounted  # the first is quicker to ask
        make = Allocation.uncounted if uncounted else Allocation
        attributes[session.key] = make(session.ledger, index, storage.nbytes())
    elif label.requested != (nbytes := storage.nbytes()):
        label.resize(nbytes)


@as_cpp
def label_as_wrapper(tensor: torch.Tensor, session: Session, index: int) -> None:
    """Put a tensor that only wraps others on GPU `index`; its own storage takes no bytes."""
    label = Allocation(session.ledger, index, 0)
    try:
        tensor.untyped_storage().__dict__[session.key] = label
    except (NotImplementedError, RuntimeError):
        tensor.__dict__[session.key] = label


@_past_its_class
def unstamp(tensor: torch.Tensor, session: Session) -> None:
    """Take the label off a tensor that was made on a GPU although the CPU was asked for."""
    inner = _inside_functorch(tensor)
    if inner is not None:
        unstamp(inner, session)
    elif tensor.layout is torch.strided:
        tensor.untyped_storage().__dict__.pop(session.key, None)
    for part in sparse_parts(tensor):
        unstamp(part, session)


def _stamp_without_storage(tensor: torch.Tensor, session: Session, index: int) -> None:
    inner = _inside_functorch(tensor)
    parts = sparse_parts(tensor) if inner is None else [inner]
    for part in parts:
        stamp(part, session, index)
    if not parts:
        tensor.__dict__.setdefault(session.key, Allocation(session.ledger, index, 0))


def stamp_all(result: object, session: Session, index: int) -> None:
    """Put every tensor of an op's result on GPU `index`."""
    if isinstance(result, torch.Tensor):
        stamp(result, session, index)
    elif isinstance(result, (tuple, list)):
        for item in result:
            stamp_all(item, session, index)
