"""Unequal splits for training scripts: a DataParallel with weights, and losses that are one GPU's.

Needs torch and nothing else of this project's: it is what a script on a real multi-GPU machine imports.
"""

from dpdemo.weighting.losses import LossParts, loss_parts, mean_over_ranks
from dpdemo.weighting.module import WeightedDataParallel

__all__ = ["LossParts", "WeightedDataParallel", "loss_parts", "mean_over_ranks"]
