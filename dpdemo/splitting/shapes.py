"""Names of devices, and shapes inside and outside the model, for both predictions."""

from dataclasses import replace
from typing import Any

from dpdemo.arithmetic.chunk import Split
from dpdemo.config.catalogue import MODELS, ModelShapes, batched
from dpdemo.config.fields import Config
from dpdemo.errors import UsageError
from dpdemo.results.batches import Outside, Replica, Shapes, lone
from dpdemo.results.devices import Devices


def predicted_devices(config: Config) -> Devices:
    """Return the devices of `gpus`, or of all ranks of DDP: the CPU if there are none.

    Raises:
        UsageError: if `gpus` is `all`, or left out although there is an `output_device`.

    """
    num_nodes = config.nodes if config.strategy == "ddp" else 1
    if config.ordinals is not None:
        return Devices([*Devices.of("cuda", config.ordinals)] * num_nodes)
    how_many = "say how many GPUs to preview: {gpus=8}"
    if config.gpus == "all":
        expected = (
            "expected a count such as 8, or ordinals such as 0,1,2, got `all`, which depends on the machine"
        )
        raise UsageError(expected, key="gpus", hint=how_many)
    if config.output_device is not None:
        raise UsageError(
            f"expected GPUs to gather on, got output_device {config.output_device} without `gpus`",
            key="output_device",
            hint=how_many,
        )
    return Devices.cpu((config.processes or 1) * num_nodes)


def inner_shapes(config: Config, rows: int) -> tuple[Shapes, Shapes]:
    """Return the shapes of the wrapped module's input and output for a chunk of `rows` rows."""
    if not config.is_builtin:
        return lone(batched((config.input_size,), rows, config.dim)), ()
    model = MODELS[config.model]
    sample = model.inner_input or model.input
    result = model.inner_output or model.output
    return _shapes(config, sample, rows), _shapes(config, result, rows)


def replicas_of(config: Config, devices: Devices, split: Split) -> tuple[Replica, ...]:
    """Return the input and output of each replica; devices without rows have none. A rank has a place."""
    shapes = {rows: inner_shapes(config, rows) for rows in set(split.sizes())}
    found = []
    for number, (device, rows) in enumerate(split.chunks):
        replica = Replica(number, devices[device], rows, *shapes[rows])
        if config.strategy == "ddp":
            node, local_rank = divmod(device, len(devices) // config.nodes)
            replica = replace(replica, rank=device, node=node, local_rank=local_rank)
        found.append(replica)
    return tuple(found)


def outside_of(config: Config, devices: Devices, rows: int) -> Outside:
    """Return the devices and shapes that the training loop sees of a batch of `rows` rows."""
    first = devices[0]
    gathered = first
    # With one device DataParallel calls its module and gathers nothing (torch/nn/parallel/data_parallel.py)
    if len(devices) > 1 and config.output_device is not None:
        gathered = f"cuda:{config.output_device}"
    if not config.is_builtin:
        return Outside(first, gathered, lone(batched((config.input_size,), rows, config.dim)), ())
    model: ModelShapes = MODELS[config.model]
    return Outside(
        input_device="cpu" if model.reads_cpu_input else first,
        device=gathered,
        input=_shapes(config, model.input, rows),
        output=_shapes(config, model.output, rows),
    )


def _shapes(config: Config, sample: Any, rows: int) -> Shapes:
    return lone(batched(sample(config.input_size, config.output_size), rows, config.dim))
