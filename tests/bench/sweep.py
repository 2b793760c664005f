"""What a million cells of a sweep cost above a sweep of one: seconds of the processor, the best of five."""

import resource
import subprocess
import sys

GOAL = 0.3
GRIDS = [("1-16", "1-62500"), ("1-1000", "1-1000"), ("1-100", "1-80000:8")]


def seconds(*args):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "dpdemo", *args], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    empty = min(seconds("sweep", "--gpus", "1", "--batch-size", "1") for _ in range(5))
    print(f"one cell: {empty:.3f} s")
    for measure in ("balance", "weight", "idle"):
        for gpus, sizes in GRIDS:
            command = ("sweep", "--gpus", gpus, "--batch-size", sizes, "--of", measure)
            more = min(seconds(*command) for _ in range(5)) - empty
            said = "" if more <= GOAL else f", over the goal of {GOAL} s"
            print(f"{measure} of {sizes} over {gpus}: {more:.3f} s more{said}")
