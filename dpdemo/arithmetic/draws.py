"""Which rank draws which samples of an unshuffled epoch, by the rule of each library.

A rule takes the samples, the ranks, the batch size that the loader was made with, and `drop_last`; it returns
for each rank its batches, as sample numbers. Each names the file that it describes, and the version that
`tests/arithmetic/test_draws.py` compares it with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Batches = list[list[int]]
Find = Callable[[int, int, int, bool], list[Batches]]
RULES: dict[str, "Rule"] = {}


@dataclass(frozen=True)
class Rule:
    """The rule of one library: its source, and the function."""

    name: str
    source: str
    find: Find


def rule(name: str, source: str) -> Callable[[Find], Find]:
    """Register the rule of a library."""

    def register(find: Find) -> Find:
        RULES[name] = Rule(name, source, find)
        return find

    return register


@rule("torch", "torch 2.13.0, torch/utils/data/distributed.py, DistributedSampler(shuffle=False)")
def torch(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Give each rank every n-th position of an order that is padded with its own beginning."""
    padded = -(-samples // ranks) * ranks
    return [
        _cut([place % samples for place in range(rank, padded, ranks)], batch, drop_last)
        for rank in range(ranks)
    ]


@rule("accelerate", "accelerate 1.15.0, data_loader.py, BatchSamplerShard(even_batches=True)")
def accelerate(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Deal whole batches in turn; the last round is filled up from the first one."""
    whole = batch * ranks
    total = samples // whole * whole if drop_last else -(-samples // whole) * whole
    first = min(samples, whole)
    order = [place if place < samples else (place - samples) % first for place in range(total)]
    return _in_turn(order, ranks, batch)


@rule("accelerate-split", "accelerate 1.15.0, data_loader.py, BatchSamplerShard(split_batches=True)")
def accelerate_split(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Cut every batch into a slice for each rank: the batch size is that of all ranks.

    Raises:
        ValueError: if the ranks do not divide it.

    """
    if batch % ranks:
        raise ValueError(f"expected a batch size that {ranks} ranks divide, got {batch}")
    total = samples // batch * batch if drop_last else -(-samples // batch) * batch
    first = min(samples, batch)
    order = [place if place < samples else (place - samples) % first for place in range(total)]
    return _in_turn(order, ranks, batch // ranks)


@rule("accelerate-uneven", "accelerate 1.15.0, data_loader.py, BatchSamplerShard(even_batches=False)")
def accelerate_uneven(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Deal whole batches in turn, and fill nothing up: some ranks make a step less."""
    whole = batch * ranks
    return _in_turn(list(range(samples // whole * whole if drop_last else samples)), ranks, batch)


@rule("accelerate-dispatch", "accelerate 1.15.0, data_loader.py, DataLoaderDispatcher")
def accelerate_dispatch(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Slice what rank 0 reads, a batch for each rank; rows of the first are added where ranks do not divide.

    With `drop_last`, the last round is left out unless there is a whole batch for each rank.
    """
    found: list[Batches] = [[] for _ in range(ranks)]
    total = samples // (batch * ranks) * batch * ranks if drop_last else samples
    for start in range(0, total, batch * ranks):
        rows = range(start, min(total, start + batch * ranks))
        size = -(-len(rows) // ranks)
        filled = [*rows, *range(min(ranks, samples))] if len(rows) % ranks else list(rows)
        for rank in range(ranks):
            found[rank].append(filled[rank * size : (rank + 1) * size])
    return found


@rule("lightning-predict", "lightning 2.6.6, pytorch/overrides/distributed.py, UnrepeatedDistributedSampler")
def lightning_predict(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Give each rank every n-th sample, without padding."""
    return [_cut(list(range(rank, samples, ranks)), batch, drop_last) for rank in range(ranks)]


@rule("datasets", "datasets 5.2.0, distributed.py, split_dataset_by_node of a Dataset")
def datasets(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Give each rank a stretch of the samples, one more to the first ones where the ranks do not divide."""
    least, more = divmod(samples, ranks)
    starts = [rank * least + min(rank, more) for rank in range(ranks + 1)]
    return [_cut(list(range(starts[rank], starts[rank + 1])), batch, drop_last) for rank in range(ranks)]


@rule("datasets-stream", "datasets 5.2.0, iterable_dataset.py, shards that the ranks do not divide")
def datasets_stream(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Keep every n-th sample on each rank, all of which read the whole stream."""
    return [_cut(list(range(rank, samples, ranks)), batch, drop_last) for rank in range(ranks)]


@rule("fastai", "fastai 2.8.12, distributed.py, DistributedDL.get_idxs")
def fastai(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Give each rank a stretch of an order that is padded with its own beginning."""
    share = -(-samples // ranks)
    return [
        _cut([place % samples for place in range(rank * share, (rank + 1) * share)], batch, drop_last)
        for rank in range(ranks)
    ]


@rule("timm-ordered", "timm 1.0.31, data/distributed_sampler.py, OrderedDistributedSampler")
def timm_ordered(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Draw as torch's DistributedSampler does without a shuffle."""
    return torch(samples, ranks, batch, drop_last)


@rule("ignite", "pytorch-ignite 0.5.5, distributed/auto.py, auto_dataloader(shuffle=False)")
def ignite(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Divide the batch size by the ranks, rounded down; torch's DistributedSampler splits.

    Raises:
        ValueError: if a rank would have no row.

    """
    if batch < ranks:
        raise ValueError(f"expected a batch size of at least {ranks}, a row for each rank, got {batch}")
    return torch(samples, ranks, batch // ranks, drop_last)


@rule("grain", "grain 0.2.18, python/samplers.py, IndexSampler in shards, one epoch, Batch after it")
def grain(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Give each rank a stretch of the samples, of which it reads as many as the smallest rank has."""
    least, more = divmod(samples, ranks)
    starts = [rank * least + min(rank, more) for rank in range(ranks)]
    return [_cut(list(range(start, start + least)), batch, drop_last) for start in starts]


@rule("streaming", "mosaicml-streaming 0.13.0, base/partition/orig.py, StreamingDataset on one node")
def streaming(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Deal the samples to the ranks in turn, after padding with some of the last ones.

    With fewer samples than that takes, the padding comes from the beginning.
    """
    short = -samples % ranks
    first = samples - ranks - short + 1  # the last samples, but for those that the same ranks would repeat
    padding = range(first, first + short) if first >= 0 else [place % samples for place in range(short)]
    order = [*range(samples), *padding] if samples else []
    return [_cut(order[rank::ranks], batch, drop_last) for rank in range(ranks)]


@rule("litdata", "litdata 0.2.76, utilities/shuffle.py, StreamingDataset: several ranks drop by default")
def litdata(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Split the samples into one run of whole batches per rank, all equally long; leave the rest out."""
    return _stretches(samples, ranks, batch, drop_last or ranks > 1)


@rule("litdata-uneven", "litdata 0.2.76, utilities/shuffle.py, StreamingDataset(drop_last=False)")
def litdata_uneven(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    """Split the samples into one run of whole batches per rank; the last rank also takes the rest."""
    return _stretches(samples, ranks, batch, drop_last)


def _stretches(samples: int, ranks: int, batch: int, drop_last: bool) -> list[Batches]:
    share = samples // batch // ranks * batch
    ends = [share * (rank + 1) for rank in range(ranks)]
    ends[-1] = ends[-1] if drop_last else samples
    return [_cut(range(share * rank, end), batch, drop_last) for rank, end in enumerate(ends)]


def _cut(order: Sequence[int], batch: int, drop_last: bool) -> Batches:
    """Cut what one rank draws into batches."""
    found = [list(order[start : start + batch]) for start in range(0, len(order), batch)]
    return [rows for rows in found if len(rows) == batch] if drop_last else found


def _in_turn(order: Sequence[int], ranks: int, batch: int) -> list[Batches]:
    """Deal batches of an order to ranks in turn."""
    found: list[Batches] = [[] for _ in range(ranks)]
    for number, start in enumerate(range(0, len(order), batch)):
        found[number % ranks].append(list(order[start : start + batch]))
    return found
