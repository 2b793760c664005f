"""Files that are read: a silent pipe, a device without an end and JSON without a bottom are errors."""

import os
import sys
import threading

import processes
import pytest

from dpdemo import files


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(files, "WAITS_SECONDS", 0.05)


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def test_a_fifo_that_nobody_writes_to_is_not_waited_for(fifo):
    with pytest.raises(TimeoutError, match=r"nothing came of it in 0\.05 s"):
        files.read_bytes(fifo)


def test_what_comes_through_a_pipe_is_read_to_its_end(fifo, monkeypatch):
    monkeypatch.setattr(files, "WAITS_SECONDS", 10)
    writer = threading.Thread(target=fifo.write_bytes, args=(b"x" * 300_000,))
    writer.start()
    assert files.read_bytes(fifo) == b"x" * 300_000
    writer.join()


def test_a_shells_own_pipe_is_read_too():
    call = "from dpdemo.files import read_text; import sys; print(read_text('/dev/stdin'), end='')"
    done = processes.run([sys.executable, "-c", call], input="gpus: 2\n")
    assert (done.stdout, done.stderr) == ("gpus: 2\n", "")


def test_no_more_is_read_than_is_asked_for(tmp_path):
    assert files.read_bytes("/dev/zero", 5) == bytes(6)
    (tmp_path / "long").write_bytes(bytes(9))
    assert len(files.read_bytes(tmp_path / "long", 5)) == 6
    assert len(files.read_bytes(tmp_path / "long", 9)) == 9


def test_a_file_without_an_end_is_too_large(monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 100)
    with pytest.raises(OSError, match="too large"):
        files.read_text("/dev/zero")


@pytest.mark.parametrize("place", [".", "no/such"])
def test_what_is_no_file_is_an_error_of_the_system(place):
    with pytest.raises(OSError, match=r"Is a directory|No such file"):
        files.read_text(place)


@pytest.mark.parametrize("text", ["[" * 100_000, "NaN", "Infinity", "9" * 5000, "{", "\udcff"])
def test_what_is_no_json_is_a_value_error(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=r"JSON|deep|Exceeds|Expecting|decode"):
        files.read_json(tmp_path / "x.json")
