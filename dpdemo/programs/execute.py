"""Running an unmodified program on virtual GPUs, watched: `dpdemo exec` without its command line."""

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

from dpdemo.calls.calls import Watch, watching
from dpdemo.programs.callcheck import CallCheck, is_rehearsing
from dpdemo.programs.program import Program, run_program
from dpdemo.ranks.against.check import checking
from dpdemo.ranks.against.settings import DEFAULT_STEPS, VARIABLE
from dpdemo.ranks.gathering import CompareRanks, gathering
from dpdemo.ranks.hardware import Hardware, reaching_children
from dpdemo.ranks.observe.follow import follow_program
from dpdemo.results.check import CheckReport
from dpdemo.results.devices import Devices
from dpdemo.results.execution import ExecReport, Traffic
from dpdemo.startup.hook import VISIBLE
from dpdemo.virtual import VirtualGpus

Finish = Callable[[ExecReport, CheckReport | None], bool]
"""Called at the end, with the report and the findings of a check; True asks for exit code 1."""


def execute(
    program: Program,
    hardware: Hardware,
    finish: Finish,
    check: CallCheck | None = None,
    *,
    is_gate: bool = False,
) -> object:
    """Run the program in this process and return what it leaves with: what `sys.exit` is to be called with.

    The GPUs stay until Python has ended the program's threads and called its atexit functions, which come
    before ours since they were registered later. Then `finish` gets the report, also when the program failed.
    `check` judges every DataParallel call on the way; with `is_gate`, `finish` may turn exit code 0 into 1.
    Beyond what a GPU can hold the program gets its torch.OutOfMemoryError.

    Raises:
        UsageError: the GPUs cannot be made.

    """
    with ExitStack() as opening:
        against_one = None
        if check is not None and "RANK" not in os.environ:  # a rank cannot start its launcher again
            against_one = opening.enter_context(_comparing(program, hardware))
        opening.enter_context(reaching_children(hardware))
        ranks = opening.enter_context(gathering())
        gpus = opening.enter_context(hardware.opened())
        stack = opening.pop_all()
    watch = stack.enter_context(counting(check))
    process, fails = os.getpid(), False
    code: object = None

    def seen() -> tuple[ExecReport, CheckReport | None]:
        findings = None if check is None else _findings(check, code)
        report = _report(program, gpus, watch, hardware)
        worlds = () if ranks is None else ranks.close(program, against_one)
        if findings is not None and findings.is_empty and any(world.comparison for world in worlds):
            findings = None
        return replace(report, check=findings, ranks=worlds), findings

    def close() -> None:
        nonlocal fails
        if os.getpid() != process:  # a forked child, which comes here too
            return
        found = seen()
        stack.close()
        if ranks is None or ranks.is_reporter:
            fails = finish(*found)

    atexit.register(close)
    if ranks is not None:
        ranks.start(lambda _: finish(*seen()))
    stack.callback(follow_program(gpus))
    code = run_program(program)
    if is_gate and not code:
        _end_as_python_does()
        return int(fails)
    return code


def _findings(check: CallCheck, code: object) -> CheckReport:
    """Judge the calls; of a program that failed before there was anything to judge, note its exit code."""
    found = check.report(getattr(sys, "last_value", None))
    is_empty = not (found.compared or found.findings or found.ended_by)
    return replace(found, ended_by=f"exit code {code}") if code and is_empty else found


@contextmanager
def _comparing(program: Program, hardware: Hardware) -> Iterator[CompareRanks]:
    """Record the ranks that the program starts, to compare them with one process afterwards."""
    words = ["--gpus", "1", "--random", hardware.random, *(["--gpu", hardware.card] if hardware.card else [])]
    command = [sys.executable, "-m", "dpdemo", "exec", "--quiet", *words, *program.words]
    with checking(0, DEFAULT_STEPS, command, dict(os.environ)) as check:
        os.environ |= check.settings.environment()
        try:
            yield check.against_one
        finally:
            os.environ.pop(VARIABLE, None)


@contextmanager
def counting(check: CallCheck | None) -> Iterator[Watch]:
    """Count the program's calls, and check them if asked to, for the length of a `with` block.

    The count listens outside of the check, so that it meets the very replicas that it meets without one.
    """
    with check.watching() if check is not None else nullcontext(), watching(is_rehearsing) as watch:
        yield watch


def _end_as_python_does() -> None:
    """Wait for threads and call the exit functions, as Python does later, when no code can change."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - what Python itself calls
    atexit._run_exitfuncs()  # noqa: SLF001


def _report(program: Program, gpus: VirtualGpus, watch: Watch, hardware: Hardware) -> ExecReport:
    is_started, memory = gpus.is_started, hardware.memory  # to ask for more would start it
    visible = gpus.visible if is_started else range(hardware.num_gpus)
    set_visible, read_visible = gpus.set_visible if is_started else (os.environ.get(VISIBLE), None)
    moved = gpus.bytes_moved
    return ExecReport(
        program=str(program),
        arguments=program.arguments,
        devices=Devices.of("cuda", range(len(visible))),
        uses=watch.uses(),
        traffic=Traffic(
            host_to_device_bytes=moved.host_to_device,
            device_to_device_bytes=moved.device_to_device,
            device_to_host_bytes=moved.device_to_host,
            num_host_to_device=moved.num_host_to_device,
            num_device_to_device=moved.num_device_to_device,
            num_device_to_host=moved.num_device_to_host,
        ),
        peak_bytes=tuple(gpus.peak_bytes(index) for index in range(len(visible))),
        set_visible=set_visible,
        num_hidden=hardware.num_gpus - len(visible),
        is_set_late=is_started and set_visible is not None and set_visible != read_visible,
        is_started=is_started,
        capacity_bytes=None if memory is None else tuple(memory[index] for index in visible),
    )
