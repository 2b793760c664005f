"""Calling a replica for `parallel_apply`, and noting what became of it."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from dpdemo.checking.recording.drafts import Draft, raised
from dpdemo.checking.recording.inside import being, here, threads_state
from dpdemo.models.failure import as_exception


class Watched:
    """Calls a replica for `parallel_apply`, and notes what became of it; a call of ours is no script's."""

    def __init__(
        self,
        replica: Callable[..., object],
        index: int,
        draft: Draft,
        safely: Callable[..., Any],
        *,
        is_ours: bool,
    ) -> None:
        self.replica = replica
        self._safely = safely
        self._is_ours = is_ours
        self._index = index
        self._draft = draft
        self._is_aside = here.is_aside

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call the replica, with its number and its GPU known to all that is watched."""
        draft, index = self._draft, self._index
        self._safely(self._note_state)
        replica = self._safely(self._being_replica)
        try:
            with replica or contextlib.nullcontext():
                output = self.replica(*args, **kwargs)
        except BaseException as error:
            self._safely(self._note_failure, error)
            if self._is_ours and not isinstance(error, (Exception, KeyboardInterrupt)):
                raise as_exception(error) from None  # else the replica's thread would show it
            raise
        draft.outputs[index] = output
        return output

    def _note_state(self) -> None:
        self._draft.states[self._index] = threads_state()

    def _note_failure(self, error: BaseException) -> None:
        self._draft.failures[self._index] = raised("replica", error, self._index)

    def _being_replica(self) -> AbstractContextManager[None]:
        draft, index = self._draft, self._index
        device = draft.device_of(index)
        return being(replica=index, device=device, watch=draft.watch, is_aside=self._is_aside)
