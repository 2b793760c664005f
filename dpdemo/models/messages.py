"""The errors that people paste into a search box: what each means, and what to do.

The rules know the errors of DataParallel (`checking/errors.py`); those of torch.distributed and CUDA are
explained here. `dpdemo check --traceback` answers from this table, `exec` prints its advice under the error
that ends a program or a rank, and docs/errors.md is written from it.
"""

import re
from typing import NamedTuple


class Known(NamedTuple):
    """An error that no rule of `check` is about."""

    text: str
    pattern: str
    means: str
    todo: str
    is_of_ranks: bool = False
    """Whether only a rank has it for this reason."""

    def words_in(self, text: str) -> str:
        """Return the words of a text by which the error is known; "" where it has none of them."""
        found = re.search(self.pattern, text)
        return found[0] if found else ""


OF_OTHERS = (
    Known(
        "torch.multiprocessing.spawn.ProcessRaisedException: -- Process 0 terminated with the following",
        r"ProcessRaisedException",
        "a process that `mp.spawn` started failed; the message ends with its traceback.",
        "look for the cause in that traceback; a program that starts its ranks itself is run by `dpdemo exec "
        "--gpus 2`, without `--ranks`.",
        is_of_ranks=True,
    ),
    Known(
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new "
        "one. This error indicates that your module has parameters that were not used in producing loss.",
        r"Expected to have finished reduction in the prior iteration",
        "DistributedDataParallel waits for a gradient of every parameter, and some got none in the last "
        "step.",
        "use every parameter in the loss, freeze what is not trained, or pass "
        "`find_unused_parameters=True`; `TORCH_DISTRIBUTED_DEBUG=DETAIL` names the parameters.",
    ),
    Known(
        "RuntimeError: Expected to mark a variable ready only once.",
        r"Expected to mark a variable ready only once",
        "a parameter got its gradient twice in one backward pass: it is used by two reentrant checkpoints, "
        "or the model was called twice before backward.",
        "use `checkpoint(..., use_reentrant=False)`, or `static_graph=True` where each step is alike.",
    ),
    Known(
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, ...) "
        "ran for 600000 milliseconds before timing out.",
        r"Watchdog caught collective operation timeout|Watchdog.*timeout",
        "a rank waited ten minutes in a collective that another rank did not begin: the ranks took "
        "different branches, or had different numbers of batches.",
        "`dpdemo exec --ranks 2 train.py` stops at the first such collective, and names the line of each "
        "rank.",
    ),
    Known(
        "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 4 params, while rank 1 has "
        "inconsistent 2 params.",
        r"DDP expects same model across all ranks|appears not to match sizes of the same param",
        "the ranks built different models.",
        "build the model from the same configuration on every rank; load checkpoints before wrapping.",
    ),
    Known(
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
        "CollectiveFingerPrint(OpType=ALLREDUCE, ...), but Rank 1 is running collective: ...",
        r"Detected mismatch between collectives on ranks",
        "the ranks began different collectives, or the same one with other shapes.",
        "make all ranks take the same branch; `dpdemo exec --ranks 2 train.py` names the lines of both.",
    ),
    Known(
        "RuntimeError: Distributed package doesn't have NCCL built in",
        r"doesn't have NCCL built in",
        "this build of torch has no CUDA (a CPU build, macOS or Windows), and the program asks for backend "
        "`nccl`.",
        "`dpdemo exec --ranks 2 train.py` runs it as it is; or choose the backend `gloo`.",
    ),
    Known(
        "torch.distributed.DistBackendError: NCCL error: invalid usage. Duplicate GPU detected : rank 1 and "
        "rank 0 both on CUDA device 17000",
        r"Duplicate GPU detected",
        "two ranks use one GPU, mostly because each took `cuda:0`.",
        '`torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before anything is put on a GPU.',
    ),
    Known(
        "RuntimeError: No backend type associated with device type cpu",
        r"No backend type associated with device type|Tensors must be CUDA and dense",
        "a tensor of the host was given to a process group of NCCL, which moves tensors of GPUs alone.",
        'NCCL takes no tensors of the host: use .cuda(), or initialize with `backend="cpu:gloo,cuda:nccl"`.',
    ),
    Known(
        "ValueError: Default process group has not been initialized, please make sure to call "
        "init_process_group.",
        r"Default process group has not been initialized",
        "a function of torch.distributed was called before `init_process_group`, or after "
        "`destroy_process_group`.",
        "call `init_process_group` first; guard with `dist.is_initialized()` what also runs in one process.",
    ),
    Known(
        "ValueError: trying to initialize the default process group twice!",
        r"initialize the default process group twice",
        "`init_process_group` was called again in a process that has a group.",
        "call it once a process; a launcher such as accelerate or Lightning calls it for you.",
    ),
    Known(
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
        "RANK expected, but not set",
        r"environment variable \w+ expected, but not set|"
        r"KeyError: '(?:LOCAL_|GROUP_)?(?:RANK|WORLD_SIZE)'|KeyError: 'MASTER_(?:ADDR|PORT)'",
        "the program is one of several ranks, and was started by `python` alone.",
        "start it by `torchrun --nproc-per-node 2 train.py`, or `dpdemo exec --ranks 2 train.py`.",
    ),
    Known(
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients "
        "joined.",
        r"waiting for clients",
        "fewer processes came than the world size says.",
        "start as many ranks as `WORLD_SIZE`, each with the same `MASTER_ADDR` and `MASTER_PORT`.",
    ),
    Known(
        "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, "
        "EADDRINUSE: address already in use",
        r"EADDRINUSE|[Aa]ddress already in use",
        "another job, perhaps one that did not end, holds the port.",
        "end it, or take another port: `torchrun --standalone`, or `--master-port 29501`.",
    ),
    Known(
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
        "[127.0.0.1]:29500",
        r"Connection closed by peer|Connection reset by peer|recvValue failed",
        "another rank has ended; this error is the consequence and not the cause.",
        "look for the first traceback of another rank, or a rank that was killed for want of memory.",
    ),
    Known(
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 1",
        r"process \d+ terminated with (exit code|signal)|ChildFailedError",
        "a rank failed; the launcher tells only that it did.",
        "the rank's own traceback stands above; SIGKILL mostly means that the host's memory ran out.",
    ),
    Known(
        "RuntimeError: DistributedDataParallel is not needed when a module doesn't have any parameters that "
        "require a gradient.",
        r"DistributedDataParallel is not needed when a module",
        "the module has no parameter to train, or all are frozen.",
        "do not wrap it; wrap what is trained.",
    ),
    Known(
        "AttributeError: 'DistributedDataParallel' object has no attribute 'fc'",
        r"'(DistributedDataParallel|FullyShardedDataParallel)' object has no attribute",
        "the wrapper has the model as its `module`.",
        "`model.module.fc`; calls of forward still go through the wrapper, or gradients are not reduced.",
    ),
    Known(
        "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
        "operation",
        r"needed for gradient computation has been modified by an inplace",
        "a tensor that backward needs was changed after it was used. DistributedDataParallel does that to "
        "buffers (BatchNorm's) where the model is called twice before backward.",
        "`DistributedDataParallel(model, broadcast_buffers=False)`, one call with both batches joined, or "
        "no in-place operation.",
    ),
    Known(
        "FileNotFoundError: [Errno 2] No such file or directory: 'model.pt'",
        r"FileNotFoundError",
        "the file does not exist, or another rank has not written it yet.",
        "if another rank writes it: dist.barrier() between writing and reading.",
        is_of_ranks=True,
    ),
    Known(
        "ValueError: SyncBatchNorm expected input tensor to be on GPU",
        r"SyncBatchNorm expected input tensor to be on",
        "SyncBatchNorm computes on GPUs alone.",
        "move model and batch to the GPU; for a CPU run do not convert the model.",
    ),
    Known(
        'RuntimeError: Error(s) in loading state_dict: While copying the parameter named "weight", [...] '
        "aten.copy_.default got mixed torch.Tensor and DTensor",
        r"While copying the parameter named[\s\S]*got mixed torch\.Tensor and DTensor",
        "the model is sharded, and the checkpoint has whole tensors.",
        "load it before `fully_shard`, or by `torch.distributed.checkpoint.state_dict.set_model_state_dict("
        "model, state, options=StateDictOptions(full_state_dict=True))`.",
    ),
    Known(
        "RuntimeError: Error(s) in loading state_dict: size mismatch for 0.weight: copying a param with "
        "shape torch.Size([50, 8]) from checkpoint, the shape in current model is torch.Size([64, 8]).",
        r"size mismatch for [\w.]+: copying a param with shape",
        "the checkpoint was saved of a model with other sizes, or has the shards of one rank.",
        "build the model with the sizes of the checkpoint, or take these keys out and load the rest with "
        "`strict=False`; save shards as a whole: `get_model_state_dict(model, "
        "options=StateDictOptions(full_state_dict=True))`.",
    ),
    Known(
        "RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor, need to convert all "
        "torch.Tensor to DTensor before calling distributed operators!",
        r"got mixed torch\.Tensor and DTensor",
        "an operator got a sharded parameter and a plain tensor: the model was called past its wrapper, or "
        "a tensor of the program's own was not distributed.",
        "call the wrapped module itself; distribute the tensor by `distribute_tensor` or "
        "`DTensor.from_local`.",
    ),
    Known(
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
        "you must use the 'spawn' start method",
        r"Cannot re-initialize CUDA in forked subprocess",
        "the parent process used a GPU before it forked.",
        '`torch.multiprocessing.set_start_method("spawn")`, or touch no GPU before the processes start.',
    ),
    Known(
        "RuntimeError: CUDA error: invalid device ordinal",
        r"invalid device ordinal",
        "the program names a GPU that is not visible.",
        "compare `torch.cuda.device_count()` and `CUDA_VISIBLE_DEVICES`, which renumbers GPUs from 0; "
        "`dpdemo exec --gpus 4 train.py` shows four.",
    ),
    Known(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        r"CUDA out of memory",
        "a GPU is full; under DataParallel mostly cuda:0, which holds outputs, loss and optimizer too.",
        "`dpdemo memory --model model.py:Net --gpus 4 --gpu-memory 24GiB --fit` tells what fits.",
    ),
    Known(
        "RuntimeError: Torch not compiled with CUDA enabled",
        r"Torch not compiled with CUDA enabled",
        "this build of torch is for the CPU.",
        "`dpdemo exec --gpus 2 train.py` runs the program on virtual GPUs; for real ones install a build "
        "for CUDA.",
    ),
)
"""Errors of torch.distributed and of CUDA; a test looks for the words of most of them in PyTorch."""


def find_known(text: str, *, is_of_rank: bool = True) -> Known | None:
    """Return the first entry of `OF_OTHERS` whose words are in the text."""
    known = (error for error in OF_OTHERS if is_of_rank or not error.is_of_ranks)
    return next((error for error in known if error.words_in(text)), None)
