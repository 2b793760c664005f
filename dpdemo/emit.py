"""Writing a training script for torchrun that does what a config says, with nothing but torch."""

from pathlib import Path

from dpdemo.catalogue import BLOCK, CHANNELS, EMBEDDING, MODELS, VOCABULARY
from dpdemo.config import Config
from dpdemo.errors import RunError, UsageError

_SCRIPT = '''\
"""Train a model with DistributedDataParallel, a process for each GPU, or on the CPU where there is none.

    torchrun --standalone --nproc-per-node 3 NAME

On several machines, on each of them:

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29400 NAME
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

_ENCODER = """\
nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, dropout=0.0, batch_first=True),
            num_layers=2,
            enable_nested_tensor=False,
        )"""
_SEQUENTIAL = {
    "linear": ["nn.Linear({i}, {o})"],
    "partial": [f"nn.Linear({{i}}, {BLOCK})", f"nn.Linear({BLOCK}, {BLOCK})", f"nn.Linear({BLOCK}, {{o}})"],
    "hybrid": [f"nn.Embedding({VOCABULARY}, {EMBEDDING})", f"nn.Linear({EMBEDDING}, {{o}})"],
    "cnn": [
        f"nn.Conv2d({CHANNELS}, 8, kernel_size=3, padding=1)",
        "nn.BatchNorm2d(8)",
        "nn.ReLU()",
        "nn.AdaptiveAvgPool2d(1)",
        "nn.Flatten()",
        "nn.Linear(8, {o})",
    ],
    "transformer": [
        "nn.Linear({i}, 16)",
        _ENCODER,
        "nn.Linear(16, {o})",
    ],
}

_RECURRENT = """\
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM({i}, 16, batch_first=True)
        self.fc = nn.Linear(16, {o})

    def forward(self, x):
        return self.fc(self.lstm(x)[0])


def make_model():
    return Recurrent()
"""

_OWN = """\
def make_model():
    import inspect

    from {module} import {name} as factory

    values = {values}
    wanted = inspect.signature(factory).parameters
    return factory(**{{key: value for key, value in values.items() if key in wanted}})
"""


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
    return _SCRIPT.replace("NAME", name).format(
        data_size=config.data_size,
        batch_size=config.batch_size,
        meaning="over all ranks together" if is_global else "of each rank",
        seed=config.seed,
        model=_model(config),
        data=_data(config),
        global_check=_GLOBAL_CHECK if is_global else "",
        dtype=config.dtype,
        shuffle=config.shuffle,
        sampler_drop_last=config.sampler_drop_last,
        drop_last=config.drop_last,
        rank_batch="BATCH_SIZE // world_size" if is_global else "BATCH_SIZE",
    )


def write_script(config: Config, path: Path) -> None:
    """Write the script for a config to a file.

    Raises:
        UsageError: if the file is no `.py`, or the config has no script.
        RunError: if it cannot be written.

    """
    if path.suffix != ".py":
        raise UsageError(f"expected a file that ends in .py, got {path.name!r} - at option `--emit`")
    text = script(config, path.name)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"expected a file to write, got {error.strerror!r} - at {path}") from None


def _model(config: Config) -> str:
    sizes = {"i": config.input_size, "o": config.output_size}
    if config.model == "rnn":
        return _RECURRENT.format(**sizes)
    if not config.is_builtin:
        module, _, name = config.model.partition(":")
        return _OWN.format(module=module, name=name, values=config.model_dump(exclude={"gpus"}))
    layers = "".join(f"        {layer.format(**sizes)},\n" for layer in _SEQUENTIAL[config.model])
    return f"def make_model():\n    return nn.Sequential(\n{layers}    )\n"


def _data(config: Config) -> str:
    shape = (
        MODELS[config.model].input(config.input_size, config.output_size)
        if config.is_builtin
        else (config.input_size,)
    )
    sizes = ", ".join(map(str, ("DATA_SIZE", *shape)))
    if config.model == "hybrid":
        return f"torch.randint({VOCABULARY}, ({sizes},), generator=generator)"
    return f"torch.randn({sizes}, generator=generator, dtype=torch.{config.dtype})"
