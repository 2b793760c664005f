"""Files that are read: a device without an end is an error."""

import sys

import processes
import pytest

from dpdemo import files


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
def test_missing_file_is_an_oserror(place):
    with pytest.raises(OSError, match=r"Is a directory|No such file"):
        files.read_text(place)
