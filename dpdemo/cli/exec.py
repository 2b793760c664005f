"""`dpdemo exec`: an unmodified program on virtual GPUs, and its report on stderr when it is over."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.cli import options as o
from dpdemo.cli.edge import print_error, print_hint
from dpdemo.cli.settings import codes_of, exclusive, read_gpu_memory, without_effect
from dpdemo.cli.startup import loading_torch
from dpdemo.config.gpus import card_named, parse_num_virtual
from dpdemo.errors import RunError, UsageError
from dpdemo.files import FORMS, endings
from dpdemo.programs.program import Program, find_program
from dpdemo.ranks.against.settings import DEFAULT_STEPS
from dpdemo.ranks.hardware import Hardware
from dpdemo.results.check import CheckReport
from dpdemo.results.console import make_console
from dpdemo.results.devices import Devices
from dpdemo.results.execution import ExecReport, Traffic
from dpdemo.results.ranks import RanksResult
from dpdemo.results.report import Report

EXAMPLES = (
    "exec --ranks 4 train.py --epochs 1",
    "exec --gpus 4 --check train.py",
    "exec --gpus 2 --gpu-memory 24GiB -m pkg.train",
)
CONTEXT = {"allow_interspersed_args": False}
DEFAULT_GPUS = 2
Rules = tuple[tuple[str, ...], tuple[str, ...]]
"""Codes of rules to apply, and to leave out."""
Finish = Callable[..., bool]
"""Takes the report of a program or its ranks, and the findings of a check; True asks for exit code 1."""
_NOTHING = ExecReport("", (), Devices.of("cuda", ()), (), Traffic(0, 0, 0, 0, 0, 0), ())
_LAUNCHERS = "torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed"
_INTERPRETER = re.compile(r"python[0-9.]*")
Words = Annotated[
    list[str], typer.Argument(metavar="SCRIPT [ARGS]", help="What to run; ARGS are all its own.")
]
Count = Annotated[o.Text, o.option("--gpus -g N", o.MAIN, "Number of virtual GPUs. (default: 2)")]
_RANKS = "Run it as N ranks of torch.distributed, a virtual GPU each."
Ranks = Annotated[int | None, o.option("--ranks --nproc-per-node N", o.MAIN, _RANKS, min=1, max=MAX_GPUS)]
_RANDOM = "Random numbers that a GPU draws from a seed: CUDA's or the CPU's."
Random = Annotated[Literal["cuda", "cpu"], o.option("--random", o.GPUS, _RANDOM)]
Module = Annotated[bool, o.option("-m", o.MODEL, "Run a module by its name, as python -m does.")]
_CHECK = "Check every DataParallel call; compare the gradients of ranks with those of one process."
Check = Annotated[bool, o.option("--check", o.MAIN, _CHECK)]
_STEPS = "First steps that --ranks --check compares. (default: 3)"
Steps = Annotated[int | None, o.option("--steps K", o.CHECKS, _STEPS, min=1, max=100)]
_TRACE = "Follow one sample through all ranks: its index, or what the report calls its content."
TraceSample = Annotated[o.Text, o.option("--trace-sample N", o.DATA, _TRACE)]
SaveReport = Annotated[list[Path] | None, o.saved(o.MAIN, endings(("json",)), o.SAVE, "--save --report")]
_QUIET = "No hints, and no report but why ranks were stopped and what --fail-on names."
Quiet = Annotated[bool, o.option("--quiet -q", o.OUTPUT, _QUIET)]
_VERBOSE = "Also list the collectives of ranks and the peak memory of each GPU when nothing is wrong."
Verbose = Annotated[bool, o.option("--verbose -v", o.OUTPUT, _VERBOSE)]
Fails = Literal["mistakes", "error", "warning", "info", "never"]
_FAIL_ON = "Exit with 1 from a mistake of ranks, or with --check from a finding of this severity on."
FailOn = Annotated[Fails, o.option("--fail-on", o.CHECKS, _FAIL_ON)]


def command(
    ctx: typer.Context,
    program: Words,
    gpus: Count = None,
    ranks: Ranks = None,
    gpu: o.Card = None,
    gpu_memory: o.GpuMemory = None,
    random: Random = "cuda",
    module: Module = False,
    check: Check = False,
    steps: Steps = None,
    select: o.Select = "",
    ignore: o.Ignore = "",
    trace_sample: TraceSample = None,
    fail_on: FailOn = "never",
    save: SaveReport = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Run an unmodified program on virtual GPUs, then report how each call was split.

    It runs as python SCRIPT ARGS would, and exits as it does; the report goes to stderr when it is over. With
    --gpu-memory an allocation past it raises torch.OutOfMemoryError, as on a GPU.
    """
    exclusive(ctx, "quiet", "verbose")
    paths = [path.absolute() for path in save or ()]  # the program may change the folder
    num_gpus = (ranks or DEFAULT_GPUS) if gpus is None else parse_num_virtual(gpus)
    if gpu is not None:
        card_named(gpu)
    hardware = Hardware(num_gpus, read_gpu_memory(gpu_memory, num_gpus), random, gpu)
    if not check:
        hint = "rules are applied where calls are checked: add --check"
        without_effect(ctx, ("select", "ignore"), "`--check` beside it", "none", hint)
        if fail_on not in {"mistakes", "never"}:
            raise UsageError(
                f"expected `--check` beside `{fail_on}`, got none",
                key="fail_on",
                hint="--fail-on mistakes is about the mistakes of ranks",
            )
    if not (check and ranks):
        without_effect(ctx, ("steps",), "`--ranks N --check` beside it", "less", "add both")
    words, module = _without_interpreter(program, is_module=module)
    if ranks is not None and Path(words[0]).name in _LAUNCHERS:
        given = " ".join(["-m"] * module + words[:1])
        raise UsageError(
            f"expected a script beside `--ranks`, got {words[0]}, which starts ranks itself",
            key="program",
            hint=f"dpdemo exec --gpus {ranks} {given} … runs its ranks; or leave {words[0]} out",
        )
    found = find_program(words[0], words[1:], is_module=module)
    is_memory_asked = gpu is not None or gpu_memory is not None
    finish = finisher(quiet=quiet, verbose=verbose or is_memory_asked, paths=paths, fail_on=fail_on)
    if ranks is not None:
        exclusive(ctx, "ranks", "select", "ignore")  # rules are for DataParallel's calls
        from dpdemo.programs.ranks import Extras, run_ranks

        extras = Extras((steps or DEFAULT_STEPS) if check else None, trace_sample)
        raise SystemExit(run_ranks(found, hardware, ranks, finish, extras))
    without_effect(ctx, ("trace_sample",), "`--ranks` beside it", "none", "samples are followed on ranks")
    if gpus is None and not quiet:
        _hint(words)
    rules = (codes_of(select), codes_of(ignore)) if check else None
    if rules is not None and any(rules):
        from dpdemo.checking.registry import choose

        choose(*rules)  # a wrong code is reported before anything runs
    run_here(found, hardware, finish, rules, is_gate=fail_on != "never")


