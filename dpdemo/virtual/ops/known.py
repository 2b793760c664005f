"""Numbers that are known although the storages of virtual GPUs have none.

With ``storage="meta"`` most numbers do not exist: parameters, activations, gradients. But masks, positions,
lengths, indices and counters follow from what the host sent and from constants alone, and programs look at
them (`if mask.all():`). A storage whose contents so follow has a *shadow*: its contents on the host. An
operator whose operands all have shadows runs on these too, and so its result has one.

A shadow belongs to a storage, as a label does (`labels.py`): views share it, and what is written through one
of them is seen through all. One element is enough where all are equal (`zeros`, `ones`, `full`), of whatever
size; other shadows are bounded, and past the bound contents are not known.

Contents stop being known when something that is not known is written. So too for real tensors of the host:
these are then *forgotten*, and reading them is refused from then on.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from dpdemo.virtual.labels import notes_of

META = torch.device("meta")
LARGEST = 64 * 2**20  # bytes of a shadow
SHADOW, _FORGOTTEN = "_virtual_gpu_shadow", "_virtual_gpu_forgotten"
_is_meta: Any = torch._C.TensorBase.is_meta


class _Shadow(NamedTuple):
    """The contents of a storage: its bytes on the host, or one element to which all others are equal."""

    storage: torch.UntypedStorage | None = None
    element: torch.Tensor | None = None


def numbers_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the numbers of `tensor` as a tensor of the host (itself if it is real), or None."""
    if not _is_meta.__get__(tensor):
        return None if is_forgotten(tensor) else tensor
    shadow: _Shadow | None = notes_of(tensor).get(SHADOW)
    return None if shadow is None else _seen_through(tensor, shadow)


def is_unknown(tensor: torch.Tensor) -> bool:
    """Return whether a tensor without numbers, which has all its storage or shares it, has no shadow."""
    return SHADOW not in notes_of(tensor)


