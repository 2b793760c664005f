"""The memory of each GPU in a step of a model under DataParallel, predicted without allocating it.

The genuine DataParallel makes a step on virtual GPUs whose tensors have shapes and no numbers;
their ledger is the result.

    inputs.py     the batch; hardware.py: the GPUs
    steps.py      a training step
    predict.py    `predict_memory`: one step at one batch size
    search.py     the search for the largest number that fits
    remedies.py   changes that would help
    largest.py    `largest_batch`: the search, and remedies
    leftovers.py, uncompiled.py: caches and the compiler stay out of a prediction
"""

from dpdemo.memory.largest import largest_batch
from dpdemo.memory.predict import predict_memory

__all__ = ["largest_batch", "predict_memory"]
