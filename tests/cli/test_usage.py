"""Bad usage: exit code 2, a message on stderr with expected, got, where; nothing on stdout; no traceback."""

import sys

import pytest


def test_a_bad_config_names_file_line_and_key(dpdemo, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("data_size: 10\nbatch_sise: 30\n")
    done = dpdemo("simulate", "--config", path)
    assert done.code == 2
    assert f"expected a known key, got `batch_sise` - at {path}:2" in done.err
    assert "did you mean `batch_size`?" in done.err
    assert done.out == ""


def test_an_option_wins_over_the_file(dpdemo, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("batch_size: 30\n")
    done = dpdemo("simulate", "-c", path, "--batch-size", "64", "-f", "csv", "-q")
    assert "64x5" in done.out


def test_a_misspelt_command_is_answered_with_the_nearest(dpdemo):
    done = dpdemo("simulat")
    assert done.code == 2
    assert "Did you mean 'simulate'?" in done.err


def test_no_command_at_all_shows_the_help(dpdemo):
    done = dpdemo()
    assert done.code == 2
    assert "simulate" in done.out + done.err


@pytest.mark.parametrize("kind", ["latin-1", "directory", "tag"])
def test_other_files_are_refused_as_config(dpdemo, tmp_path, kind):
    path = tmp_path / "own.yaml"
    if kind == "directory":
        path.mkdir()
    else:
        path.write_bytes(b"model: caf\xe9" if kind == "latin-1" else b"model: !!python/object:os.system {}")
    said = {
        "latin-1": "expected UTF-8",
        "directory": "got 'Is a directory'",
        "tag": "got !!python/object:os.system",
    }[kind]
    done = dpdemo("simulate", "-c", path)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_failing_forward_exits_with_1_and_the_users_frames(dpdemo, tmp_path, monkeypatch):
    lines = ["from torch import nn", "", "class Fails(nn.Module):", "    def forward(self, x):"]
    (tmp_path / "cli_models.py").write_text("\n".join([*lines, "        raise ValueError('no')", ""]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = dpdemo("run", "--model", "cli_models:Fails")
    sys.modules.pop("cli_models", None)
    assert done.code == 1
    assert "ValueError: no" in done.err
    assert "cli_models.py:5 in forward" in done.err
    assert done.out == ""
    assert "Traceback" not in done.err


def test_more_memory_than_there_is_is_an_error_and_no_traceback(dpdemo):
    done = dpdemo("run", "--batch-size", 10**15, "--data-size", 10**15)
    assert done.code == 1
    assert "memory" in done.err
    assert "Traceback" not in done.err
