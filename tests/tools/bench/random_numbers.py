"""What CUDA's random numbers cost on a virtual GPU, against the CPU's: processor time, taken in turns.

Run by hand, with how many numbers are drawn: `python tests/tools/bench/random_numbers.py 10000000`.
"""

import sys
from functools import partial

import torch
from quick import QUICK, medians

from dpdemo.virtual import virtual_gpus

COUNT = 10**5 if QUICK else int(sys.argv[1]) if len(sys.argv) > 1 else 10**7

if __name__ == "__main__":
    torch.set_num_threads(1)
    with virtual_gpus(1):
        ones = {device: torch.ones(COUNT, device=device) for device in ("cpu", "cuda")}
        draws = {
            "rand": lambda device: torch.rand(COUNT, device=device),
            "randn": lambda device: torch.randn(COUNT, device=device),
            "randint": lambda device: torch.randint(1000, (COUNT,), device=device),
            "dropout": lambda device: torch.dropout(ones[device], 0.1, True),
        }
        for name, draw in draws.items():
            cpu, gpu = medians(7, partial(draw, "cpu"), partial(draw, "cuda"))
            print(f"{name:8} CPU {cpu * 1e3:8.2f} ms   GPU {gpu * 1e3:8.2f} ms   {gpu / cpu:.2f} times")
