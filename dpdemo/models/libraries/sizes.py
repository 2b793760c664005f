"""The sizes of the models of transformers that are named most often, as their published config.json says.

Only what differs from the defaults of the configuration class stands here. A model that is missing is read
from the local cache of Hugging Face, or from a config.json.
"""

from typing import Any, NamedTuple


class Sized(NamedTuple):
    """A model's type in transformers, and its sizes."""

    model_type: str
    sizes: dict[str, Any]


def _gpt2(width: int, layers: int, heads: int) -> Sized:
    return Sized("gpt2", {"n_embd": width, "n_layer": layers, "n_head": heads})


def _opt(width: int, layers: int, heads: int, projected: int | None = None) -> Sized:
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    return Sized("opt", sizes | {"ffn_dim": 4 * width, "word_embed_proj_dim": projected or width})


def _neox(width: int, layers: int, heads: int, words: int = 50304) -> Sized:
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    return Sized("gpt_neox", sizes | {"intermediate_size": 4 * width, "vocab_size": words})


def _bert(kind: str, width: int, layers: int, words: int, **more: Any) -> Sized:
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": width // 64}
    return Sized(kind, sizes | {"intermediate_size": 4 * width, "vocab_size": words} | more)


def _llama(  # noqa: PLR0913, PLR0917 - the sizes of a decoder
    kind: str, width: int, inner: int, layers: int, heads: int, key_heads: int, words: int, **more: Any
) -> Sized:
    sizes = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": key_heads, "vocab_size": words}
    return Sized(kind, sizes | more)


def _t5(width: int, inner: int, layers: int, heads: int, **more: object) -> Sized:
    sizes = {"d_model": width, "d_ff": inner, "num_layers": layers, "num_heads": heads, "d_kv": 64}
    return Sized("t5", sizes | more)


def _vit(width: int, layers: int, patch: int) -> Sized:
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": width // 64}
    return Sized("vit", sizes | {"intermediate_size": 4 * width, "patch_size": patch})


def _whisper(width: int, layers: int, mels: int = 80) -> Sized:
    heads = width // 64
    return Sized("whisper", {
        "d_model": width, "encoder_layers": layers, "decoder_layers": layers,
        "encoder_attention_heads": heads, "decoder_attention_heads": heads, "encoder_ffn_dim": 4 * width,
        "decoder_ffn_dim": 4 * width, "num_mel_bins": mels, "vocab_size": 51866 if mels == 128 else 51865,
    })  # fmt: skip


_TIED = {"tie_word_embeddings": True}
_ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}
_BART = {
    "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072, "encoder_attention_heads": 12, "decoder_attention_heads": 12,
}  # fmt: skip

_DEEPSEEK_LITE = {
    "moe_intermediate_size": 1408, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2,
    "num_experts_per_tok": 6, "first_k_dense_replace": 1,
}  # fmt: skip
_ESM = {
    "max_position_embeddings": 1026,
    "position_embedding_type": "rotary",
    "pad_token_id": 1,
    "mask_token_id": 32,
}

