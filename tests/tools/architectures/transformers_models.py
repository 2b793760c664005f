"""Real architectures: DataParallel on virtual GPUs equals the chunks by hand, and `check` finds no pitfall.

Not collected by itself: CONTRIBUTING.md has the command.
"""

import pytest
import torch
from byhand import assert_agrees, state_of
from torch import nn

from dpdemo.checking import check
from dpdemo.virtual import virtual_gpus

transformers = pytest.importorskip("transformers", reason="the `transformers` library is not installed")

ROWS = 7  # chunks of 3, 3 and 1
CHECKED_ROWS = 16
WORDS = {"vocab_size": 99}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def ids(rows, length=9, seed=0):
    return torch.randint(5, 90, (rows, length), generator=torch.Generator().manual_seed(seed))


def pixels(rows, size):
    return {"pixel_values": torch.randn(rows, 3, size, size, generator=torch.Generator().manual_seed(0))}


def bert(rows):
    config = transformers.BertConfig(num_labels=3, **WORDS, **SMALL)
    mask = torch.ones(rows, 9, dtype=torch.long)
    mask[1, 6:] = 0
    inputs = {"input_ids": ids(rows), "attention_mask": mask}
    return transformers.BertForSequenceClassification(config), inputs


def t5(rows):
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(use_cache=False, **WORDS, **sizes)
    inputs = {"input_ids": ids(rows), "decoder_input_ids": ids(rows, length=5, seed=1)}
    return transformers.T5ForConditionalGeneration(config), inputs


def vit(rows):
    config = transformers.ViTConfig(image_size=16, patch_size=4, num_channels=3, num_labels=4, **SMALL)
    return transformers.ViTForImageClassification(config), pixels(rows, 16)


def gpt2(rows):
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16}
    config = transformers.GPT2Config(use_cache=False, **WORDS, **sizes)
    return transformers.GPT2LMHeadModel(config), {"input_ids": ids(rows)}


def resnet(rows):
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=4
    )
    return transformers.ResNetForImageClassification(config), pixels(rows, 32)


def llama(rows, *, use_cache=False):
    config = transformers.LlamaConfig(num_key_value_heads=1, use_cache=use_cache, **WORDS, **SMALL)
    return transformers.LlamaForCausalLM(config), {"input_ids": ids(rows)}


def mixtral(rows):
    config = transformers.MixtralConfig(
        num_key_value_heads=1, num_local_experts=4, use_cache=False, **WORDS, **SMALL
    )
    return transformers.MixtralForCausalLM(config), {"input_ids": ids(rows)}


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif "dropout" in vars(module) and isinstance(module.dropout, float):
            module.dropout = 0.0
    for key in ("attention_probs_dropout_prob", "hidden_dropout_prob", "dropout_rate", "attn_pdrop"):
        if hasattr(model.config, key):
            setattr(model.config, key, 0.0)


@pytest.mark.parametrize(
    "make", [bert, t5, vit, gpt2, resnet, llama, mixtral], ids=lambda make: make.__name__
)
@pytest.mark.filterwarnings("default")
def test_forward_and_backward_equal_the_same_chunks_by_hand(make):
    dtype = torch.float32 if make is mixtral else torch.float64  # its grouped_mm has no float64 on a CPU

    def program(wrap, device):
        model, inputs = make(ROWS)
        without_dropout(model)
        parallel = wrap(model.to(device, dtype))
        given = {
            key: (value.to(dtype) if value.is_floating_point() else value) for key, value in inputs.items()
        }
        result = parallel(**{key: value.to(device) for key, value in given.items()})["logits"]
        assert result.device.type == device
        result.pow(2).mean().backward()
        gradients = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
        return result.detach().cpu(), gradients, state_of(parallel)

    assert_agrees(program)


@pytest.mark.parametrize("make", [bert, t5, vit, llama], ids=lambda make: make.__name__)
def test_a_model_of_the_transformers_library_has_no_pitfall(make):
    assert [
        finding for finding in check(lambda: make(CHECKED_ROWS)).findings if finding.severity != "info"
    ] == []


def test_a_cache_in_the_result_is_gathered_rightly_and_so_no_pitfall():
    def factory():
        torch.manual_seed(0)
        model, inputs = llama(CHECKED_ROWS, use_cache=True)
        return model.eval(), inputs

    alone, inputs = factory()
    expected = alone(**inputs).past_key_values
    with virtual_gpus(4):
        gathered = nn.DataParallel(factory()[0].cuda())(**inputs).past_key_values
        pairs = list(zip(gathered, expected, strict=True))
        assert pairs
        for found, wanted in pairs:
            assert torch.allclose(found[0].cpu(), wanted[0], atol=1e-5)
    assert check(factory).codes == ()


def test_a_mean_loss_with_labels_is_found():
    def factory():
        model, inputs = bert(CHECKED_ROWS)
        return model, inputs | {"labels": torch.arange(CHECKED_ROWS) % 3}

    assert "DP501" in check(factory).codes