def run_here(
    found: Program, hardware: Hardware, finish: Finish, rules: Rules | None, *, is_gate: bool = False
) -> NoReturn:
    """Run a program in this process, check its calls if there are rules, and exit as it does."""
    with loading_torch(hides_gpus=True):
        from dpdemo.programs.callcheck import CallCheck
        from dpdemo.programs.execute import execute

    check = None if rules is None else CallCheck(*rules)
    raise SystemExit(execute(found, hardware, finish, check, is_gate=is_gate))


def _without_interpreter(program: list[str], *, is_module: bool) -> tuple[list[str], bool]:
    """Read `python script.py` and `python -m pkg.mod` as the script or module: this process is the Python."""
    if is_module or len(program) < 2 or not _INTERPRETER.fullmatch(Path(program[0]).name):
        return program, is_module
    print_hint(f"`{program[0]}` is left out: the program runs in this process")
    if program[1] == "-m" and len(program) > 2:
        return program[2:], True
    return program[1:], False


def _hint(words: list[str]) -> None:
    for option in {"--gpus", "--ranks", "--nproc-per-node"}.intersection(words[1:]):
        print_hint(f"`{option}` after {words[0]} belongs to the program; write dpdemo's before it")
    print_hint(f"{DEFAULT_GPUS} virtual GPUs, since none were named; `--gpus 4` before {words[0]} takes four")


