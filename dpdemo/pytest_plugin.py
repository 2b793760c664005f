"""The pytest plugin: a test session, or one test, on virtual GPUs.

`pytest --virtual-gpus 2` opens them before anything is collected, since tests skip themselves by
`torch.cuda.device_count()` while they are imported. `@pytest.mark.virtual_gpus(4)` opens them for one test,
from before its fixtures until after them; the session's own are put aside meanwhile. Unless one of them is
asked for, nothing here imports torch or changes it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dpdemo.virtual import VirtualGpus

_MARKER = """virtual_gpus(n, **options): run the test on n virtual GPUs of dpdemo, or on none, in place of \
the session's; options are those of dpdemo.virtual.virtual_gpus, such as memory="24GiB" or random="cpu"."""
_OPTIONS = ("memory", "storage", "random", "card")
_ROOMS = ("virtual", "ranks", "epochs", "startup", "programs")
_HIDDEN = tuple(f"dpdemo.{room}." for room in _ROOMS)
_OUR_FRAME = tuple(f'File "{Path(__file__).parent / room}{os.sep}' for room in _ROOMS)
_gpus = pytest.StashKey["VirtualGpus"]()
_stack = pytest.StashKey[contextlib.ExitStack]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--virtual-gpus N`."""
    parser.getgroup("dpdemo").addoption(
        "--virtual-gpus",
        type=int,
        metavar="N",
        help="run the whole session on N virtual GPUs: torch finds N CUDA devices, on any machine",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Open the session's GPUs as soon as the options are read, before any conftest is imported."""
    number = early_config.known_args_namespace.virtual_gpus
    if number is None:
        return
    stack = contextlib.ExitStack()
    try:
        early_config.stash[_gpus] = _open(stack, number)
    except (ValueError, RuntimeError) as error:
        raise pytest.UsageError(f"--virtual-gpus: {error}") from None
    early_config.add_cleanup(stack.close)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Report that the GPUs are virtual."""
    gpus = config.stash.get(_gpus, None)
    return None if gpus is None else f"virtual GPUs: {len(gpus)} (dpdemo)"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Open a marked test's GPUs before its fixtures are made."""
    wanted = _marked(item)
    session = item.config.stash.get(_gpus, None)
    if wanted is None or (session is not None and wanted == (len(session), {})):
        return
    number, options = wanted
    stack = item.stash[_stack] = contextlib.ExitStack()
    if session is not None:
        from dpdemo.virtual import suspended

        stack.enter_context(suspended())
    if number:
        item.stash[_gpus] = _open(stack, number, **options)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Close a marked test's GPUs after its fixtures."""
    try:
        yield
    finally:
        if _stack in item.stash:
            item.stash[_stack].close()
            del item.stash[_stack]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Leave dpdemo's frames out of a failure's traceback, unless pytest is to show the full trace."""
    has_gpus = _gpus in item.stash or _gpus in item.config.stash
    if call.excinfo is None or not has_gpus or item.config.option.fulltrace:
        return (yield)
    _hide_frames(call.excinfo.value)
    report = yield
    for repr_traceback, *_ in getattr(report.longrepr, "chain", ()):
        for entry in repr_traceback.reprentries:
            entry.lines[:] = _without_frames(entry.lines)
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:  # pytest sums the test up by it, in CI with the whole message
        crash.message = "\n".join(_without_frames(crash.message.splitlines()))
    return report


def _hide_frames(error: BaseException) -> None:
    """Mark dpdemo's modules in the tracebacks of an error and its causes as pytest wants it."""
    pending, seen = [error], set[int]()
    while pending:
        error = pending.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        for frame, _ in traceback.walk_tb(error.__traceback__):
            names = frame.f_globals
            if str(names.get("__name__", "")).startswith(_HIDDEN):
                names["__tracebackhide__"] = True  # pytest looks for it among a frame's globals
        pending += [each for each in (error.__cause__, error.__context__) if each is not None]


def _without_frames(lines: list[str]) -> Iterator[str]:
    """Drop dpdemo's frames from the text of a traceback, such as a replica's in an error's message."""
    dropped_at = -1
    for line in lines:
        text = line.removeprefix("E").lstrip()
        depth = len(line) - len(text)
        if depth <= dropped_at:
            dropped_at = -1
        if dropped_at < 0 and text.startswith(_OUR_FRAME):
            dropped_at = depth
        if dropped_at < 0:
            yield line


@pytest.fixture
def virtual_gpus(request: pytest.FixtureRequest) -> VirtualGpus:
    """Return the test's virtual GPUs, with the bytes that each holds; peaks start again with the test."""
    has_gpus = _stack in request.node.stash
    gpus = (request.node if has_gpus else request.config).stash.get(_gpus, None)
    if gpus is not None:
        gpus.reset_peaks()
        return gpus
    pytest.fail(
        "fixture `virtual_gpus`: expected virtual GPUs, got none; "
        "mark the test with @pytest.mark.virtual_gpus(2), or run pytest --virtual-gpus 2",
        pytrace=False,
    )


def _marked(item: pytest.Item) -> tuple[int, dict[str, object]] | None:
    """Return how many GPUs the test's nearest marker asks for, and of which kind."""
    marker = item.get_closest_marker("virtual_gpus")
    if marker is None:
        return None
    number = marker.args[0] if len(marker.args) == 1 else None
    known = set(marker.kwargs) <= set(_OPTIONS)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0 or not known:
        named = (f"{key}={value!r}" for key, value in marker.kwargs.items())
        given = ", ".join([*map(repr, marker.args), *named])
        pytest.fail(
            "@pytest.mark.virtual_gpus: expected a number of 0 or more, and options among "
            f"{', '.join(_OPTIONS)}, got ({given})",
            pytrace=False,
        )
    return number, dict(marker.kwargs)


def _tell(problem: tuple[str, ...]) -> None:
    """Write why the ranks of a test can never go on; it fails with them."""
    print("", *problem, sep="\n", file=sys.stderr, flush=True)  # noqa: T201


def _open(stack: contextlib.ExitStack, number: int, **options: Any) -> VirtualGpus:
    from dpdemo.ranks.log import NOTES
    from dpdemo.startup.hook import GPUS

    os.environ.pop(GPUS, None)  # a worker of xdist opens its GPUs here, not when torch is imported
    if "PYTEST_XDIST_WORKER" in os.environ:  # it watches the ranks of its tests, not the session above it
        os.environ.pop(NOTES, None)
    from dpdemo.ranks.gathering import gathering
    from dpdemo.ranks.hardware import Hardware, reaching_children
    from dpdemo.virtual import virtual_gpus

    if options.get("storage", "cpu") == "cpu":  # ranks that a test starts with mp.spawn see the GPUs too
        chosen = {name: value for name, value in options.items() if name != "storage"}
        stack.enter_context(reaching_children(Hardware(number, **chosen)))
        ranks = stack.enter_context(gathering())
        if ranks is not None:
            ranks.start(_tell, ends_process=False)
    return stack.enter_context(virtual_gpus(number, **options))