SIZES: dict[str, Sized] = {
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "distilgpt2": _gpt2(768, 6, 12),
    "facebook/opt-125m": _opt(768, 12, 12),
    "facebook/opt-350m": _opt(1024, 24, 16, 512)._replace(
        sizes={**_opt(1024, 24, 16, 512).sizes, "do_layer_norm_before": False}
    ),
    "facebook/opt-1.3b": _opt(2048, 24, 32),
    "facebook/opt-2.7b": _opt(2560, 32, 32),
    "facebook/opt-6.7b": _opt(4096, 32, 32),
    "facebook/opt-13b": _opt(5120, 40, 40),
    "EleutherAI/pythia-70m": _neox(512, 6, 8),
    "EleutherAI/pythia-160m": _neox(768, 12, 12),
    "EleutherAI/pythia-410m": _neox(1024, 24, 16),
    "EleutherAI/pythia-1b": _neox(2048, 16, 8),
    "EleutherAI/pythia-1.4b": _neox(2048, 24, 16),
    "EleutherAI/pythia-2.8b": _neox(2560, 32, 32),
    "EleutherAI/pythia-6.9b": _neox(4096, 32, 32, 50432),
    "EleutherAI/gpt-neox-20b": _neox(6144, 44, 64, 50432),
    "bert-base-uncased": _bert("bert", 768, 12, 30522),
    "bert-base-cased": _bert("bert", 768, 12, 28996),
    "bert-large-uncased": _bert("bert", 1024, 24, 30522),
    "bert-large-cased": _bert("bert", 1024, 24, 28996),
    "roberta-base": _bert("roberta", 768, 12, 50265, **_ROBERTA),
    "roberta-large": _bert("roberta", 1024, 24, 50265, **_ROBERTA),
    "xlm-roberta-base": _bert("xlm-roberta", 768, 12, 250002, **_ROBERTA),
    "xlm-roberta-large": _bert("xlm-roberta", 1024, 24, 250002, **_ROBERTA),
    "distilbert-base-uncased": Sized("distilbert", {}),
    "facebook/esm2_t33_650M_UR50D": Sized(
        "esm", {**_bert("esm", 1280, 33, 33).sizes, "num_attention_heads": 20, **_ESM}
    ),
    "meta-llama/Llama-2-7b-hf": _llama("llama", 4096, 11008, 32, 32, 32, 32000),
    "meta-llama/Llama-2-13b-hf": _llama("llama", 5120, 13824, 40, 40, 40, 32000),
    "meta-llama/Llama-2-70b-hf": _llama("llama", 8192, 28672, 80, 64, 8, 32000),
    "meta-llama/Meta-Llama-3-8B": _llama("llama", 4096, 14336, 32, 32, 8, 128256),
    "meta-llama/Llama-3.1-8B": _llama("llama", 4096, 14336, 32, 32, 8, 128256),
    "meta-llama/Llama-3.1-70B": _llama("llama", 8192, 28672, 80, 64, 8, 128256),
    "meta-llama/Llama-3.2-1B": _llama("llama", 2048, 8192, 16, 32, 8, 128256, head_dim=64, **_TIED),
    "meta-llama/Llama-3.2-3B": _llama("llama", 3072, 8192, 28, 24, 8, 128256, head_dim=128, **_TIED),
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": _llama("llama", 2048, 5632, 22, 32, 4, 32000),
    "HuggingFaceTB/SmolLM2-135M": _llama("llama", 576, 1536, 30, 9, 3, 49152, **_TIED),
    "HuggingFaceTB/SmolLM2-360M": _llama("llama", 960, 2560, 32, 15, 5, 49152, **_TIED),
    "HuggingFaceTB/SmolLM2-1.7B": _llama("llama", 2048, 8192, 24, 32, 32, 49152, **_TIED),
    "mistralai/Mistral-7B-v0.1": _llama("mistral", 4096, 14336, 32, 32, 8, 32000),
    "mistralai/Mixtral-8x7B-v0.1": _llama("mixtral", 4096, 14336, 32, 32, 8, 32000),
    "Qwen/Qwen2.5-0.5B": _llama("qwen2", 896, 4864, 24, 14, 2, 151936, **_TIED),
    "Qwen/Qwen2.5-1.5B": _llama("qwen2", 1536, 8960, 28, 12, 2, 151936, **_TIED),
    "Qwen/Qwen2.5-3B": _llama("qwen2", 2048, 11008, 36, 16, 2, 151936, **_TIED),
    "Qwen/Qwen2.5-7B": _llama("qwen2", 3584, 18944, 28, 28, 4, 152064),
    "Qwen/Qwen3-0.6B": _llama("qwen3", 1024, 3072, 28, 16, 8, 151936, head_dim=128, **_TIED),
    "Qwen/Qwen3-8B": _llama("qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128),
    "deepseek-ai/DeepSeek-V2-Lite": _llama("deepseek_v2", 2048, 10944, 27, 16, 16, 102400, **_DEEPSEEK_LITE),
    "microsoft/phi-2": _llama("phi", 2560, 10240, 32, 32, 32, 51200, partial_rotary_factor=0.4),
    "t5-small": _t5(512, 2048, 6, 8),
    "t5-base": _t5(768, 3072, 12, 12),
    "t5-large": _t5(1024, 4096, 24, 16),
    "google/flan-t5-base": _t5(768, 2048, 12, 12, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "facebook/bart-base": Sized("bart", {**_BART, "vocab_size": 50265}),
    "facebook/bart-large": Sized("bart", {}),
    "google/vit-base-patch16-224": _vit(768, 12, 16),
    "google/vit-large-patch16-224": _vit(1024, 24, 16),
    "openai/whisper-tiny": _whisper(384, 4),
    "openai/whisper-base": _whisper(512, 6),
    "openai/whisper-small": _whisper(768, 12),
    "openai/whisper-medium": _whisper(1024, 24),
    "openai/whisper-large-v3": _whisper(1280, 32, 128),
    "facebook/wav2vec2-base": Sized("wav2vec2", {}),
}


def find_sized(name: str) -> Sized | None:
    """Return the sizes of a model by its name, with or without the organisation before it, in any case."""
    wanted = name.lower()
    for known, sized in SIZES.items():
        if wanted in {known.lower(), known.rpartition("/")[2].lower()}:
            return sized
    return None
