"""What each GPU must hold for a step of a model under DataParallel, predicted without memory.

A genuine step of the genuine DataParallel runs on virtual GPUs whose tensors have sizes and no numbers
(`dpdemo/virtual/numberless.py`); their ledger is what is reported.

    inputs.py      the batch
    losses.py      the loss
    phases.py      which of DataParallel's steps the program is at
    workspaces.py  what CUDA's libraries take beside
    steps.py       one step, as a training loop makes it
    prediction.py  `predict_memory`: one step at one batch size
    search.py      the largest batch that fits
    remedies.py    what would help
    fitting.py     `largest_batch`: the two together
"""

from dpdemo.memory.largest import largest_batch
from dpdemo.memory.predict import predict_memory

__all__ = ["largest_batch", "predict_memory"]
