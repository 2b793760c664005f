"""torch.distributed.rpc: what a worker is asked to do runs on its own virtual GPUs.

C++ answers a call on threads of its own, which know no dispatch mode. A backward pass over workers runs on
such threads too: its gradients get their GPU when they are asked for. Between workers, tensors travel on the
CPU alone, as on real GPUs without a device map; a device map is refused.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import autograd as dist_autograd
from torch.distributed.rpc import api, internal, options
from torch.utils._pytree import tree_leaves

from dpdemo.virtual.applying import stands_in, wraps
from dpdemo.virtual.labels import gpu_of, gpus_of, stamp
from dpdemo.virtual.process_groups import refuse
from dpdemo.virtual.state import the_session
from dpdemo.virtual.threads import seeing_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

_WHY = "C++ sees every tensor on the CPU"
# torch/csrc/distributed/rpc/tensorpipe_agent.cpp, `getDevicesForRemote`, which names the other worker too
_CPU_ALONE = (
    "TensorPipe RPC backend only supports CPU tensors by default, please move your tensors to CPU before "
    "sending them over RPC, or call `set_device_map` on `TensorPipeRpcBackendOptions` to explicitly "
    "configure device mapping. Device mapping is not available, but found tensor on device: cuda:{}"
)


@wraps(internal, "_run_function", why="it runs on threads of C++")
def _on_gpus(original: Callable[..., Any]) -> Callable[..., Any]:
    """Answer a call with this process's GPUs in place; C++ keeps the function for the life of its agent."""

    @functools.wraps(original)
    def run(call: Any) -> Any:
        with seeing_gpus():
            return original(call)

    return run


@wraps(dist_autograd, "get_gradients", why="C++ made the gradients, on threads of its own")
def _on_their_gpus(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_gradients(context: int) -> Any:
        found = original(context)
        for parameter, gradient in found.items():
            index = gpu_of(parameter)
            if index is not None and gpu_of(gradient) is None:
                stamp(gradient, the_session(), index)
        return found

    return get_gradients


@wraps(internal._InternalRPCPickler, "serialize", why=_WHY)
def _pickling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def serialize(pickler: Any, value: Any) -> tuple[bytes, list[torch.Tensor]]:
        data, tensors = original(pickler, value)
        _check_on_cpu(tensors)
        return data, tensors

    return serialize


@wraps(api, "_invoke_rpc_builtin", "_invoke_remote_builtin", why=_WHY)
def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        _check_on_cpu(tree_leaves((args, kwargs)))
        return original(*args, **kwargs)

    return call


def _check_on_cpu(values: list[Any]) -> None:
    """Raise PyTorch's error for a tensor that would leave a GPU."""
    for index in gpus_of(values) - {None}:
        raise RuntimeError(_CPU_ALONE.format(index))


@stands_in(options, "_to_device_map", why="it needs the GPUs of other processes")
def _no_device_map(_: Any) -> Any:
    return refuse("a device map of torch.distributed.rpc")
