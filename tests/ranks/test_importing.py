"""Functions that run once a program imports a module."""

import importlib
import importlib.util
import sys

import pytest

from dpdemo.startup.hook import when_imported, without_unfinished


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "imported_late.py").write_text("value = 3")
    monkeypatch.syspath_prepend(tmp_path)
    yield "imported_late"
    sys.modules.pop("imported_late", None)


@pytest.mark.parametrize("questions", [0, 2], ids=["imported at once", "asked for before"])
def test_it_is_done_once_after_the_module_is_loaded(module, questions):
    seen, finders = [], list(sys.meta_path)
    when_imported(module, lambda found: seen.append(found.value))
    for _ in range(questions):
        assert importlib.util.find_spec(module) is not None
    assert seen == []
    importlib.import_module(module)
    importlib.reload(sys.modules[module])
    assert seen == [3]
    assert sys.meta_path == finders


@pytest.mark.parametrize("questions", [0, 2], ids=["imported at once", "asked for before"])
def test_two_may_wait_for_one_module(module, questions):
    seen, finders = [], list(sys.meta_path)
    for name in ("first", "second"):
        when_imported(module, lambda found, name=name: seen.append((name, found.value)))
    for _ in range(questions):
        assert importlib.util.find_spec(module) is not None
    importlib.import_module(module)
    importlib.reload(sys.modules[module])
    assert sorted(seen) == [("first", 3), ("second", 3)]
    assert sys.meta_path == finders


def test_a_module_that_is_there_is_taken_at_once():
    seen = []
    when_imported("sys", seen.append)
    assert seen == [sys]


def test_an_import_within_an_unfinished_module_may_import_it_whole(tmp_path, monkeypatch):
    package = tmp_path / "late_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "first.py").write_text("import late_library\nvalue = 3")
    (package / "other.py").write_text("import late_library\nvalue = 4")
    (tmp_path / "late_library.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    seen = []

    def open_gpus(_):
        with without_unfinished("late_package"):
            seen.append(importlib.import_module("late_package.first").value)

    when_imported("late_library", open_gpus)
    assert importlib.import_module("late_package.first").value == 3
    assert seen == [3]
    for name in ("late_library", "late_package.first"):
        del sys.modules[name]
    when_imported("late_library", open_gpus)
    assert importlib.import_module("late_package.other").value == 4  # restored: nothing imported it meanwhile
    for name in [name for name in sys.modules if name.startswith("late_")]:
        del sys.modules[name]
