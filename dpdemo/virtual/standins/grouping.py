"""Sorting tensors by device and dtype, as optimizers and gradient clipping do for foreach kernels."""

from __future__ import annotations

from typing import Any

import torch

Groups = dict[tuple[torch.device, torch.dtype | None], tuple[list[list[Any]], list[int]]]


def group_by_device_and_dtype(tensorlistlist: list[list[Any]], with_indices: bool = False) -> Groups:
    """Stand in for the function of this name in torch/csrc/Module.cpp, which asks C++'s devices."""
    groups: Groups = {}
    for position, tensor in enumerate(tensorlistlist[0]):
        lists, indices = groups.setdefault((tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], []))
        for group, column in zip(lists, tensorlistlist, strict=True):
            if column:  # an optimizer without momentum passes an empty list
                group.append(column[position])
        if with_indices:
            indices.append(position)
    return groups
