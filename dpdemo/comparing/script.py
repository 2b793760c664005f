"""Writing a training script for torchrun that does what a config says, with nothing but torch."""

import json
import shlex
from pathlib import Path

from dpdemo.config.fields import Config
from dpdemo.config.targets import parse_target
from dpdemo.errors import UsageError
from dpdemo.models.source import source_of_data, source_of_model

_SCRIPT = '''\
"""Train a model with DistributedDataParallel, a process for each GPU, or on the CPU where there is none.

    torchrun --standalone --nproc-per-node 3 {name}

On several machines, on each of them:

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29400 {name}
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

DATA_SIZE = {data_size}
BATCH_SIZE = {batch_size}  # {meaning}
SEED = {seed}


{model}

def make_data():
    generator = torch.Generator().manual_seed(SEED)
    return {data}


def main():
    use_gpus = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_gpus else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_gpus else torch.device("cpu")
{global_check}
    torch.manual_seed(SEED)  # the same weights on every rank
    model = make_model().to(device, torch.{dtype})
    model = DistributedDataParallel(model, device_ids=[device.index] if use_gpus else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    data = make_data()
    sampler = DistributedSampler(data, shuffle={shuffle}, seed=SEED, drop_last={sampler_drop_last})
    loader = DataLoader(data, batch_size={rank_batch}, sampler=sampler, drop_last={drop_last})

    for epoch in range(1):
        sampler.set_epoch(epoch)  # or every epoch is shuffled alike
        num_steps = num_samples = 0
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch.to(device)).float().pow(2).mean()
            loss.backward()  # averages the gradients over all ranks
            optimizer.step()
            num_steps += 1
            num_samples += len(batch)
        drawn = torch.tensor(num_samples, device=device)
        dist.all_reduce(drawn)
        if rank == 0:
            print(f"epoch {{epoch}}: {{num_steps}} steps, {{drawn}} samples drawn by {{world_size}} ranks")
    dist.destroy_process_group()
    if not use_gpus:
        # gloo's threads may still hold tensors, and an orderly exit that meets them aborts (pytorch#179291)
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
'''

_GLOBAL_CHECK = """\
    if BATCH_SIZE % world_size:
        raise SystemExit(f"expected ranks that divide {BATCH_SIZE}, got {world_size}")
"""

_OWN = """\
def make_model():
    import importlib.util
    import inspect
    import pkgutil

{load}
    if isinstance(found, nn.Module):
        return found
    values = {values}
    wanted = inspect.signature(found).parameters
    made = found(**{{key: value for key, value in values.items() if key in wanted}})
    return made[0] if isinstance(made, tuple) else made
"""
_FROM_FILE = """\
    spec = importlib.util.spec_from_file_location({stem!r}, {file!r})
    module = importlib.util.module_from_spec(spec)
    sys.modules[{stem!r}] = module
    spec.loader.exec_module(module)
"""
_ONE_CLASS = """\
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    (found,) = [value for value in own if isinstance(value, type) and issubclass(value, nn.Module)]"""


def script(config: Config, name: str = "train_ddp.py") -> str:
    """Write the script for a config.

    Raises:
        UsageError: for a batch that does not stand in dimension 0, which a DataLoader cannot make.

    """
    if config.dim:
        raise UsageError(
            f"expected the batch in dimension 0, as a DataLoader makes it, got {config.dim} - at key `dim`",
            hint="leave dim out",
        )
    is_global = config.batch_size_is == "global"
    return _SCRIPT.format(
        name=_in_docstring(name),
        data_size=config.data_size,
        batch_size=config.batch_size,
        meaning="over all ranks together" if is_global else "of each rank",
        seed=config.seed,
        model=_model(config),
        data=source_of_data(config),
        global_check=_GLOBAL_CHECK if is_global else "",
        dtype=config.dtype,
        shuffle=config.shuffle,
        sampler_drop_last=config.sampler_drop_last,
        drop_last=config.drop_last,
        rank_batch="BATCH_SIZE // world_size" if is_global else "BATCH_SIZE",
    )


def _in_docstring(name: str) -> str:
    """Write a file's name as a shell takes it, and so that it cannot end the docstring that it stands in."""
    return json.dumps(shlex.quote(name), ensure_ascii=False)[1:-1]


def _model(config: Config) -> str:
    if config.is_builtin:
        return source_of_model(config)
    return _OWN.format(load=_load(config.model), values=config.model_dump(exclude={"gpus"}))


def _load(model: str) -> str:
    """Write how what a target names is found."""
    target = parse_target(model, "key `model`")
    if not target.file:
        return f"    found = pkgutil.resolve_name({model!r})"
    found = f"    found = module.{target.name}" if target.name else _ONE_CLASS
    return _FROM_FILE.format(file=target.file, stem=Path(target.file).stem) + found
