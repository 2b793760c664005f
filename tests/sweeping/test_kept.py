"""Predictions that are kept count only while all holds that they were made from."""

import json
import os

import pytest

from dpdemo.sweeping import sources
from dpdemo.sweeping.kept import MOST_FILES, Kept, cache_folder
from dpdemo.sweeping.sources import noting_sources


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.json"
    path.write_text("1")
    os.utime(path, (1, 1))
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kept"


def keep(folder, data, question="linear"):
    with noting_sources() as noted:
        data.read_text()
    Kept.of(question, folder).add({"2 x 30": 7}, noted.sources())


def test_what_was_kept_is_there_for_the_same_question(folder, data):
    keep(folder, data)
    assert Kept.of("linear", folder).get("2 x 30") == 7
    assert Kept.of("linear", folder).get("3 x 30") is None
    assert Kept.of("cnn", folder).get("2 x 30") is None


def test_more_predictions_are_kept_beside_the_first(folder, data):
    keep(folder, data)
    kept = Kept.of("linear", folder)
    with noting_sources() as noted:
        kept.add({"3 x 30": 8}, noted.sources())
    found = Kept.of("linear", folder)
    assert (found.get("2 x 30"), found.get("3 x 30")) == (7, 8)
    data.write_text("2")
    assert Kept.of("linear", folder).get("3 x 30") is None  # the file of the first counts for both


@pytest.mark.parametrize("change", ["contents", "gone", "environment", "folder", "import", "time alone"])
def test_a_prediction_goes_when_what_it_was_made_from_changes(folder, data, change, monkeypatch, tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    monkeypatch.syspath_prepend(str(code))
    keep(folder, data)
    match change:
        case "contents":
            data.write_text("2")
            os.utime(data, (1, 1))
        case "gone":
            data.unlink()
        case "environment":
            monkeypatch.setenv("WIDTH", "12")
        case "folder":
            monkeypatch.chdir(tmp_path)
        case "import":
            (code / "faster.py").write_text("")
        case "time alone":
            data.touch()
    assert Kept.of("linear", folder).get("2 x 30") == (7 if change == "time alone" else None)


def test_a_large_file_is_told_by_size_and_time_alone(folder, data, monkeypatch):
    monkeypatch.setattr(sources, "MOST_BYTES", 0)
    keep(folder, data)
    assert Kept.of("linear", folder).get("2 x 30") == 7
    data.touch()
    assert Kept.of("linear", folder).get("2 x 30") is None


def test_a_file_that_is_written_while_it_is_read_makes_nothing_that_is_kept(folder, data):
    with noting_sources() as noted:
        data.read_text()
        data.write_text("2")
    Kept.of("linear", folder).add({"2 x 30": 7}, noted.sources())
    assert not folder.exists()


def test_modules_of_ones_own_are_sources_too(folder, data, monkeypatch, tmp_path):
    module = tmp_path / "code" / "own_module_of_this_test.py"
    module.parent.mkdir()
    module.write_text("WIDTH = 1")
    os.utime(module, (1, 1))
    monkeypatch.syspath_prepend(str(module.parent))
    __import__("own_module_of_this_test")
    keep(folder, data)
    assert Kept.of("linear", folder).get("2 x 30") == 7
    module.write_text("WIDTH = 2")
    assert Kept.of("linear", folder).get("2 x 30") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "dpdemo.predictions/1", "sources": 3}', "\x00"])
def test_a_broken_file_is_no_error_only_no_help(folder, data, text):
    keep(folder, data)
    (path,) = folder.glob("*.json")
    path.write_text(text)
    assert Kept.of("linear", folder).get("2 x 30") is None
    keep(folder, data)
    assert Kept.of("linear", folder).get("2 x 30") == 7


def test_where_nothing_can_be_written_nothing_is_kept_and_nothing_fails(data, tmp_path):
    (tmp_path / "kept").write_text("a file where the folder should be")
    keep(tmp_path / "kept", data)
    assert Kept.of("linear", tmp_path / "kept").get("2 x 30") is None


def test_the_oldest_files_go(folder, data):
    folder.mkdir()
    for number in range(MOST_FILES + 3):
        (folder / f"{number}.json").write_text("{}")
        os.utime(folder / f"{number}.json", (number, number))
    keep(folder, data)
    assert len(list(folder.glob("*.json"))) == MOST_FILES
    assert not (folder / "0.json").exists()


def test_a_kept_file_names_no_value_of_the_environment(folder, data, monkeypatch):
    monkeypatch.setenv("TOKEN", "very-secret")
    keep(folder, data)
    (path,) = folder.glob("*.json")
    assert "very-secret" not in path.read_text()
    assert set(json.loads(path.read_text())) == {"schema", "sources", "predictions"}


def test_the_folder_is_that_of_the_users_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "dpdemo" / "predictions"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "dpdemo" / "predictions"
