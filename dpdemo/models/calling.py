"""Call the user's model, under DataParallel or alone, so that all it raises can be reported.

A replica runs in a thread. `parallel_apply` hands an Exception on to the caller, but nothing else: after
`sys.exit()` in a replica the caller gets a bare `KeyError: 0` (torch/nn/parallel/parallel_apply.py).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dpdemo.calls.seam import around
from dpdemo.models.failure import as_exception, users_code


@contextmanager
def users_model() -> Iterator[None]:
    """Convert all that the user's model raises in a `with` block, except Ctrl-C, to Exceptions.

    Raises:
        Stopped: in place of SystemExit and its like; exceptions are let through.

    """
    with around(parallel_apply=_guarded), users_code():
        yield


def _guarded(proceed: Callable[..., object], modules: Any, *args: Any, **kwargs: Any) -> object:
    return proceed([_guard(module) for module in modules], *args, **kwargs)


def _guard(replica: Callable[..., object]) -> Callable[..., object]:
    def call(*args: object, **kwargs: object) -> object:
        try:
            return replica(*args, **kwargs)
        except Exception:
            raise
        except BaseException as error:  # noqa: BLE001 - users raise what they like
            raise as_exception(error) from None

    return call
