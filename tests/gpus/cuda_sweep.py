"""Hold virtual GPUs against a real one, operator by operator (run this file on a machine with a GPU).

PyTorch's own operator samples, and draws of random numbers, are run on both, in processes of their own: each
sample whole on the GPU, and again with one operand left on the CPU. Whether an error is raised, which and in
what words, and the types, shapes, strides and numbers of results are compared. It prints what differs, in
groups, and the exit code is 1 if anything is accepted on one and refused on the other.
"""

import argparse
import collections
import multiprocessing
import os
import re
import sys
import warnings
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = (
    "1"  # to count GPUs must not start CUDA: it would not survive a fork
)

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from mismatch_sweep import moved
from opinfo_sweep import ROUNDING, UNINITIALISED, fresh, outcome, tensors_of
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

from dpdemo.virtual import virtual_gpus

SAMPLES = 3
JOBS_A_PROCESS = 12
"""A kernel that fails may spoil what its process runs afterwards."""
PATIENCE_SECONDS = 240
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.int32),
    *(torch.uint8, torch.bool),
)
DRAWS = {
    "rand": "torch.rand(SIZE, device='cuda')",
    "rand float64": "torch.rand(SIZE, device='cuda', dtype=torch.float64)",
    "rand float16": "torch.rand(SIZE, device='cuda', dtype=torch.float16)",
    "uniform_": "torch.empty(SIZE, device='cuda').uniform_(-3, 5)",
    "randn": "torch.randn(SIZE, device='cuda')",
    "randn float64": "torch.randn(SIZE, device='cuda', dtype=torch.float64)",
    "randn bfloat16": "torch.randn(SIZE, device='cuda', dtype=torch.bfloat16)",
    "randn complex64": "torch.randn(SIZE, device='cuda', dtype=torch.complex64)",
    "normal": "torch.normal(torch.arange(SIZE, device='cuda').float(), 2.0)",
    "trunc_normal_": "torch.nn.init.trunc_normal_(torch.empty(SIZE, device='cuda'))",
    "randint": "torch.randint(1000, (SIZE,), device='cuda')",
    "randint wide": "torch.randint(2**40, (SIZE,), device='cuda')",
    "randint int32": "torch.randint(-7, 9, (SIZE,), device='cuda', dtype=torch.int32)",
    "random_": "torch.empty(SIZE, device='cuda', dtype=torch.uint8).random_()",
    "randperm": "torch.randperm(SIZE, device='cuda')",
    "bernoulli": "torch.bernoulli(torch.linspace(0, 1, SIZE, device='cuda'))",
    "bernoulli_": "torch.empty(SIZE, device='cuda').bernoulli_(0.3)",
    "dropout": "torch.nn.functional.dropout(torch.ones(SIZE, device='cuda'), 0.4)",
    "dropout2d": "torch.nn.functional.dropout2d(torch.ones(SIZE, 3, 2, 2, device='cuda'))",
    "dropout not contiguous": "torch.nn.functional.dropout(torch.ones(SIZE, 3, device='cuda').t()[:, ::2])",
    "alpha_dropout": "torch.nn.functional.alpha_dropout(torch.randn(SIZE, device='cuda'), 0.3, True)",
    "dirichlet": "torch._sample_dirichlet(torch.ones(SIZE, 3, device='cuda'))",
    "poisson": "torch.poisson(torch.full((SIZE,), 4.0, device='cuda'))",
}
SIZES = (1, 5, 1000, 300_001)


class Outcome(NamedTuple):
    """The result of a run: the error's type and message, or the form of each tensor, and its numbers."""

    error: tuple[str, str] | None
    forms: tuple[tuple[Any, ...], ...] = ()
    numbers: tuple[Any, ...] = ()


class Job(NamedTuple):
    """One operator, or one draw, to be run on the real GPU or on a virtual one."""

    name: str
    index: int
    limit: int
    is_real: bool


