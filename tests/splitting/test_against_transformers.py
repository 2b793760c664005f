"""Tokens against transformers: its samplers' orders, and the padding of its collator."""

import random
from itertools import chain

import pytest
import torch

from dpdemo import simulate

pytestmark = pytest.mark.slow


@pytest.fixture
def utils(monkeypatch):
    """The samplers of transformers' Trainer."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers import trainer_pt_utils

    return trainer_pt_utils


@pytest.fixture
def collator(utils):  # noqa: ARG001 - transformers is there
    """A collator that pads with a tokenizer of one word."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

    names = {"unk_token": "word", "pad_token": "[PAD]"}
    words = WordLevel({"[PAD]": 0, "word": 1}, unk_token=names["unk_token"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), **names)
    return lambda **options: DataCollatorWithPadding(tokenizer, **options)


def some_lengths(number):
    rng = random.Random(number)  # noqa: S311 - lengths, not secrets
    return [rng.randint(1, 300) for _ in range(number)]


def features(lengths):
    return [{"input_ids": [1] * length, "attention_mask": [1] * length} for length in lengths]


def tokens_of(report):
    """The tokens and padded tokens of each device in each batch."""
    return [(batch.tokens, batch.padded) for batch in report.tokens.each_batch()]


def collated(collate, chunks_of, batches):
    """The same, counted in the tensors that the collator makes."""
    found = []
    for batch in batches:
        chunks = [chunk for chunk in chunks_of(collate(features(batch))["attention_mask"]) if len(chunk)]
        found.append(([int(chunk.sum()) for chunk in chunks], [chunk.numel() for chunk in chunks]))
    return found


@pytest.mark.parametrize(
    ("number", "batch_size", "accumulate"), [(1, 4, 1), (37, 4, 1), (999, 8, 2), (5000, 16, 1)]
)
def test_grouping_is_the_order_of_its_sampler(utils, collator, number, batch_size, accumulate):
    lengths = some_lengths(number)
    sampler = utils.LengthGroupedSampler(
        batch_size * accumulate, lengths=lengths, generator=torch.Generator().manual_seed(5)
    )
    order = [lengths[index] for index in sampler]
    batches = [order[start : start + batch_size] for start in range(0, number, batch_size)]
    report = simulate(
        lengths=lengths, gpus=3, batch_size=batch_size, group_by_length=True, seed=5, accumulate=accumulate
    )
    assert tokens_of(report) == collated(collator(), lambda mask: mask.chunk(3), batches)


@pytest.mark.parametrize("sampler_drop_last", [False, True])
def test_grouping_over_ranks_is_the_order_of_its_distributed_sampler(utils, collator, sampler_drop_last):
    lengths = some_lengths(333)
    batches = []
    for rank in range(4):
        sampler = utils.DistributedLengthGroupedSampler(
            8, lengths=lengths, num_replicas=4, rank=rank, seed=5, drop_last=sampler_drop_last
        )
        ours = [lengths[index] for index in sampler]
        batches.append(
            collated(collator(), lambda mask: [mask], [ours[i : i + 8] for i in range(0, len(ours), 8)])
        )
    report = simulate(
        lengths=lengths, gpus=4, batch_size=8, strategy="ddp", group_by_length=True, seed=5,
        sampler_drop_last=sampler_drop_last,
    )  # fmt: skip
    expected = [
        tuple(list(chain(*lists)) for lists in zip(*ranks, strict=True))
        for ranks in zip(*batches, strict=True)
    ]
    assert tokens_of(report) == expected


@pytest.mark.parametrize("pad_to", ["batch", 300])
def test_padding_is_that_of_its_collator(collator, pad_to):
    lengths = some_lengths(100)
    options = {} if pad_to == "batch" else {"padding": "max_length", "max_length": pad_to}
    batches = [lengths[start : start + 12] for start in range(0, 100, 12)]
    report = simulate(lengths=lengths, gpus=5, batch_size=12, pad_to=pad_to)
    assert tokens_of(report) == collated(collator(**options), lambda mask: mask.chunk(5), batches)
