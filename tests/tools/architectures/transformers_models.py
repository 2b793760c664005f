"""Real architectures under DataParallel on virtual GPUs, against the same chunks by hand on the CPU.

Not collected by itself: CONTRIBUTING.md has the command.
"""

import copy

import pytest
import torch
from torch import nn

from dpdemo.virtual import virtual_gpus

transformers = pytest.importorskip("transformers", reason="the `transformers` library is not installed")

ROWS = 7  # chunks of 3, 3 and 1
NUM_GPUS = 3
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def ids(rows=ROWS, length=9, seed=0):
    return torch.randint(5, 90, (rows, length), generator=torch.Generator().manual_seed(seed))


def bert():
    config = transformers.BertConfig(vocab_size=99, num_labels=3, **SMALL)
    mask = torch.ones(ROWS, 9, dtype=torch.long)
    mask[1, 6:] = 0
    inputs = {"input_ids": ids(), "attention_mask": mask}
    return transformers.BertForSequenceClassification(config), inputs, "logits"


def t5():
    config = transformers.T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, use_cache=False
    )
    inputs = {"input_ids": ids(), "decoder_input_ids": ids(length=5, seed=1)}
    return transformers.T5ForConditionalGeneration(config), inputs, "logits"


def vit():
    config = transformers.ViTConfig(image_size=16, patch_size=4, num_channels=3, num_labels=4, **SMALL)
    pixels = torch.randn(ROWS, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    return transformers.ViTForImageClassification(config), {"pixel_values": pixels}, "logits"


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=16, use_cache=False
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": ids()}, "logits"


def resnet():
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=4
    )
    pixels = torch.randn(ROWS, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return transformers.ResNetForImageClassification(config), {"pixel_values": pixels}, "logits"


def llama():
    config = transformers.LlamaConfig(vocab_size=99, num_key_value_heads=1, use_cache=False, **SMALL)
    return transformers.LlamaForCausalLM(config), {"input_ids": ids()}, "logits"


def mixtral():
    config = transformers.MixtralConfig(
        vocab_size=99, num_key_value_heads=1, num_local_experts=4, use_cache=False, **SMALL
    )
    return transformers.MixtralForCausalLM(config), {"input_ids": ids()}, "logits"


MODELS = [bert, t5, vit, gpt2, resnet, llama, mixtral]


def by_hand(model, inputs, output):
    """Expected result of DataParallel: each chunk through its own copy of the model, gradients added up."""
    copies = [copy.deepcopy(model) for _ in range(NUM_GPUS)]
    parts = zip(*(value.chunk(NUM_GPUS) for value in inputs.values()), strict=True)
    chunks = [dict(zip(inputs, part, strict=True)) for part in parts]
    result = torch.cat([each(**chunk)[output] for each, chunk in zip(copies, chunks, strict=True)])
    result.pow(2).mean().backward()
    gradients = {
        name: sum(dict(each.named_parameters())[name].grad for each in copies)
        for name, parameter in model.named_parameters()
        if dict(copies[0].named_parameters())[name].grad is not None
    }
    return result.detach(), gradients, dict(copies[0].named_buffers())


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
@pytest.mark.filterwarnings("default")
def test_forward_and_backward_equal_the_same_chunks_by_hand(make):
    torch.manual_seed(0)
    model, inputs, output = make()
    dtype = torch.float32 if make is mixtral else torch.float64  # its grouped_mm has no float64 on a CPU
    model = model.to(dtype)
    inputs = {key: value.to(dtype) if value.is_floating_point() else value for key, value in inputs.items()}
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif "dropout" in vars(module) and isinstance(module.dropout, float):
            module.dropout = 0.0
    for key in ("attention_probs_dropout_prob", "hidden_dropout_prob", "dropout_rate", "attn_pdrop"):
        if hasattr(model.config, key):
            setattr(model.config, key, 0.0)
    expected, gradients, buffers = by_hand(model, inputs, output)
    with virtual_gpus(NUM_GPUS):
        parallel = nn.DataParallel(model.cuda())
        result = parallel(**{key: value.cuda() for key, value in inputs.items()})[output]
        result.pow(2).mean().backward()
        assert result.device == torch.device("cuda:0")
        torch.testing.assert_close(result.detach().cpu(), expected)
        found = {name: p.grad.cpu() for name, p in parallel.module.named_parameters() if p.grad is not None}
        assert found.keys() == gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(found[name], gradient, msg=lambda text, name=name: f"{name}: {text}")
        for name, buffer in parallel.module.named_buffers():
            torch.testing.assert_close(buffer.cpu(), buffers[name])
