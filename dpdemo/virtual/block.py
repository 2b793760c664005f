"""`virtual_gpus(n)`: open a block in which this process has n CUDA devices, and close it without a trace."""

import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Literal

import torch

from dpdemo.arithmetic.cards import VIRTUAL, Card, find_card
from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.sizes import capacities
from dpdemo.virtual import patches, state
from dpdemo.virtual.applying import applied
from dpdemo.virtual.errors import OpeningError, warn_if_untested
from dpdemo.virtual.gpus import VirtualGpus
from dpdemo.virtual.kinds import optimizers_watched
from dpdemo.virtual.ledger import Ledger
from dpdemo.virtual.ops import meta
from dpdemo.virtual.ops.casting import stop_casting
from dpdemo.virtual.ops.mode import VirtualGpuMode
from dpdemo.virtual.patches.cuda_devices import visible_variable
from dpdemo.virtual.patches.generators import on_gpu
from dpdemo.virtual.patches.wrappers import forget_initialisation, guarded
from dpdemo.virtual.triton_kernels import interpreted
from dpdemo.virtual.uninterrupted import uninterrupted

_opening = threading.Lock()
_numbers = itertools.count(1)


def is_active() -> bool:
    """Return whether a block of virtual GPUs is open in this process."""
    return state.session is not None


@contextlib.contextmanager
def virtual_gpus(
    num_gpus: int,
    *,
    memory: str | int | Sequence[str | int] | None = None,
    storage: Literal["cpu", "meta"] = "cpu",
    random: Literal["cuda", "cpu"] = "cuda",
    card: str | Card | None = None,
) -> Iterator[VirtualGpus]:
    """Give this process `num_gpus` CUDA devices for the length of a `with` block.

    Inside it `torch.cuda.device_count()` is `num_gpus`, `x.to("cuda:1")` works, and PyTorch's own
    DataParallel runs over the devices with real numbers and gradients. Real GPUs are out of sight meanwhile.
    Leaving the block, also by an exception, puts every attribute of PyTorch that was replaced back. Tensors
    that outlive the block are CPU tensors from then on.

    The devices are the process's: every thread that starts inside the block sees them. A thread that was
    running before does not.

    Args:
        num_gpus: how many devices.
        memory: the capacity of each GPU, as "24GiB" or in bytes, or a list with one for each; past it
            `torch.OutOfMemoryError` is raised. Without it there is no limit, and the GPUs say that they have
            what their card has.
        storage: where the GPUs' numbers are. With "meta" there are none: shapes, devices and bytes come out
            as with "cpu", and no memory is needed. An operator whose result depends on numbers is an error.
            Parameters have no numbers on the host either, so that moving a module keeps them the same
            objects; build the model inside the block.
        random: whose random numbers a GPU draws: those that a real GPU draws from the same seed ("cuda"), or
            those that the CPU draws ("cpu").
        card: what the GPUs are, such as "A100-80GB" or "T4" (`dpdemo/arithmetic/cards.py`): their properties,
            and which random numbers a large tensor gets. Without it they are as large as an H100.

    Returns:
        A context manager; it gives the block's ledger: bytes held, peaks and bytes moved, per GPU.

    Raises:
        ValueError: `num_gpus` is not a number from 1 to 128, `memory` is not a size per GPU, or no such card
            is known.
        OpeningError: a block is open already, or the process has used a real GPU.

    """
    _expect(num_gpus, storage, random)
    warn_if_untested()
    limits, kind = capacities(memory, num_gpus), _card(card)
    session: state.Session | None = None
    try:
        try:
            with uninterrupted():
                session = _open(
                    num_gpus, limits, kind, is_meta=storage == "meta", draws_as_cpu=random == "cpu"
                )
                session.current.inside = True
                if session.is_meta:
                    meta.warm_up()
                _enter(session)
            yield VirtualGpus(session.ledger)
        finally:
            _leave(session)
    finally:
        _leave(session)  # again, for Ctrl-C may have come before it could be held back


