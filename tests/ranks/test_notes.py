"""The file in which a rank notes its events."""

import os
import sys
import threading

from dpdemo.ranks.events import Began, Event, FileWritten
from dpdemo.ranks.observe.notes import Notes

EVENT = FileWritten("a.pt", 1, "train.py:3")


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
