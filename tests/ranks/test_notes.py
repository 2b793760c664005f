"""The file in which a rank notes its events."""

import importlib
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from types import SimpleNamespace

import pytest
import torch

from dpdemo.models.frames import without_ours
from dpdemo.ranks.events import Began, Event, FileWritten, Unobserved
from dpdemo.ranks.observe.files import FileNotes
from dpdemo.ranks.observe.follow import observe
from dpdemo.ranks.observe.notes import Notes, holders
from dpdemo.virtual import virtual_gpus
from dpdemo.virtual.applying import _ABSENT, attributes
from dpdemo.virtual.ops.collectives import listeners

EVENT = FileWritten("a.pt", 1, "train.py:3")


def test_modules_that_import_a_function_by_its_name_hold_it_too():
    c10d, mesh = torch.distributed.distributed_c10d, torch.distributed.device_mesh
    assert {c10d, mesh, torch.distributed} <= set(holders("init_process_group"))
    assert holders("init_process_group")[0] is c10d


def test_the_first_event_makes_the_folder_and_begins_with_the_version(tmp_path):
    notes = Notes(tmp_path / "new")
    assert notes.write(EVENT)
    lines = (tmp_path / "new" / f"{os.getpid()}.jsonl").read_bytes().splitlines()
    assert [Event.from_line(line) for line in lines] == [Began(), EVENT]


def test_an_observer_that_sees_the_notes_own_folder_made_does_not_wait_for_itself(tmp_path):
    notes, seen = Notes(tmp_path / "watched"), []

    def audit(event, arguments):
        if event == "os.mkdir" and arguments[0] == str(tmp_path / "watched"):
            seen.append(notes.write(EVENT))

    sys.addaudithook(audit)  # for good, so it looks for this folder alone
    writer = threading.Thread(target=notes.write, args=(EVENT,), daemon=True)
    writer.start()
    writer.join(timeout=60)
    assert not writer.is_alive()
    assert seen == [False]


def events(folder):
    return [Event.from_line(line) for line in (folder / f"{os.getpid()}.jsonl").read_bytes().splitlines()]


def module(name):
    return name.upper()


def test_what_observers_replace_is_put_back_at_the_end(tmp_path):
    notes, owner, listeners = Notes(tmp_path), SimpleNamespace(load=module), []

    @notes.around(owner, "load", why="a module is loaded")
    def load(original, name):
        return original(name) + "!"

    notes.listen(listeners, load)
    assert owner.load("a") == "A!"
    assert listeners == [load]
    notes.close()
    assert owner.load is module
    assert listeners == []


def test_a_traceback_has_no_frame_of_a_patch(tmp_path):
    notes, owner = Notes(tmp_path), SimpleNamespace(load=module)
    notes.around(owner, "load", why="a module is loaded")(lambda original, name: original(name))
    with pytest.raises(AttributeError) as caught:
        owner.load(1)
    text = "".join(traceback.format_exception(caught.value))
    assert "applying.py" in text
    assert "applying.py" not in without_ours(text)


def test_a_patch_whose_attribute_has_moved_costs_its_own_line(tmp_path):
    notes, owner = Notes(tmp_path), SimpleNamespace(load=module)
    for name in ("moved", "load"):
        notes.around(owner, name, why=f"{name} is called")(lambda original, name: original(name) + "!")
    assert owner.load("a") == "A!"
    notes.write(EVENT)
    moved = "AttributeError: 'types.SimpleNamespace' object has no attribute 'moved'"
    assert events(tmp_path) == [Began(), Unobserved("moved is called", moved), EVENT]


def test_an_observer_that_cannot_begin_is_noted_and_no_file_is_made_for_it_alone(tmp_path):
    notes = Notes(tmp_path / "new")
    assert notes.install("files", lambda: 1 // 0) is None
    assert not (tmp_path / "new").exists()
    notes.write(EVENT)
    assert events(tmp_path / "new")[1] == Unobserved(
        "files", "ZeroDivisionError: integer division or modulo by zero"
    )


def test_all_observers_find_what_they_replace_and_put_it_back(tmp_path):
    for name in ("fsdp", "checkpoint", "tensor.parallel", "pipelining"):  # others wait for these
        importlib.import_module(f"torch.distributed.{name}")
    with virtual_gpus(2):
        notes, backward, before = Notes(tmp_path), torch.autograd.backward, list(listeners)
        observe(notes, is_launched=False, is_late=False)
        assert notes.first == [Began()]
        assert torch.autograd.backward is not backward
        applied = list(notes.patches._undo)
        assert len(applied) > 20
        notes.close()
        assert torch.autograd.backward is backward
        assert listeners == before
        for owner, name, _ in applied:
            first = next(value for at, key, value in applied if at is owner and key == name)
            assert attributes(owner).get(name, _ABSENT) is first


def test_a_file_of_notes_needs_no_torch():
    code = "import sys, dpdemo.ranks.observe.notes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0


def test_a_file_is_noted_while_python_looks_for_the_folder_of_temporary_files(tmp_path, monkeypatch):
    """It holds a lock meanwhile, and the first file of a rank's notes may be made then."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    found = FileNotes(Notes(tmp_path / "new"), lambda: 0)
    with tempfile._once_lock:
        thread = threading.Thread(target=found.makes, args=(tmp_path / "made",), kwargs={"is_folder": True})
        thread.daemon = True
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
