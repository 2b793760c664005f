"""Models of the `transformers` library, from small configs, through DataParallel forward and backward.

They run where that library is installed, and compare with the same chunks done by hand on the CPU.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from dpdemo.virtual import virtual_gpus

transformers = pytest.importorskip("transformers", reason="an optional group: pip install transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

WORDS, LENGTH, ROWS = 200, 12, 6
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def words(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(2, WORDS, (ROWS, length))


def text() -> dict[str, torch.Tensor]:
    return {"input_ids": words(), "attention_mask": torch.ones(ROWS, LENGTH, dtype=torch.long)}


def classes() -> torch.Tensor:
    return torch.randint(0, 2, (ROWS,))


def bert() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    config = transformers.BertConfig(vocab_size=WORDS, **SMALL)
    return transformers.BertForSequenceClassification(config), {**text(), "labels": classes()}


def t5() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    config = transformers.T5Config(
        vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config), {**text(), "labels": words(7)}


def vit() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    config = transformers.ViTConfig(image_size=32, patch_size=8, **SMALL)
    images = torch.randn(ROWS, 3, 32, 32)
    return transformers.ViTForImageClassification(config), {"pixel_values": images, "labels": classes()}


def llama() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    config = transformers.LlamaConfig(vocab_size=WORDS, num_key_value_heads=1, use_cache=False, **SMALL)
    return transformers.LlamaForCausalLM(config), {**text(), "labels": words()}


def mixtral() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    config = transformers.MixtralConfig(
        vocab_size=WORDS, num_key_value_heads=1, num_local_experts=4, use_cache=False, **SMALL
    )
    return transformers.MixtralForCausalLM(config), {**text(), "labels": words()}


class Loss(nn.Module):
    """A model that returns its loss as a row, which DataParallel can gather."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: torch.Tensor) -> Any:
        return self.model(**inputs, return_dict=True).loss.unsqueeze(0)


@pytest.mark.parametrize("make", [bert, t5, vit, llama, mixtral])
def test_losses_and_gradients_equal_those_of_the_chunks_by_hand(make: Any) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    model.eval()
    alone = Loss(copy.deepcopy(model))
    chunks = [{name: value.chunk(3)[number] for name, value in inputs.items()} for number in range(3)]
    expected = torch.cat([alone(**chunk) for chunk in chunks])
    expected.mean().backward()
    with virtual_gpus(3):
        parallel = nn.DataParallel(Loss(model).cuda())
        losses = parallel(**{name: value.cuda() for name, value in inputs.items()})
        losses.mean().backward()
        torch.testing.assert_close(losses.cpu(), expected)
        for (name, ours), theirs in zip(parallel.module.named_parameters(), alone.parameters(), strict=True):
            if theirs.grad is not None:
                torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-3, atol=1e-5, msg=name)
