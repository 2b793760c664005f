"""Virtual GPUs for torch: run CUDA programs, DataParallel above all, on a machine without GPUs.

What this is NOT. It says nothing about speed, about CUDA kernels and cuDNN (numbers are the CPU kernels'
numbers), about NCCL, or about races between streams. A program that is right here can still be slow, or racy,
on real GPUs. Memory figures count tensors, not the workspaces of CUDA libraries.

What it is. Inside ``with virtual_gpus(n):`` this process has n CUDA devices. A tensor on one of them is an
ordinary CPU tensor whose storage carries a label that says which; Python sees the label, C++ sees the CPU
tensor. So genuine, unmodified `torch.nn.DataParallel` runs, with real numbers, real gradients and CUDA's own
errors.

How it is made, one mechanism a file, in the order to read them:

    labels.py    where a tensor lives: a label on its storage
    ledger.py    what each GPU holds, of which kind, and what was moved
    kinds.py     how it comes to light what a storage is for
    dispatch.py  every operator: find the GPU of its operands, run it, label what came out
    mismatch.py  operands on two devices: who may mix, and CUDA's error for those who may not
    rules.py     the operators that need more, each with the reason why
    widening.py  operators that CUDA has for a narrow dtype and the CPU has not
    autograd.py  gradients are where their tensors are
    casting.py   `torch.autocast("cuda")` by CUDA's own lists
    random.py    a generator for each GPU
    transfer.py  moving tensors, with gradients that travel back
    tensor.py    the methods of `torch.Tensor` that name a device
    fused.py     operators that are one kernel on CUDA: attention.py, recurrent.py, dropout.py
    numberless.py storages with sizes and no numbers; shapes.py: operators that PyTorch cannot run so
    factories.py the functions that make tensors; devices.py, generators.py, legacy.py: names that do too
    storages.py  what saving and loading go through
    comm.py      the eight functions of `torch._C` on which DataParallel rests
    runtime.py   the functions of `torch._C` behind `torch.cuda` and `torch.accelerator`
    streams.py   streams and events; grouping.py, compiling.py: two more functions that ask C++'s devices
    replicas.py  replicas take turns in device order, and never hang
    threads.py   new threads see the GPUs too
    patches.py   everything that is replaced in PyTorch, as one table
    lazy_init.py the one trace in C++, taken back
    block.py     `virtual_gpus(n)`, over state.py, which says what block is open
"""

from dpdemo.virtual.block import VirtualGpus, is_active, separate_ledger, virtual_gpus
from dpdemo.virtual.errors import UnsupportedOpError, VirtualGpuError

__all__ = [
    "UnsupportedOpError", "VirtualGpuError", "VirtualGpus", "is_active", "separate_ledger", "virtual_gpus",
]  # fmt: skip
