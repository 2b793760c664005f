"""What DataParallel rests on: copies between GPUs, sums of gradients, and the threads of its replicas."""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch
import torch.cuda.nccl
import torch.nn.parallel

from dpdemo.virtual.patches.applying import Patch, group
from dpdemo.virtual.standins import comm, flattening, replicas, threads

_C: Any = torch._C


def copies() -> list[Patch]:
    """Replace the functions in C++ that copy and add up tensors of several GPUs."""
    return [
        *group(
            _C,
            "DataParallel's seam: absent in CPU builds, and real devices in CUDA builds",
            _broadcast=comm.broadcast,
            _broadcast_out=comm.broadcast_out,
            _broadcast_coalesced=comm.broadcast_coalesced,
            _scatter=comm.scatter,
            _scatter_out=comm.scatter_out,
            _gather=comm.gather,
            _gather_out=comm.gather_out,
            _nccl_reduce=comm.nccl_reduce,
        ),
        *group(
            _C._nn,
            "they make two operators of each tensor",
            flatten_dense_tensors=flattening.flatten,
            unflatten_dense_tensors=flattening.unflatten,
        ),
        *group(torch.cuda.nccl, "NCCL adds gradients up for DataParallel", is_available=comm.can_reduce),
    ]


def replica_threads() -> list[Patch]:
    """Let new threads see the GPUs, and replicas run in a fixed order."""
    parallel_apply = sys.modules["torch.nn.parallel.parallel_apply"]
    functions = sys.modules["torch.nn.parallel._functions"]
    return [
        *group(threading.Thread, "dispatch modes are thread-local", _bootstrap_inner=threads.bootstrap),
        *group(
            parallel_apply, "replicas take turns in device order", threading=replicas.ParallelApplyThreading
        ),
        *group(functions, "a cache of one stream for each device that there was", _streams=None),
    ]
