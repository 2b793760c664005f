"""What happens in a call is noted for it and no other, and nothing is left behind."""

import threading
import warnings

import torch
from torch import nn

from dpdemo.checking.recording.inside import ReplicaLog, being, watched_by


def patched():
    return nn.Module.state_dict, torch.Tensor.to, torch.zeros, warnings.showwarning


def test_calls_of_threads_that_overlap_leave_nothing_behind():
    before = patched()
    has_begun, may_end = threading.Event(), threading.Event()

    def outlast():
        with watched_by(ReplicaLog()):
            has_begun.set()
            may_end.wait(10)

    thread = threading.Thread(target=outlast)
    with watched_by(ReplicaLog()):
        thread.start()
        assert has_begun.wait(10)
    assert patched() != before  # one of them is still under way
    may_end.set()
    thread.join()
    assert patched() == before


def test_each_call_notes_its_own_events_and_warnings():
    mine, others = ReplicaLog(), ReplicaLog()

    def call(watch, text):
        with watched_by(watch), being(replica=1):
            torch.ones((), requires_grad=True).backward()
            warnings.warn(text, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *_: None
        with watched_by(mine):
            thread = threading.Thread(target=call, args=(others, "another's"))
            thread.start()
            thread.join()
            warnings.warn("mine", stacklevel=1)
    assert [event.kind for event in others.events] == ["backward"]
    assert mine.events == []
    assert (mine.warned, others.warned) == (["mine"], ["another's"])


def test_what_shows_warnings_is_replaced_once_even_if_someone_puts_it_back(monkeypatch):
    """`catch_warnings` of another thread does, when a call was under way as it began."""
    watch, shown = ReplicaLog(), []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: shown.append(str(message)))
    with watched_by(ReplicaLog()):
        stale = warnings.showwarning
    warnings.showwarning = stale
    with warnings.catch_warnings(), watched_by(watch):
        warnings.simplefilter("always")
        assert warnings.showwarning is stale
        warnings.warn("once", stacklevel=1)
    assert shown == watch.warned == ["once"]
