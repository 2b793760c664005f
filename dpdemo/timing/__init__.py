"""Predict whether more GPUs pay: the bytes and launches of a step, their time, and the break-even.

docs/speed-up.md has the formulae. All but `observe` do without torch.

    links.py      how fast GPUs are joined, with the source of each number
    costs.py      what Python and DDP cost in addition, with the source of each number
    workload.py   the bytes of built-in models, or as the user says them
    observe.py    the bytes and operators of any model, from a genuine step on virtual GPUs
    steps.py      how long a step takes under DataParallel and DDP
    anchors.py    a measured step of one GPU, and what it says of other rows
    predict.py    `predict_speedup`: all of it for some numbers of GPUs
"""

from dpdemo.timing.predict import predict_speedup

__all__ = ["predict_speedup"]
