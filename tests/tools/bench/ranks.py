"""Time ranks as whole processes, which take turns: `run --strategy ddp`, and `exec --ranks`.

`run --strategy ddp` is held against a bare torchrun script, `exec --ranks` against the same script with gloo
on the CPU, and against plain processes.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from commands import DPDEMO, HERE, PYTHON, take_turns, wall_seconds
from quick import QUICK, line, medians

TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
RANKS = "import torch.distributed as dist; dist.init_process_group('nccl'); dist.destroy_process_group()"
IMPORTS = """
import subprocess, sys
started = [subprocess.Popen([sys.executable, "-c", "import torch"]) for _ in range(4)]
sys.exit(any(process.wait() for process in started))
"""


def step_seconds(command: list[str]) -> float:
    """Run the script on two ranks, and return the median of its steps."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return float(done.stdout)


def steps(width: int, goal: float) -> None:
    """Compare a step of two ranks on virtual GPUs with one of gloo, plain and in an empty dispatch mode."""
    script = [str(HERE / "ddp_step.py"), str(width), "4" if QUICK else "30"]
    plain, watched = [*TORCHRUN, "2", *script], [*DPDEMO, "exec", "--quiet", "--ranks", "2", *script]
    bare, dispatched, ours = medians(7, plain, [*plain, "--dispatched"], watched, clock=step_seconds)
    line(f"a DDP step, 8 layers of width {width}, against gloo", ours / bare, goal, f"{ours * 1000:.1f} ms")
    print(f"gloo in an empty dispatch mode, width {width}: {dispatched / bare:.3f}")
    (share,) = medians(3, [*watched, "--ledger"], clock=step_seconds)
    line(f"all observers ÷ a DDP step, 8 layers of width {width}", share, 0.05, f"{share:.1%}")


SAMPLES = """
import time, torch
from dpdemo.ranks.observe.rows import fingerprints

torch.set_num_threads(1)
nn = torch.nn
net = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
    nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4096, 10),
)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
images, targets = torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))

def step():
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(images), targets).backward()
    optimizer.step()

def observe():
    fingerprints((images, targets))
    fingerprints(((images,), {}))

def best(call):
    call()
    times = []
    for _ in range(15):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)

print(best(observe) / best(step), best(observe))
"""


def samples() -> None:
    """Compare fingerprints of a batch, at the loader and at the model, with a step of a small CNN on it."""
    done = subprocess.run([PYTHON, "-c", SAMPLES], check=True, capture_output=True, text=True)
    share, seconds = map(float, done.stdout.split())
    line("whose samples: a batch of 64 images ÷ a CNN's step", share, 0.03, f"{seconds * 1000:.2f} ms")


def start() -> None:
    """Compare four ranks up and down with four processes that import torch."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(RANKS)
        exec_ranks = [*DPDEMO, "exec", "--ranks", "4", str(script)]
        plain, ranks = take_turns(7, [PYTHON, "-c", IMPORTS], exec_ranks)
    line("four ranks up and down ÷ four processes that import torch", ranks / plain, 2, f"{ranks:.2f} s")


def processor_seconds(command: list[str]) -> float:
    """Run a command, and return the processor time of all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall_seconds(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def checked() -> None:
    """Compare both runs of `--check` with the plain run of the ranks."""
    plain = [*DPDEMO, "exec", "--quiet", "--ranks", "2", str(HERE / "ddp_epoch.py")]
    check = [*plain[:-1], "--check", plain[-1]]
    once, both = medians(3, plain, check, clock=processor_seconds)
    line("exec --ranks 2 --check ÷ exec --ranks 2, processor time", both / once, 1.6, f"{both:.1f} s")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    ddp = [*DPDEMO, "run", "--strategy", "ddp", "--set", "processes=3"]
    bare, ours = take_turns(7, [*TORCHRUN, "3", str(HERE / "bare_ddp.py")], ddp)
    line("run --strategy ddp --set processes=3 ÷ a bare torchrun script", ours / bare, 1.15, f"{ours:.2f} s")
    if not QUICK:  # two minutes of the processor
        steps(1024, 1.10)
        checked()
    steps(256, 1.35)
    start()
    samples()
