"""Virtual GPUs for torch: run CUDA programs, DataParallel above all, on a machine without GPUs.

What this is NOT. It says nothing about speed, about CUDA kernels and cuDNN (numbers are the CPU kernels'
numbers), about NCCL, or about races between streams. A program that is right here can still be slow, or racy,
on real GPUs. Memory figures count tensors, not the workspaces of CUDA libraries.

What it is. Inside ``with virtual_gpus(n):`` this process has n CUDA devices. A tensor on one of them is an
ordinary CPU tensor whose storage carries a label that says which; Python sees the label, C++ sees the CPU
tensor. So genuine, unmodified `torch.nn.DataParallel` runs, with real numbers, real gradients and CUDA's own
errors.

How it is made, one mechanism per file, in the order to read them:

    labels.py    where a tensor lives: a label on its storage
    ledger.py    what each GPU holds, and what was moved; blocks.py: what a storage can be for
    accounts.py  what the bytes are for, and which blocks they are, once somebody asks
    caching.py   what the caching allocator would have reserved; recorder.py: event by event;
                 snapshot.py: in the format of PyTorch's viewer
    kinds.py     what a storage is for, and how that comes to light
    dispatch.py  every operator: find the GPU of its operands, run it, label what came out
    direct.py    functions that are quicker to call than their operators
    placing.py   on which GPU an operator's operands are
    mismatch.py  operands on two devices: who may mix, and CUDA's error for those who may not, from
                 cuda_kernels.py, which lists CUDA's kernels, and clashes.py, in their own words
    provenance.py who made a CPU tensor: the user, or C++
    refusals.py  dtypes that CUDA refuses, and what is not deterministic there
    cuda_only.py operators that only CUDA has; sync_batch_norm.py: those of SyncBatchNorm
    rules.py     the operators that need more, each with the reason why
    widening.py  operators that CUDA has for a narrow dtype and the CPU has not
    autograd.py  gradients are where their tensors are
    casting.py   `torch.autocast("cuda")` by CUDA's own lists; casting_cpu.py: the CPU's leaves GPUs alone
    random.py    CUDA's random numbers, a stream for each GPU: see the folder `cuda_random`
    transfer.py  moving tensors, with gradients that travel back
    tensor.py    the methods of `torch.Tensor` that name a device
    wrappers.py  classes of tensors with operators of their own, and fake tensors; flex.py: `flex_attention`
    composites.py functions that compare devices in C++ before any operator runs; ctc.py: `ctc_loss`
    fused.py     operators that are one kernel on CUDA: attention.py, recurrent.py, dropout.py,
                 norms.py; flash.py: on the CPU too; scratch.py: what cuDNN takes beside
    registered.py operators whose code a program wrote; lists.py: operators on lists of tensors
    meta.py      storages with sizes and no numbers; shapes.py: operators that PyTorch cannot run so;
                 memo.py: shapes of results, remembered;
                 known.py, computed.py: numbers that are known all the same; guards.py: readers who need none
    factories.py the functions that make tensors; devices.py, generators.py, legacy.py: names that do too
    storages.py  what saving and loading go through
    distributed.py NCCL's name over gloo; collectives.py: the operators `c10d.*`
    comm.py      the eight functions of `torch._C` on which DataParallel rests
    flattening.py many tensors in one, and apart again
    runtime.py   the functions of `torch._C` behind `torch.cuda` and `torch.accelerator`
    statistics.py blocks and bytes as `torch.cuda.memory_stats` has them
    libraries.py settings of CUDA's libraries
    visible.py   when CUDA is initialised, and which GPUs the program hid from itself by then
    streams.py   streams and events; grouping.py, compiling.py: two more functions that ask C++'s devices
    replicas.py  replicas take turns in device order, and never hang
    threads.py   new threads see the GPUs too
    patches/     everything that is replaced in PyTorch, as tables
    lazy_init.py the one trace in C++, taken back
    block.py     `virtual_gpus(n)`, over state.py, which says what block is open
"""

import torch

from dpdemo.virtual.errors import UnsupportedOpError, VirtualGpuError

TESTED = "2.11 to 2.15"
"""The releases of PyTorch that the suite has passed on."""

try:
    from dpdemo.virtual.block import VirtualGpus, is_active, separate_ledger, suspended, virtual_gpus
except (AttributeError, ImportError) as missing:
    raise VirtualGpuError(
        f"virtual GPUs need a name of PyTorch that torch {torch.__version__} does not have: {missing}. "
        f"They were tested on torch {TESTED}; docs/new-torch.md says where to look."
    ) from missing

__all__ = [
    "UnsupportedOpError", "VirtualGpuError", "VirtualGpus", "is_active", "separate_ledger", "suspended",
    "virtual_gpus",
]  # fmt: skip
