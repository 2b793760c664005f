"""The operators that need more than "run it where its operands are", each with the reason why.

A rule takes `(session, func, args, kwargs)` and returns the operator's result.
"""

import functools
from typing import Any

import torch

from dpdemo.virtual.errors import two_devices
from dpdemo.virtual.labels import gpu_of, stamp, stamp_all
from dpdemo.virtual.ops import listening, meta
from dpdemo.virtual.ops.known import META, numbers_of
from dpdemo.virtual.ops.mismatch import device_clash
from dpdemo.virtual.ops.provenance import made_by_cpp, note_cpps, note_users
from dpdemo.virtual.ops.special import on
from dpdemo.virtual.state import Session, gpu_index
from dpdemo.virtual.transfer import copy_across

aten = torch.ops.aten
rule = functools.partial(on, "run")


def call(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator as it is; without numbers if there are none."""
    if session.is_meta:
        return meta.run(session, func, args, kwargs, None)
    return func(*args, **kwargs)


@rule(
    aten._to_copy.default, why="it moves between devices; and to C++ every GPU tensor is on the CPU already"
)
def _to_copy(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Copy to the GPU that is named. The CPU is named by C++'s own conversions only, which mean "stay".

    (Or "go where that other tensor is": `lengths.to(loss.options())`. So the result counts as one of C++'s
    own, even if it is made from a user's CPU tensor. A user's move to the CPU comes through `Tensor.to`,
    which `transfer.py` answers without this operator. Without numbers C++ names "meta" in the same sense.)
    """
    # `torch.func` passes a number where C++ has a tensor that wraps one
    source = gpu_of(args[0]) if isinstance(args[0], torch.Tensor) else None
    device = kwargs.pop("device", None)
    kwargs.pop("pin_memory", None)
    if source is not None and session.current.names_host and device is not None and device.type == "cpu":
        return copy_across(args[0], None, kwargs)
    if session.is_meta and source is not None and device == META:
        device = None
    is_cpps = device is not None or all(made_by_cpp(session, args, {}))
    if device is not None and device.type not in ("cpu", "cuda"):
        return func(*args, **kwargs, device=device)
    target = None if device is None else gpu_index(device)
    if target is None:
        target = source
    if session.is_meta and target is not None:
        kwargs["device"] = META
    result = call(session, func, args, kwargs)
    if target is None and is_cpps:
        note_cpps(session, result)
    if target is not None:
        stamp_all(result, session, target)
        if target != source:
            session.ledger.transfer(source, target, result.nbytes)
    return result


@rule(aten.lift_fresh.default, aten.lift.default, why="C++ made the tensor out of sight, from a list")
def _lift(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if gpu_of(args[0]) is None:
        note_cpps(session, args[0])  # if it was the user's list, a variable holds the tensor later
    return call(session, func, args, kwargs)


@rule(aten.copy_.default, why="its operands may be on two devices, and C++ fills tensors that it made itself")
def _copy(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Copy, and count it; a tensor that C++ made to be filled from a GPU is there (`pad_packed_sequence`).

    (A user's CPU tensor never gets here with a source on a GPU: see `Tensor.copy_` and `__setitem__` in
    `tensor.py`.)
    """
    there = gpu_of(args[1])
    target_is_cpps, source_is_cpps = made_by_cpp(session, args, kwargs)
    result = call(session, func, args, kwargs)
    if target_is_cpps and gpu_of(args[0]) is None:
        if there is not None:
            stamp(args[0], session, there)
        elif not source_is_cpps:
            note_users(session, args[0])
    elif (here := gpu_of(args[0])) != there:
        session.ledger.transfer(there, here, args[0].nbytes)
    return result


@rule(aten._foreach_copy_.default, why="its operands may be on two devices")
def _copy_each(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for target, source in zip(*args[:2], strict=True):
        here, there = gpu_of(target), gpu_of(source)
        if here != there:
            session.ledger.transfer(there, here, target.nbytes)
    return call(session, func, args, kwargs)


@rule(
    aten._efficientzerotensor.default,
    why="a tensor without data has no storage to label; ordinary zeros will do",
)
def _zeros(session: Session, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    made = aten.zeros.default(*args, **kwargs)
    note_cpps(session, made)
    return made


@rule(aten._local_scalar_dense.default, why="reading one element is a copy to the host")
def _item(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    source = gpu_of(args[0])
    if source is not None:
        session.ledger.transfer(source, None, args[0].element_size())
    result = call(session, func, args, kwargs)
    for listen in listening.reads:
        listen(args[0], result)
    return result


@rule(
    aten.set_.source_Storage, aten.set_.source_Storage_storage_offset, why="the new storage has its own label"
)
def _as_it_is(_: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


@rule(
    aten._pack_padded_sequence_backward.default,
    aten._ctc_loss_backward.Tensor,
    aten._nested_view_from_jagged.default,
    aten.resize_as_.default,
    why="its other operands may be elsewhere: sizes on the CPU, or a tensor of which only the shape is read",
)
def _where_first_is(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    home = gpu_of(args[0])
    result = call(session, func, args, kwargs)
    if home is not None:
        stamp_all(result, session, home)
    return result


@rule(
    aten.index.Tensor,
    aten._unsafe_index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index_put.default,
    why="indices may be on the CPU, and the value too if it has no dimensions (TensorAdvancedIndexing.cpp)",
)
def _index(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    home = gpu_of(args[0])
    if home is None and len(args) > 2 and made_by_cpp(session, args[:3], {})[0]:
        home = gpu_of(args[2])  # zeros that C++ made for a gradient, as that of `trace` under vmap
    for index in args[1]:
        there = None if index is None else gpu_of(index)
        if there not in (None, home):
            device = "cpu" if home is None else session.devices[home]
            raise RuntimeError(
                f"indices should be either on cpu or on the same device as the indexed tensor ({device})"
            )
    if len(args) > 2:
        _check_value(session, args, home)
    is_cpps = home is None and all(made_by_cpp(session, args, kwargs))
    result = call(session, func, args, kwargs)
    if home is not None:
        stamp(result, session, home)
    elif is_cpps:
        note_cpps(session, result)
    return result


def _check_value(session: Session, args: tuple[Any, ...], home: int | None) -> None:
    """Refuse a value that is elsewhere, unless it has no dimensions or is one that C++ made."""
    there = gpu_of(args[2])
    if home == there or args[2].dim() == 0 or (there is None and made_by_cpp(session, args[:3], {})[-1]):
        return
    wanted, found = (torch.device("cpu") if gpu is None else session.devices[gpu] for gpu in (home, there))
    if home is not None and args[3:] and args[3]:
        raise RuntimeError(f"expected device {wanted} but got device {found} for value tensor")
    raise two_devices(*((found, wanted) if home is None else (wanted, found)))


@rule(aten._pack_padded_sequence.default, why="its lengths must be on the CPU (native/PackedSequence.cpp)")
def _pack_padded(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    data, lengths = args[:2]
    there = gpu_of(lengths)
    if there is not None:
        kind = lengths.type().rpartition(".")[2].removesuffix("Tensor")
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, "
            f"but got {lengths.dim()}D {session.devices[there]} {kind} tensor"
        )
    result = _pack_by_lengths(func, *args) if data.is_meta else call(session, func, args, kwargs)
    home = gpu_of(data)
    if home is not None:
        stamp(result[0], session, home)  # the second result, batch_sizes, stays on the CPU
    return result


def _pack_by_lengths(func: Any, data: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
    """Pack what has no numbers; lengths, on the host, have."""
    one_number_a_step = torch.zeros(*data.shape[:2], 1, device="cpu")
    packed, batch_sizes = func(one_number_a_step, lengths, batch_first)
    return torch.empty(len(packed), *data.shape[2:], dtype=data.dtype, device=META), batch_sizes


@rule(aten._ctc_loss.Tensor, why="lengths are on the CPU by design; they say how much is kept")
def _ctc_loss(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    log_probs, targets, blank = args[0], args[1], args[4] if len(args) > 4 else 0
    kinds = (log_probs.dtype, targets.dtype)  # cuDNN takes targets on the CPU (native/cudnn/LossCTC.cpp)
    takes_cudnn = targets.dim() == 1 and kinds == (torch.float32, torch.int32) and blank == 0
    if gpu_of(targets) != gpu_of(log_probs) and not takes_cudnn:
        raise device_clash(session, func, args[:2], {})
    target_lengths = numbers_of(args[3])
    if not log_probs.is_meta or target_lengths is None:
        return _where_first_is(session, func, args, kwargs)
    num_steps, batch, _ = log_probs.shape
    states = 2 * int(target_lengths.max()) + 1
    like = {"dtype": log_probs.dtype, "device": META}
    result = (torch.empty(batch, **like), torch.empty(batch, num_steps, states, **like))
    home = gpu_of(log_probs)
    if home is not None:
        stamp_all(result, session, home)
    return result
