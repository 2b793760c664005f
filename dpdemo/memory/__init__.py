"""The memory of each GPU in a step of a model, predicted without allocating it.

The genuine DataParallel, DistributedDataParallel or fully_shard makes a step on virtual GPUs whose tensors
have shapes and no numbers; their ledger is the result.

    inputs.py     the batch; hardware.py: the GPUs
    steps.py      a training step; alike.py: replicas that have sizes only; again.py: what is made once
    trace.py      the log of a step, its replay, and sizes at other batches; books.py: a GPU's memory by it
    case.py       all that a prediction depends on; reporting.py: the report of a step
    predict.py    `predict_memory`: one step at one batch size
    search.py     the search for the largest number that fits
    remedies.py   changes that would help
    largest.py    `largest_batch`: the search, and remedies
    ranks.py      one rank of DistributedDataParallel or fully_shard
    wrapping.py   its wrapper, checkpoints and adapters; blocks.py: the model's blocks
    strategies.py `compare_strategies`: a report for each
    published.py  what others measured, and how far off predictions are
    leftovers.py, uncompiled.py: caches and the compiler stay out of a prediction
"""

from dpdemo.memory.largest import largest_batch
from dpdemo.memory.predict import predict_memory
from dpdemo.memory.strategies import compare_strategies

__all__ = ["compare_strategies", "largest_batch", "predict_memory"]