def observed(run: Any, *, values: bool = True) -> Outcome:
    """Run something on the GPU, and note what it gave."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = tensors_of(run())
            # a kernel's own error comes when the device is waited for
            kept = tuple(
                item.detach().to_dense().cpu() if item.layout != torch.strided else item.detach().cpu()
                for item in found
            )
    except Exception as error:
        return Outcome((type(error).__name__, first_line(str(error))))
    forms = tuple(
        (
            str(item.dtype),
            tuple(item.shape),
            item.stride() if item.layout == torch.strided else (),
            item.device.type,
            item.requires_grad,
        )
        for item in found
    )
    numbers = tuple(item.resolve_conj().resolve_neg() for item in kept) if values else ()
    return Outcome(
        None,
        forms,
        tuple(
            item.view(torch.int16).numpy() if item.dtype == torch.bfloat16 else item.numpy()
            for item in numbers
        ),
    )


def first_line(text: str) -> str:
    """Return the first line of an error, without addresses."""
    return re.sub(r"0x[0-9a-f]+", "0x", text.strip().partition("\n")[0])[:200]


def operators(job: Job) -> dict[str, Outcome]:
    """Run the samples of one operator in every dtype: forward, backward, and with one operand on the CPU."""
    op = op_db[job.index]
    found: dict[str, Outcome] = {}
    values = op.name not in UNINITIALISED
    for dtype in DTYPES:
        goes_back = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
        try:
            samples = list(islice(op.sample_inputs("cpu", dtype, requires_grad=goes_back), job.limit))
        except Exception:  # noqa: S112 - the operator has no samples of this type
            continue
        for number, sample in enumerate(samples):
            name = f"{op.formatted_name} {str(dtype)[6:]} {number}"
            found[name] = observed(lambda: forward(op, sample), values=values)  # noqa: B023
            if found[name].error is None and goes_back:
                gradients = lambda: outcome(op, sample, "cuda:0")[1]  # noqa: B023, E731 - called at once
                found[f"{name} backward"] = observed(gradients, values=values)
            if found[name].error is None and dtype in (torch.float32, torch.int64):
                found |= {f"{name} {what}": item for what, item in left_behind(op, sample)}
    return found


def forward(op: Any, sample: Any) -> Any:
    """Run a sample on the GPU."""
    given, args, kwargs = (fresh(part, "cuda:0") for part in (sample.input, sample.args, sample.kwargs))
    torch.manual_seed(0)
    return op(given, *args, **kwargs)


def left_behind(op: Any, sample: Any) -> Any:
    """Run a sample with each operand in turn left on the CPU."""
    leaves, shape = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    for place in places if len(places) > 1 else []:
        given, args, kwargs = tree_unflatten(moved(leaves, place), shape)
        yield f"operand {places.index(place)} left", observed(lambda: op(given, *args, **kwargs))  # noqa: B023


def draws(job: Job) -> dict[str, Outcome]:
    """Draw random numbers, and note where the generator is afterwards."""
    found = {}
    for size in SIZES:
        torch.manual_seed(1234)
        code = compile(DRAWS[job.name], job.name, "eval")
        drawn = observed(lambda: eval(code, {"torch": torch, "SIZE": size}))  # noqa: B023, S307 - the table above
        found[f"draw {job.name} {size}"] = drawn
        found[f"draw {job.name} {size} state"] = observed(torch.cuda.get_rng_state)
    return found


def run(job: Job) -> dict[str, Outcome]:
    """Run a job in a process of its own."""
    torch.set_num_threads(1)
    if job.is_real and not torch.cuda.is_available():
        raise RuntimeError("no real GPU is visible")
    work = draws if job.name in DRAWS else operators
    if job.is_real:
        with torch.backends.cudnn.flags(allow_tf32=False):
            return work(job)
    with virtual_gpus(1, card="H100"):
        return work(job)


def verdict(real: Outcome, ours: Outcome) -> tuple[str, str]:
    """Describe how two outcomes differ; ("", "") if they do not."""
    if real.error == ours.error:
        return ("", "") if real.error else results_differ(real, ours)
    told = f"real {real.error}; virtual {ours.error}"
    if real.error and ours.error:
        return ("other type of error" if real.error[0] != ours.error[0] else "other words"), told
    return ("ACCEPTED, a real GPU refuses" if real.error else "REFUSED, a real GPU accepts"), told


def results_differ(real: Outcome, ours: Outcome) -> tuple[str, str]:
    """Describe how the results of two runs differ."""
    for place, what in enumerate(("dtype", "shape", "strides", "device", "requires_grad")):
        mine, yours = ([form[place] for form in item.forms] for item in (ours, real))
        if mine != yours:
            return f"other {what}", f"real {yours}; virtual {mine}"
    for form, mine, yours in zip(real.forms, ours.numbers, real.numbers, strict=bool(ours.numbers)):
        item, other = (as_tensor(form, array) for array in (mine, yours))
        near = ROUNDING.get(item.dtype, {"rtol": 1e-3, "atol": 1e-4})
        if item.shape != other.shape or not torch.allclose(wide(item), wide(other), **near, equal_nan=True):
            return "other numbers", f"by {gap(item, other)}"
    return "", ""


def as_tensor(form: tuple[Any, ...], array: Any) -> torch.Tensor:
    """Make a tensor of numbers that came from another process."""
    tensor = torch.from_numpy(array.copy())
    return tensor.view(torch.bfloat16) if form[0] == "torch.bfloat16" else tensor


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Convert numbers to float64 or complex128."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def gap(item: torch.Tensor, other: torch.Tensor) -> str:
    """Format the difference between two results."""
    if item.shape != other.shape or not item.numel():
        return "their shapes"
    return f"{(wide(item) - wide(other)).abs().max().item():.2g}"


def outcomes(jobs: list[Job], processes: int) -> dict[str, Outcome]:
    """Run jobs in processes that know no GPU yet; a job without a result is reported and left out."""
    found: dict[str, Outcome] = {}
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=JOBS_A_PROCESS) as pool:
        waiting = [(job, pool.apply_async(run, (job,))) for job in jobs]
        for job, result in waiting:
            try:
                found |= result.get(timeout=PATIENCE_SECONDS)
            except Exception as error:
                where = "a real" if job.is_real else "a virtual"
                what = f"{type(error).__name__} {first_line(str(error))}"
                print(f"{job.name} gave nothing on {where} GPU: {what}")
    return found


def main() -> int:
    """Compare and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=SAMPLES, help="at most so many samples an operator")
    parser.add_argument("--every", type=int, default=1, help="take every so manyth operator only")
    parser.add_argument("--processes", type=int, default=8, help="how many at a time")
    parser.add_argument("names", nargs="*", help="operators or draws; all if none is named")
    options = parser.parse_args()
    if not torch.cuda.device_count():
        print("expected a CUDA GPU, got none", file=sys.stderr)
        return 2
    named = [(name, 0) for name in DRAWS] + [(op.name, index) for index, op in enumerate(op_db)]
    chosen = [item for item in named if not options.names or item[0] in options.names][:: options.every]
    real = outcomes([Job(*item, options.samples, True) for item in chosen], options.processes)
    os.environ["CUDA_VISIBLE_DEVICES"] = (
        ""  # PyTorch's list of operators asks for the GPU when it is imported
    )
    ours = outcomes([Job(*item, options.samples, False) for item in chosen], options.processes)
    return report(real, ours)


def report(real: dict[str, Outcome], ours: dict[str, Outcome]) -> int:
    """Print what differs, in groups."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for name in dict.fromkeys([*real, *ours]):
        if name not in real or name not in ours:
            groups["ran on one alone"].append(name)
            continue
        kind, detail = verdict(real[name], ours[name])
        groups[kind or "alike"].append(f"{name}: {detail}")
    for kind, told in sorted(groups.items()):
        if kind != "alike":
            print(f"\n== {kind}: {len(told)}")
            print(*told, sep="\n")
    print(
        f"\ntorch {torch.__version__}: {len(groups['alike'])} of {sum(map(len, groups.values()))} runs alike"
    )
    print({kind: len(told) for kind, told in groups.items()})
    return 1 if any(kind[0].isupper() for kind in groups) else 0


if __name__ == "__main__":
    sys.exit(main())
