"""Prints, logs and warnings of user code are dropped for a while, and nothing else is."""

import contextlib
import io
import logging
import sys
import threading
import warnings

import pytest

from dpdemo.checking.recording.inside import being
from dpdemo.programs.muffling import no_output


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_prints_logs_and_warnings_of_this_thread_are_dropped(capsys):
    with no_output():
        print("out")
        print("err", file=sys.stderr)
        sys.stdout.writelines(["lines\n"])
        warnings.warn("a warning", stacklevel=1)
        logging.getLogger("a").critical("a log")
    assert capsys.readouterr() == ("", "")


def test_what_replicas_print_is_dropped(capsys):
    def replica():
        with being(replica=1, is_aside=True):
            print("replica")

    with no_output():
        in_a_thread(replica)
    assert capsys.readouterr().out == ""


def test_what_other_threads_and_their_replicas_print_is_not(capsys):
    def replica():
        with being(replica=1):
            print("its replica")

    with no_output():
        in_a_thread(lambda: print("another thread"))
        in_a_thread(replica)
    assert capsys.readouterr().out == "another thread\nits replica\n"


def test_what_other_threads_log_is_not(caplog):
    with no_output():
        in_a_thread(lambda: logging.getLogger("a").warning("another thread"))
        logging.getLogger("a").warning("this one")
    assert [record.getMessage() for record in caplog.records] == ["another thread"]


@pytest.mark.parametrize("action", ["default", "module", "error"])
def test_a_warning_that_was_shown_is_not_shown_once_more(action):
    """Python forgets what it has shown whenever filters change."""

    def warn():
        with contextlib.suppress(UserWarning):
            warnings.warn("shown", stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter(action)
        shown = []
        warnings.showwarning = lambda message, *_: shown.append(str(message))
        warn()
        told = list(shown)
        with no_output():
            warn()
        warn()
    assert shown == told == ([] if action == "error" else ["shown"])


def test_a_warning_that_was_first_given_meanwhile_is_shown_afterwards():
    def warn():
        warnings.warn("not shown yet", stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        shown = []
        warnings.showwarning = lambda message, *_: shown.append(str(message))
        with no_output():
            warn()
        warn()
    assert shown == ["not shown yet"]


def test_who_keeps_the_stream_has_the_plain_one_afterwards(capsys):
    with no_output():
        handler = logging.StreamHandler()
        encoding = sys.stdout.encoding
    handler.emit(logging.makeLogRecord({"msg": "later"}))
    assert capsys.readouterr().err == "later\n"
    assert encoding == sys.stdout.encoding


def test_a_stream_that_is_set_meanwhile_stays(monkeypatch):
    mine = io.StringIO()
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    with no_output():
        sys.stdout = mine
    assert sys.stdout is mine


def test_a_process_without_a_console_has_nothing_to_drop(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with no_output():
        print("nowhere")
    assert sys.stdout is None


def test_all_is_as_it_was_also_after_an_exception():
    before = sys.stdout, sys.stderr, logging.root.manager.disable, list(warnings.filters)
    with pytest.raises(KeyboardInterrupt), no_output():
        raise KeyboardInterrupt
    assert (sys.stdout, sys.stderr, logging.root.manager.disable, list(warnings.filters)) == before
