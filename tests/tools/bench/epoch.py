"""Time the epoch loop of `run` against the bare DataParallel calls that it makes, in turns in one process.

Bare is the same wrapper called on the same batches, which were made before.
"""

import torch
from quick import QUICK, line, medians

from dpdemo.config.fields import Config
from dpdemo.epochs.devices import opened
from dpdemo.epochs.dp import place
from dpdemo.epochs.epoch import Callbacks, make_loader, run_epoch
from dpdemo.models.modules import build

GOAL = 1.25


def main() -> None:
    """Print the ratio, with the making of the batches counted on neither side and on both."""
    config = Config(data_size=400 if QUICK else 40_000)
    with opened(config, virtual=False) as devices:
        built = build(config, place(config, devices))
        torch.set_num_threads(1)
        batches = [batch.clone() for batch in make_loader(config)]
        watch = Callbacks(progress=lambda _done, _total: None)

        def bare() -> None:
            for batch in batches:
                built.model(batch)

        def make() -> None:
            for _ in make_loader(config):
                pass

        def epoch() -> None:
            run_epoch(built, config, devices, make_loader(config), watch)

        calls, made, whole = medians(25, bare, make, epoch)
    line("run's epoch, against its bare calls", whole / calls, GOAL)
    line("run's epoch, against its bare calls and batches", whole / (calls + made), GOAL)


if __name__ == "__main__":
    main()
