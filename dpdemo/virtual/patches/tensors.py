"""Tensors, storages and modules: what names a device, where C++ sees the CPU alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.utils.dlpack

from dpdemo.virtual import kinds
from dpdemo.virtual.ops import meta
from dpdemo.virtual.patches.applying import Attribute, Patch, group
from dpdemo.virtual.standins import factories, indexing, storages, tensor, wrappers

if TYPE_CHECKING:
    from dpdemo.virtual.state import Session

_C: Any = torch._C
_NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")


def tensor_methods() -> list[Patch]:
    """Replace the methods of `torch.Tensor` that name a device."""
    return [
        *group(
            torch.Tensor,
            "what names a device: to C++ every tensor is on the CPU",
            device=Attribute(tensor.device),
            is_cuda=Attribute(tensor.is_cuda),
            is_cpu=Attribute(tensor.is_cpu),
            get_device=tensor.get_device,
            to=tensor.to,
            cuda=tensor.cuda,
            cpu=tensor.cpu,
            numpy=tensor.numpy,
            type=tensor.type_,
            type_as=tensor.type_as,
            copy_=tensor.copy_,
            __setitem__=indexing.setitem,
            new_tensor=tensor.new_tensor,
            new=tensor.new,
        ),
        *group(_C._nn, "a bare number as device, and the device of a tensor", _parse_to=tensor.parse_to),
        *group(
            torch.Tensor,
            "C++ refuses a bare number as device in a CPU build",
            **{name: factories.plain(getattr(torch._C.TensorBase, name)) for name in _NEW},
        ),
        *_of_a_cuda_runtime(),
        *_dlpack(),
    ]


def _of_a_cuda_runtime() -> list[Patch]:
    return [
        *group(
            torch.Tensor,
            "C++ would ask for a CUDA runtime",
            _make_wrapper_subclass=staticmethod(wrappers.make_wrapper_subclass),
        ),
        *group(
            torch.Tensor,
            "needs a CUDA runtime",
            pin_memory=tensor.pin_memory,
            is_pinned=tensor.is_pinned,
            record_stream=tensor.record_stream,
        ),
    ]


def _dlpack() -> list[Patch]:
    why = "it would say that the memory is the CPU's"
    function = tensor.no_dlpack("to_dlpack", torch.utils.dlpack.to_dlpack)  # type: ignore[attr-defined]
    method = tensor.no_dlpack("Tensor.__dlpack__", torch.Tensor.__dlpack__)
    return [
        *group(torch, why, to_dlpack=function),
        *group(torch.utils.dlpack, why, to_dlpack=function),
        *group(torch.Tensor, why, __dlpack__=method),
    ]


def storage_methods() -> list[Patch]:
    """Replace the methods of `torch.UntypedStorage` that name a device."""
    return group(
        torch.UntypedStorage,
        "what names a device: to C++ every storage is on the CPU",
        device=Attribute(storages.device),
        to=storages.to,
        cuda=storages.cuda,
        cpu=storages.cpu,
        clone=storages.clone,
        is_shared=storages.is_shared,
        copy_=storages.copy_,
        resize_=storages.resize_,
        __new__=storages.new,
        _share_cuda_=storages.share,
    )


def module_methods() -> list[Patch]:
    """Let modules tell what their tensors are for."""
    return group(
        torch.nn.Module,
        "the ledger tells parameters and buffers from other tensors",
        _apply=kinds.apply_to_module,
        register_parameter=kinds.register_parameter,
        register_buffer=kinds.register_buffer,
    )


def readers(session: Session) -> list[Patch]:
    """Refuse to read numbers where the session's tensors have none."""
    if not session.is_meta:
        return []
    why = "there are no numbers to read"
    reading = {
        name: meta.refusing(name, getattr(torch._C.TensorBase, name, None) or getattr(torch.Tensor, name))
        for name in meta.READING
    }
    return [
        *group(torch.Tensor, why, **reading, __format__=meta.format_),
        *group(
            torch.Tensor, "C++ makes a list in an index without its numbers", __getitem__=indexing.getitem
        ),
        *group(
            torch.nn.Parameter,
            "a parameter has no numbers on the host either",
            __new__=meta.new_parameter,
        ),
    ]