def have_equal_numbers(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one shape have the same numbers, or both none that are known."""
    numbers, others = numbers_of(tensor), numbers_of(other)
    if numbers is None or others is None:
        return numbers is others
    with torch._C._DisableTorchDispatch():
        return torch.equal(numbers, others)


def _seen_through(tensor: torch.Tensor, shadow: _Shadow) -> torch.Tensor | None:
    """Look at a shadow as `tensor` looks at its storage."""
    with torch._C._DisableTorchDispatch():
        if shadow.element is not None:
            return shadow.element.expand(tensor.shape) if shadow.element.dtype == tensor.dtype else None
        storage = shadow.storage
        if storage is None or storage.nbytes() != tensor.untyped_storage().nbytes():
            return None
        if tensor.is_conj() or tensor.is_neg():
            return None
        view = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return view.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def is_forgotten(tensor: torch.Tensor) -> bool:
    """Return whether a real tensor of the host was written with what is not known."""
    return not _is_meta.__get__(tensor) and _FORGOTTEN in notes_of(tensor)


def forget(tensor: torch.Tensor) -> None:
    """Note that the contents of a tensor's storage are no longer known."""
    if _is_meta.__get__(tensor):
        notes_of(tensor).pop(SHADOW, None)
    else:
        notes_of(tensor)[_FORGOTTEN] = True


def know(tensor: torch.Tensor, numbers: torch.Tensor) -> None:
    """Give the storage of `tensor`, which has none, a shadow with these numbers (not copied if they fit)."""
    if not is_small(tensor):
        return
    storage = tensor.untyped_storage()
    fits = (
        numbers.stride() == tensor.stride()
        and numbers.storage_offset() == tensor.storage_offset()
        and numbers.dtype == tensor.dtype
        and numbers.untyped_storage().nbytes() == storage.nbytes()
    )
    with torch._C._DisableTorchDispatch():
        kept = numbers.untyped_storage()
        if not fits:
            kept = torch.UntypedStorage(storage.nbytes())  # type: ignore[no-untyped-call]
            view = torch.empty(0, dtype=tensor.dtype, device="cpu")
            view.set_(kept, tensor.storage_offset(), tensor.shape, tensor.stride()).copy_(numbers)
        storage.__dict__[SHADOW] = _Shadow(kept)


def know_all_equal(tensor: torch.Tensor, value: Any) -> None:
    """Note that every element of the storage of `tensor`, which has none, is `value`."""
    with torch._C._DisableTorchDispatch():
        element = torch.full((), value, dtype=tensor.dtype, device="cpu")
    notes_of(tensor)[SHADOW] = _Shadow(element=element)


def copy_shadow(source: torch.Tensor, target: torch.Tensor) -> None:
    """Let `target`, a copy of `source` without storage for numbers, know what is known of `source`."""
    numbers = numbers_of(source)
    if numbers is None:
        return
    element = element_of(source) if _is_meta.__get__(source) else None
    if element is not None:
        notes_of(target)[SHADOW] = _Shadow(element=element.to(target.dtype))
    elif is_small(target):
        with torch._C._DisableTorchDispatch():
            know(target, numbers.to(target.dtype, copy=True))


def know_parts(parts: Sequence[torch.Tensor], whole: torch.Tensor, dim: int | None = None) -> None:
    """Let `whole` know `parts`, which were copied into it along `dim` (None: one after the other)."""
    if not _is_meta.__get__(whole) or not is_small(whole):
        return
    numbers = [numbers_of(part) for part in parts]
    known = [part for part in numbers if part is not None]
    if len(known) == len(numbers):
        with torch._C._DisableTorchDispatch():
            flat = known if dim is not None else [part.reshape(-1) for part in known]
            know(whole, torch.cat(flat, dim or 0).reshape(whole.shape))


def copy_storage_shadow(source: torch.UntypedStorage, target: torch.UntypedStorage) -> None:
    """Let storage `target`, which has none itself, know what is known of the bytes of `source`."""
    shadow: _Shadow | None = source.__dict__.get(SHADOW)
    if shadow is None or shadow.storage is None:
        target.__dict__[SHADOW] = shadow
        return
    with torch._C._DisableTorchDispatch():
        copy = torch.UntypedStorage(shadow.storage.nbytes())  # type: ignore[no-untyped-call]
        copy.copy_(shadow.storage)
    target.__dict__[SHADOW] = _Shadow(copy)


def is_small(tensor: torch.Tensor) -> bool:
    """Return whether a shadow of the storage of `tensor` may be made."""
    return tensor.layout is torch.strided and bool(tensor.untyped_storage().nbytes() <= LARGEST)


def element_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the number to which all elements of a tensor are known to be equal, if they are, else None."""
    if not _is_meta.__get__(tensor):
        return tensor if not tensor.dim() and not is_forgotten(tensor) else None
    shadow: _Shadow | None = notes_of(tensor).get(SHADOW)
    if shadow is None or shadow.element is None:
        return None if tensor.dim() or shadow is None else numbers_of(tensor)
    return shadow.element if shadow.element.dtype == tensor.dtype else None


def remember(tensor: torch.Tensor) -> None:
    """Begin to know the whole storage of `tensor`, into which numbers will now be written."""
    if _is_meta.__get__(tensor):
        know_all_equal(tensor, 0)
    else:
        notes_of(tensor).pop(_FORGOTTEN, None)


def make_writable(tensor: torch.Tensor) -> bool:
    """Give each element of a known storage a place of its own; return whether it has one."""
    if not _is_meta.__get__(tensor):
        return True
    storage = tensor.untyped_storage()
    shadow: _Shadow = storage.__dict__[SHADOW]
    if shadow.element is None:
        return True
    if not is_small(tensor):
        return False
    with torch._C._DisableTorchDispatch():
        whole = shadow.element.expand(storage.nbytes() // shadow.element.element_size()).clone()
    storage.__dict__[SHADOW] = _Shadow(whole.untyped_storage())
    return True
