"""Run a fuzzer from the command line: for so many seconds, from a seed that it prints."""

import argparse
import sys
import time


def hunt(description, what, runs, shown, options=()):
    """Print each fault among the runs; the exit code is 1 if there is any.

    `runs` is called with `seed`, `seconds` and the numbers of further `options`. It yields a number, what was
    run, and the fault or nothing; `shown` says what was run.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    for option in options:
        parser.add_argument(f"--{option}", type=int)
    chosen = vars(parser.parse_args())
    print(f"seed {chosen['seed']}", flush=True)
    faults = number = 0
    for number, *case, fault in runs(**chosen):
        if fault:
            faults += 1
            print(f"\n#{number}: {shown(*case)}\n{fault}", flush=True)
    print(f"{number + 1} {what}, {faults} with a fault (seed {chosen['seed']})")
    sys.exit(faults > 0)