def _expect(num_gpus: object, storage: str, random: str) -> None:
    """Raise a ValueError for what no block can be opened with."""
    if isinstance(num_gpus, bool) or not isinstance(num_gpus, int) or not 1 <= num_gpus <= MAX_GPUS:
        raise ValueError(f"`num_gpus`: expected a number from 1 to {MAX_GPUS}, got {num_gpus!r}")
    if storage not in {"cpu", "meta"}:
        raise ValueError(f"`storage`: expected 'cpu' or 'meta', got {storage!r}")
    if random not in {"cuda", "cpu"}:
        raise ValueError(f"`random`: expected 'cuda' or 'cpu', got {random!r}")


def _card(named: str | Card | None) -> Card:
    if named is None:
        return VIRTUAL
    try:
        return find_card(named) if isinstance(named, str) else named
    except ValueError as error:
        raise ValueError(f"`card`: {error}") from None


def _enter(session: state.Session) -> None:
    """Put the GPUs in place, for this thread and those that it starts."""
    with contextlib.ExitStack() as stack:
        stack.callback(stop_casting)
        stack.enter_context(visible_variable(session))
        stack.enter_context(applied(patches.table(session)))
        stack.enter_context(guarded())
        stack.enter_context(optimizers_watched())
        stack.enter_context(interpreted())
        stack.enter_context(session.mode(session))
        session.entered = stack.pop_all()


def _leave(session: state.Session | None) -> None:
    """Put everything back; where that is done, or there is nothing to put back, do nothing."""
    with uninterrupted():
        if session is None or state.session is not session:
            return
        try:
            session.entered.close()
        finally:
            state.session = None
            forget_initialisation()


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Take the open block's GPUs away for the length of a `with` block, and then give them back.

    Meanwhile the process is as it was before the block, and another may be opened. Afterwards everything is
    where it was: tensors, generators, figures. What lies on the GPUs must not be used until then.

    Raises:
        VirtualGpuError: outside any block of virtual GPUs.

    """
    session = state.the_session()
    try:
        _leave(session)
        yield
    finally:
        with uninterrupted():
            state.session = session
            _enter(session)


@contextlib.contextmanager
def separate_ledger() -> Iterator[VirtualGpus]:
    """Book what is allocated and moved in a `with` block on a ledger of its own, which is handed over.

    The program that is being looked at keeps its figures: its peaks and bytes moved stay as they were. What
    is freed is taken off the ledger that it was put on. The separate ledger has no limits: what is looked
    into may need more than the GPUs have.

    Raises:
        VirtualGpuError: outside any block of virtual GPUs.

    """
    session = state.the_session()
    ledger = session.ledger
    session.ledger = Ledger(session.num_gpus)
    try:
        yield VirtualGpus(session.ledger)
    finally:
        session.ledger = ledger


def _open(
    num_gpus: int, limits: list[int | None], card: Card, *, is_meta: bool, draws_as_cpu: bool
) -> state.Session:
    """Claim the process's one block."""
    with _opening:
        if state.session is not None:
            raise OpeningError(
                f"a block of {state.session.num_gpus} virtual GPUs is open already; "
                "leave it before opening another"
            )
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            raise OpeningError(
                "this process uses real GPUs already, and virtual ones would take their names; open the "
                "block before the first use of a GPU, or set CUDA_VISIBLE_DEVICES to an empty string "
                "before torch is imported"
            )
        devices = [torch.device("cuda", index) for index in range(num_gpus)]
        session = state.Session(
            num_gpus=num_gpus,
            key=f"_virtual_gpu_{next(_numbers)}",
            ledger=Ledger(num_gpus, limits),
            is_meta=is_meta,
            devices=devices,
            mode=VirtualGpuMode,
            generators=[on_gpu(device, draws_as_cpu=draws_as_cpu) for device in devices],
            capacities=limits,
            card=card,
            draws_as_cpu=draws_as_cpu,
        )
        for generator in session.generators:
            generator.manual_seed(torch.initial_seed())
        state.session = session
        return session
