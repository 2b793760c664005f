"""Running an unmodified program on virtual GPUs, watched: `dpdemo exec` without its command line."""

import atexit
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from dpdemo.devices import Devices
from dpdemo.errors import UsageError
from dpdemo.execreport import ExecReport, Traffic
from dpdemo.preflight.findings import CheckReport
from dpdemo.preflight.watching import CallCheck
from dpdemo.program import Program, run_program
from dpdemo.virtual import VirtualGpuError, VirtualGpus, virtual_gpus
from dpdemo.watch import Watch, watching

VISIBLE = "CUDA_VISIBLE_DEVICES"


Finish = Callable[[ExecReport, CheckReport | None], None]
"""Called once the program is over, with what was seen, and with the findings where a check was asked for."""


def execute(
    program: Program,
    num_gpus: int,
    finish: Finish,
    check: CallCheck | None = None,
    memory: Sequence[int] | None = None,
) -> object:
    """Run the program in this process and return what it leaves with: what `sys.exit` is to be called with.

    The GPUs stay until Python has ended the program's threads and called its atexit functions, which come
    before ours since they were registered later. Then `finish` gets the report, also when the program failed.
    `check` judges every DataParallel call on the way; `memory` has what each GPU can hold, past which the
    program gets its torch.OutOfMemoryError.

    Raises:
        UsageError: the GPUs cannot be made.

    """
    stack = ExitStack()
    try:
        gpus = stack.enter_context(virtual_gpus(num_gpus, memory=memory))
    except VirtualGpuError as error:
        raise UsageError(f"expected to open {num_gpus} virtual GPUs, got an error: {error}") from None
    watch = stack.enter_context(watching())
    if check is not None:
        stack.enter_context(check.watching(aside=watch.paused))
    visible = os.environ.get(VISIBLE)
    process = os.getpid()

    def close() -> None:
        if os.getpid() != process:  # a child that was forked, and came here too
            return
        now = os.environ.get(VISIBLE)
        report = _report(program, gpus, watch, None if now == visible else now, memory)
        findings = None if check is None else check.report()
        stack.close()
        finish(report, findings)

    atexit.register(close)
    return run_program(program)


def _report(
    program: Program,
    gpus: VirtualGpus,
    watch: Watch,
    set_visible: str | None,
    memory: Sequence[int] | None,
) -> ExecReport:
    moved = gpus.bytes_moved
    return ExecReport(
        program=str(program),
        arguments=program.arguments,
        devices=Devices.of("cuda", range(len(gpus))),
        uses=watch.uses(),
        traffic=Traffic(
            host_to_device_bytes=moved.host_to_device,
            device_to_device_bytes=moved.device_to_device,
            device_to_host_bytes=moved.device_to_host,
            num_host_to_device=moved.num_host_to_device,
            num_device_to_device=moved.num_device_to_device,
            num_device_to_host=moved.num_device_to_host,
        ),
        peak_bytes=tuple(gpus.peak_bytes(index) for index in range(len(gpus))),
        set_visible=set_visible,
        capacity_bytes=None if memory is None else tuple(memory),
    )
