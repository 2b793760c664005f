"""`dpdemo init`: files to start from."""

import shlex

import pytest

from dpdemo.config.fields import KEYS
from dpdemo.config.load import load_config


def test_written_config_and_model_run(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = program("init")
    assert (done.code, done.out) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dpdemo.yaml", "model.py"]
    seen = program("run", "--virtual", "--config", "dpdemo.yaml", "--model", "model.py:Net", "-q")
    assert seen.code == 0
    assert "Observed: model.py:Net over 3 virtual GPUs" in seen.out


def test_every_key_is_in_the_config_with_a_valid_example(dpdemo, tmp_path):
    dpdemo("init", tmp_path, "-q")
    text = (tmp_path / "dpdemo.yaml").read_text()
    for name in KEYS:
        assert f"{name}: " in text
    assert load_config(tmp_path / "dpdemo.yaml").gpus == (0, 1, 2)


def test_the_suggested_commands_run_where_init_was_typed(dpdemo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = dpdemo("init", "new folder").err
    assert [shlex.split(line)[-1] for line in said.split("`")[1::2]] == [
        "new folder/dpdemo.yaml",
        "new folder/model.py",
    ]


@pytest.mark.parametrize("name", ["dpdemo.yaml", "model.py"])
def test_existing_files_are_not_touched(dpdemo, tmp_path, name):
    (tmp_path / name).write_text("mine")
    done = dpdemo("init", tmp_path)
    assert done.code == 2
    assert f"got {name} there" in done.err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("name", "instead"), [("c.yaml", "dpdemo init c"), ("new/net.py", "dpdemo init new/net")]
)
def test_a_files_name_in_the_place_of_a_folder_is_refused(dpdemo, tmp_path, monkeypatch, name, instead):
    monkeypatch.chdir(tmp_path)
    done = dpdemo("init", name)
    assert done.code == 2
    assert done.err.splitlines()[-1] == f"hint: name a folder, as in `{instead}`"
    assert not list(tmp_path.iterdir())
