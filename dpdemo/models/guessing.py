"""Infer the input of a model that came without one from its first layer, and try it.

The guess is tried on the model itself: a copy is called with it. A model whose forward wants several
arguments, or whose first layer does not fix the shape, is not guessed.
"""

import copy
import inspect
from collections.abc import Iterator

import torch
from torch import nn

from dpdemo.models.failure import users_code

TOKENS = 16
"""Length of the sequences that are tried."""
IMAGE_SIZES = (32, 224, 28, 64, 96, 299)
_TRIAL_ROWS = 2


def guess_input(model: nn.Module, batch_size: int) -> str | None:
    """Return an input as `--input` takes it, such as `32x784`, or None if none can be inferred.

    Args:
        model: it is not changed; a copy is called, with two rows, in evaluation and without gradients.
        batch_size: rows of the input that is returned.

    """
    if _num_required(model) != 1:
        return None
    for shape, kind in _candidates(model):
        if _runs(model, shape, kind, on_gpu=False) or _runs(model, shape, kind, on_gpu=True):
            return "x".join(map(str, (batch_size, *shape))) + kind
    return None


def _num_required(model: nn.Module) -> int:
    parameters = inspect.signature(model.forward).parameters.values()
    if any(
        parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        for parameter in parameters
    ):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(
        parameter.kind in positional and parameter.default is parameter.empty for parameter in parameters
    )


def _candidates(model: nn.Module) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield shapes without the batch, and the type as `--input` writes it, by the first telling layer."""
    for layer in model.modules():
        match layer:
            case nn.Embedding() | nn.EmbeddingBag():
                yield (TOKENS,), f":int64<{layer.num_embeddings}"
                return
            case nn.Linear() | nn.Bilinear():
                features = layer.in_features if isinstance(layer, nn.Linear) else layer.in1_features
                shapes = [((features,), ""), ((TOKENS, features), "")]
                yield from reversed(shapes) if _reads_sequences(model) else shapes
                return
            case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
                num_dims = int(type(layer).__name__[4])
                yield from (((layer.in_channels, *[size] * num_dims), "") for size in IMAGE_SIZES)
                return
            case nn.RNNBase():
                yield (TOKENS, layer.input_size), ""
                return
            case nn.TransformerEncoderLayer():
                yield (TOKENS, layer.self_attn.embed_dim), ""
                return


def _reads_sequences(model: nn.Module) -> bool:
    """Return whether a batch of plain rows would be taken for one sequence: such layers need no batch."""
    return any(isinstance(layer, (nn.TransformerEncoderLayer, nn.RNNBase)) for layer in model.modules())


def _runs(model: nn.Module, shape: tuple[int, ...], kind: str, *, on_gpu: bool) -> bool:
    """Try a shape where the model is, or on a GPU if there is one: tensors of its own may be there."""
    if on_gpu and not torch.cuda.is_available():
        return False
    try:
        twin = copy.deepcopy(model).eval()
        twin = twin.cuda() if on_gpu else twin
        first = next(
            (parameter for parameter in twin.parameters() if parameter.is_floating_point()),
            torch.empty(0, device="cpu"),
        )
        given = torch.zeros((_TRIAL_ROWS, *shape), dtype=torch.int64 if kind else first.dtype, device="cpu")
        with torch.no_grad(), users_code():
            twin(given.to(first.device))
    except Exception:  # noqa: BLE001 - the user's model may raise anything
        return False
    return True
