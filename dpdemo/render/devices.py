"""The list of visible devices, and DataParallel's balance rule applied to it."""

from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpdemo.balance import THRESHOLD, Imbalance, VisibleDevice
from dpdemo.render.devicesjson import devices_json


def write_devices(
    devices: Sequence[VisibleDevice],
    imbalance: Imbalance | None,
    form: Literal["table", "json"],
    console: Console,
) -> None:
    """Write the devices and the pair that breaks the rule, as a table or as JSON."""
    if form == "json":
        console.file.write(devices_json(devices, imbalance))
        return
    if not devices:
        console.print("No GPU is visible; DataParallel would make one plain call on the CPU.")
        return
    console.print(_table(devices))
    console.print(Text(describe_balance(devices, imbalance)))


def _table(devices: Sequence[VisibleDevice]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("device", no_wrap=True)
    table.add_column("model")
    table.add_column("memory", justify="right", no_wrap=True)
    table.add_column("multiprocessors", justify="right")
    for device in devices:
        memory = f"{device.memory_bytes / 2**30:.1f} GiB"
        table.add_row(device.name, Text(device.model), memory, str(device.multiprocessors))
    return table


def describe_balance(devices: Sequence[VisibleDevice], imbalance: Imbalance | None) -> str:
    """Say in one sentence whether DataParallel over all these devices would warn, and about which pair."""
    if imbalance is None:
        return (
            "Balanced: DataParallel would not warn."
            if len(devices) > 1
            else "One GPU has nothing to balance."
        )
    others = [device.name.partition(":")[2] for device in devices if device is not imbalance.smaller]
    return (
        f"Imbalanced: {imbalance.smaller.name} has {imbalance.ratio:.0%} of the {imbalance.what} of "
        f"{imbalance.larger.name}, and DataParallel warns under {THRESHOLD:.0%}. "
        f"--gpus {','.join(others)} leaves it out."
    )
