"""`dpdemo check` on models of the `transformers` library: no false alarms.

Not collected by itself: CONTRIBUTING.md has the command.
"""

import pytest
import torch

from dpdemo.checking import check
from dpdemo.virtual import virtual_gpus

transformers = pytest.importorskip("transformers", reason="the `transformers` library is not installed")

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
MODELS = {
    "bert": (
        lambda: transformers.BertForSequenceClassification(
            transformers.BertConfig(vocab_size=99, num_labels=3, **SMALL)
        ),
        ["input_ids=16x9:int64<90", "attention_mask=16x9:int64<2"],
    ),
    "t5": (
        lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, use_cache=False
            )
        ),
        ["input_ids=16x9:int64<90", "decoder_input_ids=16x5:int64<90"],
    ),
    "vit": (
        lambda: transformers.ViTForImageClassification(
            transformers.ViTConfig(image_size=16, patch_size=8, num_labels=3, **SMALL)
        ),
        ["pixel_values=16x3x16x16"],
    ),
    "llama": (
        lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(vocab_size=99, num_key_value_heads=2, use_cache=False, **SMALL)
        ),
        ["input_ids=16x9:int64<90"],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_transformers_library_has_no_pitfall(name):
    factory, shapes = MODELS[name]
    found = [
        (finding.code, finding.message)
        for finding in check(factory, shapes).findings
        if finding.severity != "info"
    ]
    assert found == []


def test_a_cache_in_the_result_is_gathered_rightly_and_so_no_pitfall():
    def factory():
        torch.manual_seed(0)
        config = transformers.LlamaConfig(vocab_size=99, num_key_value_heads=2, **SMALL)
        return transformers.LlamaForCausalLM(config).eval()

    words = torch.arange(16 * 9).reshape(16, 9) % 90
    alone = factory()(words).past_key_values
    with virtual_gpus(4):
        gathered = torch.nn.DataParallel(factory().cuda())(words).past_key_values
        pairs = list(zip(gathered, alone, strict=True))
        assert pairs
        for found, wanted in pairs:
            assert torch.allclose(found[0].cpu(), wanted[0], atol=1e-5)
    assert check(factory, ["input_ids=16x9:int64<90"]).codes == ()


def test_a_mean_loss_with_labels_is_found():
    def factory():
        config = transformers.BertConfig(vocab_size=99, num_labels=3, **SMALL)
        model = transformers.BertForSequenceClassification(config)
        return model, {"input_ids": torch.ones(16, 9, dtype=torch.long), "labels": torch.arange(16) % 3}

    assert "DP501" in check(factory).codes
