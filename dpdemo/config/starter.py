"""The config that `dpdemo init` writes: every key with what it means; most are commented out."""

import textwrap

from dpdemo.config.fields import Config

_SHOWN = {"input_size": 5, "output_size": 2, "batch_size": 30, "data_size": 100, "gpus": 3}
_EXAMPLES = {
    "model": "model.py:Net", "output_device": 0, "dim": 1, "shuffle": "true", "drop_last": "true", "seed": 1,
    "dtype": "bfloat16", "strategy": "ddp", "nodes": 2, "processes": 3, "batch_size_is": "global",
    "sampler_drop_last": "true", "trace_sample": 17,
}  # fmt: skip


def starter_config() -> str:
    """Write a YAML config whose keys explain themselves."""
    return "# dpdemo run --config dpdemo.yaml\n" + "".join(_entry(name) for name in Config.model_fields)


def _entry(name: str) -> str:
    text = Config.model_fields[name].description or ""
    lines = [f"# {line}" for line in textwrap.wrap(text, 90)]
    if name in _SHOWN:
        return "\n" + "\n".join([*lines, f"{name}: {_SHOWN[name]}"]) + "\n"
    return (
        "\n"
        + "\n".join([*lines, f"# {name}: {_EXAMPLES.get(name, Config.model_fields[name].default)}"])
        + "\n"
    )
