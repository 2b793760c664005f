"""Time the epoch loop of `run` against the bare DataParallel calls that it makes, in turns in one process.

Bare is the same wrapper called on the same batches, which were made before. The time is this thread's own, so
that a busy machine does not count.
"""

import statistics
import time
from collections.abc import Callable

import torch
from quick import QUICK, rounds

from dpdemo.config.fields import Config
from dpdemo.models.modules import build
from dpdemo.running.devices import opened
from dpdemo.running.dp import place
from dpdemo.running.epoch import Watch, make_loader, run_epoch

SLICES = rounds(25)
SAMPLES_A_SLICE = 400 if QUICK else 40_000
GOAL = 1.25


def seconds(call: Callable[[], object]) -> float:
    """Time one call by the CPU time of this thread."""
    start = time.thread_time()
    call()
    return time.thread_time() - start


def main() -> None:
    """Print the ratio, with the making of the batches counted on neither side and on both."""
    config = Config(data_size=SAMPLES_A_SLICE)
    with opened(config, virtual=False) as (devices, _):
        built = build(config, place(config, devices))
        torch.set_num_threads(1)
        batches = [batch.clone() for batch in make_loader(config)]
        watch = Watch(progress=lambda _done, _total: None)

        def bare() -> None:
            for batch in batches:
                built.model(batch)

        def make() -> None:
            for _ in make_loader(config):
                pass

        def epoch() -> None:
            run_epoch(built, config, devices, make_loader(config), watch)

        turns = [(seconds(bare), seconds(make), seconds(epoch)) for _ in range(SLICES)]
    against_calls = statistics.median(whole / calls for calls, _, whole in turns)
    against_both = statistics.median(whole / (calls + made) for calls, made, whole in turns)
    for name, ratio in (("its bare calls", against_calls), ("its bare calls and batches", against_both)):
        what = f"run's epoch, against {name}"
        print(f"{what:<59} {ratio:>8.3f}   <= {GOAL}    {'met' if ratio <= GOAL else 'MISSED'}")


if __name__ == "__main__":
    main()
