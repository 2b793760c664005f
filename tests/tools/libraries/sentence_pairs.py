"""A small sentence transformer and its data, made without a download."""

import pytest
import torch

transformers = pytest.importorskip("transformers")
HIDDEN_SIZE = 16


def save_reader(folder):
    """Save a tokenizer of single letters with a small BERT, as a sentence transformer reads them."""
    tokenizers = pytest.importorskip("tokenizers")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz"]
    words = tokenizers.models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(names),
        hidden_size=HIDDEN_SIZE,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    transformers.BertModel(config).save_pretrained(folder)


def sentence_model(folder, device):
    sentences = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    parts = [modules.Transformer(str(folder)), modules.Pooling(HIDDEN_SIZE)]
    return sentences.SentenceTransformer(modules=parts, device=device)


def rated_pairs():
    datasets = pytest.importorskip("datasets")
    rows = {
        "sentence1": ["a b c", "d e", "f", "g h", "i j", "k l"] * 2,
        "sentence2": ["b c", "e f", "g h i", "m n", "o", "p q"] * 2,
        "score": [0.1, 0.9, 0.4, 0.6, 0.2, 0.7] * 2,
    }
    return datasets.Dataset.from_dict(rows)
