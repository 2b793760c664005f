"""Virtual GPUs for torch: run CUDA programs, DataParallel above all, on a machine without GPUs.

What this is NOT. It says nothing about speed, about CUDA kernels and cuDNN (numbers are the CPU kernels'
numbers), about NCCL, or about races between streams. A program that is right here can still be slow, or racy,
on real GPUs. Memory figures count tensors, not the workspaces of CUDA libraries.

What it is. Inside ``with virtual_gpus(n):`` this process has n CUDA devices. A tensor on one of them is an
ordinary CPU tensor whose storage carries a label that says which; Python sees the label, C++ sees the CPU
tensor. So genuine, unmodified `torch.nn.DataParallel` runs, with real numbers, real gradients and CUDA's own
errors.

How it is made, one mechanism per file, in the order to read them:

    labels.py      where a tensor lives: a label on its storage
    ledger.py      what each GPU holds, and what was moved; accounts.py: what the bytes are for, and kinds.py:
                   how that comes to light; caching.py: the caching allocator's view
    transfer.py    moving tensors, with gradients that travel back
    applying.py    `@stands_in`: how an attribute of PyTorch is replaced, and put back; signatures.py: whether
                   what goes around a function takes all its calls
    block.py       `virtual_gpus(n)`, over state.py, which knows the block that is open; gpus.py: its figures
    distributed.py NCCL's name over gloo, and process_groups.py: its groups

    ops/           every operator passes through dispatch.py, which finds the GPU of its operands, runs it
                   and labels the results. rules.py: the operators that need more, each with the reason why;
                   mismatch.py: operands on two devices, and provenance.py: whether the user or C++ made a
                   CPU tensor; meta.py: storages with sizes and no numbers; casting.py: autocast by CUDA's
                   lists; fused.py: operators that are one kernel on CUDA (attention.py, recurrent.py)
    cuda_random/   CUDA's random numbers, a stream for each GPU
    patches/       the replacements themselves: comm.py (the functions on which DataParallel rests),
                   tensor.py, storages.py, factories.py, autograd.py, cuda_devices.py, cuda_memory.py, …
"""

import torch

from dpdemo.virtual.errors import TESTED, UnsupportedOpError, VirtualGpuError

try:
    from dpdemo.virtual.block import is_active, separate_ledger, suspended, virtual_gpus
    from dpdemo.virtual.gpus import VirtualGpus
except (AttributeError, ImportError) as missing:
    raise VirtualGpuError(
        f"virtual GPUs need a name of PyTorch that torch {torch.__version__} does not have: {missing}. "
        f"They were tested on torch {TESTED[0]} to {TESTED[-1]}; CONTRIBUTING.md says where to look."
    ) from missing

__all__ = [
    "UnsupportedOpError", "VirtualGpuError", "VirtualGpus", "is_active", "separate_ledger", "suspended",
    "virtual_gpus",
]  # fmt: skip
