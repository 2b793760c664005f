"""Recurrent networks as CUDA runs them: one kernel (cuDNN's) for all layers and time steps.

The check with which they begin (input, hidden state and weights on one device) stands in C++ before any
operator is called (`check_attributes`, aten/src/ATen/native/RNN.cpp), and compares C++'s devices. A hidden
state left on the CPU is the commonest mistake with recurrent networks, so the check is made here too.

Without a GPU cuDNN does not say how much it keeps for the backward pass (its reserve space). Here that is
taken to be what the equations need: for each layer, direction and time step the gates, and for an LSTM the
cell. Weights that are not parts of one buffer (those of DataParallel's replicas) are copied into one in every
call (`_cudnn_rnn`, aten/src/ATen/native/cudnn/RNN.cpp).
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dpdemo.virtual.applying import wraps
from dpdemo.virtual.labels import gpu_of
from dpdemo.virtual.ops.casting import cast_for_autocast
from dpdemo.virtual.ops.fused import FUSED, Kernel, is_plain, run_fused
from dpdemo.virtual.ops.widening import cast

# Numbers that are kept for each hidden unit of each layer, direction and time step.
_KEPT = {"lstm": 6, "gru": 4, "rnn_tanh": 1, "rnn_relu": 1}


@wraps(torch._VF, *_KEPT, why=f"{FUSED}; and C++ compares its own devices")
def _network(original: Callable[..., Any]) -> Callable[..., Any]:

    @functools.wraps(original)
    def call(data: Tensor, *args: Any) -> Any:
        # in a packed sequence the batch sizes come first, and they are on the CPU
        packed = isinstance(args[0], torch.Tensor) and not args[0].is_floating_point()
        hidden, weights = args[packed], args[packed + 1]
        hidden = hidden if isinstance(hidden, (list, tuple)) else (hidden,)
        _check("hidden", data, hidden)
        _check("parameter", data, weights)
        if gpu_of(data) is None or not is_plain() or not torch.backends.cudnn.enabled:
            return original(data, *args)
        return _fused(original.__name__, original, args[:packed], data, hidden, weights, args[packed + 2 :])

    return call


def _check(kind: str, data: Tensor, others: Any) -> None:
    for other in others:
        if other.device != data.device:
            raise RuntimeError(
                f"Input and {kind} tensors are not at the same device, "
                f"found input tensor at {data.device} and {kind} tensor at {other.device}"
            )


def _fused(  # noqa: PLR0913, PLR0917 - what C++ is given
    name: str,
    original: Callable[..., Any],
    batch_sizes: tuple[Tensor, ...],
    data: Tensor,
    hidden: Any,
    weights: Any,
    options: tuple[Any, ...],
) -> Any:
    _, num_layers, dropout, train, bidirectional, *_ = options
    data, *rest = cast_for_autocast(data, *hidden, *weights)
    hidden, weights = rest[: len(hidden)], rest[len(hidden) :]

    num_states = len(hidden)  # the closures below live as long as the graph, and must hold no tensor

    def run(data: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        dtype = data.dtype
        data, *tensors = cast((data, *tensors), torch.float16, torch.float32)  # float16 is slow on CPUs
        states: Any = list(tensors[:num_states]) if name == "lstm" else tensors[0]
        results: tuple[Tensor, ...] = original(
            data, *batch_sizes, states, list(tensors[num_states:]), *options
        )
        return tuple(result.to(dtype).contiguous() for result in results)

    def like(data: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        width = tensors[0].size(-1) * (1 + bidirectional)
        return (data.new_empty(*data.shape[:-1], width), *map(torch.empty_like, tensors[:num_states]))

    directions = 1 + bidirectional
    steps = data[..., 0].numel()
    units = hidden[-1].size(-1)  # an LSTM's last state is its cell, which a projection leaves alone
    kept = steps * num_layers * directions * units * _KEPT[name] + _weights_to_copy(weights)
    # backward puts time first in the data and the gradient, and makes the data's gradient in any case
    swapped = not batch_sizes and options[-1]
    scratch = swapped * (data.numel() + steps * directions * hidden[0].size(-1))
    scratch += 0 if data.requires_grad else data.numel()
    size = data.element_size()
    kernel = Kernel(run, like, kept * size, scratch * size, is_random=bool(dropout and train))
    return run_fused(kernel, data, *hidden, *weights)


def _weights_to_copy(weights: Any) -> int:
    is_whole = all(weight.is_leaf and isinstance(weight, torch.nn.Parameter) for weight in weights)
    return 0 if is_whole else sum(weight.numel() for weight in weights)