def finisher(
    *,
    quiet: bool = False,
    verbose: bool = False,
    paths: Sequence[Path] = (),
    fail_on: Fails = "never",
    answer: Callable[[ExecReport, CheckReport], Report] | None = None,
) -> Finish:
    """Return a function that saves and prints the reports, and returns why the exit code has to be 1.

    Args:
        quiet: of the report print only why ranks were stopped.
        verbose: also list the collectives and peaks of ranks when nothing is wrong.
        paths: the files of `--save`.
        fail_on: as the option.
        answer: makes one report of a program's report and its findings.

    """
    stderr = sys.stderr
    # all that drawing needs is imported now: afterwards `sys.path` is the program's, and Python about to end
    findings = CheckReport("", 0, ())
    for form in ("table", *(FORMS[path.suffix] for path in paths if path.suffix in FORMS)):
        _NOTHING.text(form)
    if any(path.suffix not in FORMS for path in paths):
        from dpdemo.results import pictures  # noqa: F401
    findings.text("text")
    if answer is not None:
        str(answer(_NOTHING, findings))
    make_console()

    def finish(report: ExecReport | RanksResult, findings: CheckReport | None = None) -> bool:
        with contextlib.suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
            sys.stdout.flush()  # what the program printed comes first
        shown: list[Report] = [] if quiet else [_verbose(report) if verbose else report]
        if answer is not None and isinstance(report, ExecReport) and findings is not None:
            shown = [answer(report, findings)]
        elif findings is not None:
            shown.append(findings)
        with contextlib.redirect_stderr(stderr), contextlib.suppress(OSError, ValueError):
            for path in paths:
                _save(path, report)
            for each in shown:
                stderr.write("\n")
                each.write("table", stderr)
            if quiet:
                stderr.writelines(f"{line}\n" for result in _worlds(report) for line in result.problem)
            reasons = list(_reasons(report, findings, fail_on))
            stderr.writelines(f"--fail-on {fail_on}: {reason}\n" for reason in reasons)
            return bool(reasons)
        return False

    return finish


def _verbose(report: ExecReport | RanksResult) -> ExecReport | RanksResult:
    """Return the report with all tables of its ranks."""
    if isinstance(report, RanksResult):
        return replace(report, verbose=True)
    return replace(report, ranks=tuple(replace(ranks, verbose=True) for ranks in report.ranks))


def _worlds(report: ExecReport | RanksResult) -> tuple[RanksResult, ...]:
    """Return the ranks' results of a report."""
    return report.ranks if isinstance(report, ExecReport) else (report,)


def _reasons(report: ExecReport | RanksResult, findings: CheckReport | None, fail_on: Fails) -> Iterator[str]:
    """Yield what `--fail-on` exits for."""
    if fail_on == "mistakes":
        worlds = _worlds(report)
        compared = [world.comparison.mistakes for world in worlds if world.comparison]
        found = (each for mistakes in (*(world.mistakes for world in worlds), *compared) for each in mistakes)
        yield from (str(each) for each in found if each.kind == "mistake")
    elif fail_on != "never" and findings is not None and findings.fails(fail_on):
        yield findings.summary


def _save(path: Path, report: Report) -> None:
    try:
        report.write_file(path)
    except RunError as error:
        print_error(error)
