"""Run an epoch for real and report what was observed: a file per strategy.

`dp.py` wraps the model in torch.nn.DataParallel, on the devices of `devices.py`.
`ddp/launch.py` starts ranks as `dpdemo exec --ranks` does, each the program `ddp/__main__.py` around
`ddp/rank.py`; under torchrun this process is a rank itself, as `ddp/world.py` reads. `ddp/records.py` makes
one report of their events. `epoch.py` is the loop of both strategies.
"""

import os
from typing import TYPE_CHECKING, Unpack

from dpdemo.config.fields import Config
from dpdemo.config.load import Keys, expect_strategy, resolve, showing_keys
from dpdemo.config.ranks import TIMEOUT_SECONDS
from dpdemo.results.split import SplitReport

if TYPE_CHECKING:
    from dpdemo.epochs.epoch import Progress


@showing_keys
def run(
    config: Config | str | os.PathLike[str] | None = None,
    *,
    virtual: bool = False,
    progress: "Progress | None" = None,
    timeout: float = TIMEOUT_SECONDS,
    **overrides: Unpack[Keys],
) -> SplitReport:
    """Run the epoch under genuine DataParallel or DistributedDataParallel and report what was observed.

    Under torchrun every rank returns the same report.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        virtual: run on virtual GPUs, as many as `gpus` asks for, instead of real ones.
        progress: called now and then with (batches done, batches in all).
        timeout: seconds that a rank of `ddp` waits for the others.
        overrides: config keys that win over `config`, such as `gpus=[0, 1]` or `batch_size=64`.

    Returns:
        The rows that each replica saw in each batch, as they were observed.

    Raises:
        UsageError: if the config is not valid, or names a GPU that does not exist.
        RunError: if the model fails; its message holds the user's own frames.
        RunInterrupted: a KeyboardInterrupt that carries the report of the batches done so far.

    """
    resolved = expect_strategy(resolve(config, overrides), ("dp", "ddp"))
    if resolved.strategy == "ddp":
        from dpdemo.epochs.ddp.launch import run_ddp

        return run_ddp(resolved, progress, timeout, virtual=virtual)
    from dpdemo.epochs.dp import run_dp

    return run_dp(resolved, progress, virtual=virtual)
