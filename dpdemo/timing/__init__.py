"""Predict from which step of one GPU on several GPUs pay: bytes and launches of a step, and their time.

docs/speed-up.md has the formulae and the source of every number. Only `observe.py` needs torch.
"""

from dpdemo.timing.predict import predict_speedup

__all__ = ["predict_speedup"]
