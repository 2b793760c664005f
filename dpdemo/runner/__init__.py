"""Running an epoch for real and reporting what was seen: a file a strategy.

`dp.py` wraps the model in torch.nn.DataParallel; `epoch.py` is the loop that all strategies share.
"""

import os
from typing import Any

from dpdemo.config import Config
from dpdemo.prediction import resolve
from dpdemo.report import SplitReport
from dpdemo.runner.epoch import Progress


def run(
    config: Config | str | os.PathLike[str] | None = None,
    *,
    virtual: bool = False,
    progress: Progress | None = None,
    **overrides: Any,
) -> SplitReport:
    """Run the epoch under genuine torch.nn.DataParallel and report what was seen.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        virtual: run on virtual GPUs, as many as `gpus` asks for, instead of real ones.
        progress: called now and then with (batches done, batches in all).
        overrides: config keys that win over `config`, such as `gpus=[0, 1]` or `batch_size=64`.

    Raises:
        UsageError: if the config is not valid, or names a GPU that is not there.
        RunError: if the model fails; its message holds the user's own frames.
        RunInterrupted: a KeyboardInterrupt that carries the report of the batches done so far.

    """
    from dpdemo.runner.dp import run_dp

    return run_dp(resolve(config, overrides), progress, virtual=virtual)
