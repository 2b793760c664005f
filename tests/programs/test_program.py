"""Running a program as Python does: Python itself is the oracle."""

import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from processes import PATIENCE_SECONDS, run

from dpdemo.errors import UsageError
from dpdemo.programs.program import Program, find_program

ROOT = Path(__file__).parent.parent.parent
OURS = """
import sys
from dpdemo.programs.program import find_program
from dpdemo.programs.program import run_program
is_module = sys.argv[1] == "-m"
name, *arguments = sys.argv[1 + is_module :]
sys.exit(run_program(find_program(name, arguments, is_module=is_module)))
"""

PROGRAMS = {
    "names": """
        import sys, __main__
        print(sys.argv, __name__, __file__, sys.path[0], __package__, __doc__, type(__loader__))
        print(sorted(vars(__main__)), __spec__ and __spec__.name)
        print(__main__ is sys.modules["__main__"], vars(__main__) is globals())
    """,
    "docstring and future": '''
        """Description of the program."""
        from __future__ import annotations
        x: int = 3
        print(__doc__, __annotations__, type(__builtins__))
    ''',
    "no future of ours": "def f(x: int): ...\nprint(f.__annotations__)",
    "neighbour": "import neighbour; print(neighbour.__file__, neighbour.name)",
    "exit with a number": "import sys; sys.exit(7)",
    "exit with words": "import sys; sys.exit('no more')",
    "exit with nothing": "import sys; sys.exit()",
    "exit with an object": "import sys; sys.exit([1, 2])",
    "exit with a flag": "raise SystemExit(True)",
    "exit at once": "import os, sys; print('lost', end=''); sys.stdout.flush(); os._exit(9)",
    "exit in a thread": """
        import sys, threading
        thread = threading.Thread(target=sys.exit, args=(5,)); thread.start(); thread.join(); print("on")
    """,
    "exception": "def f():\n    1 / 0\nf()",
    "exception with a cause": """
        def f():
            try:
                {}["a"]
            except KeyError as error:
                raise ValueError("b") from error
        f()
    """,
    "exception in a thread": """
        import threading
        thread = threading.Thread(target=lambda: 1 / 0, name="T"); thread.start(); thread.join()
    """,
    "exception group": "raise ExceptionGroup('several', [ValueError('a'), TypeError('b')])",
    "syntax error": "x = = 3",
    "hook": "import sys\nsys.excepthook = lambda *found: print(found[:2], sys.last_value)\n1 / 0",
    "hook that exits": "import sys\nsys.excepthook = lambda *found: sys.exit(4)\n1 / 0",
    "guard": "if __name__ == '__main__':\n    print('guarded')",
    "stdin": "import sys; print(sys.stdin.read().upper())",
    "closed stdout": "import sys; print('a'); sys.stdout.close()",
    "warning": "import warnings; warnings.warn('soon', DeprecationWarning)",
    "at exit": "import atexit; atexit.register(print, 'after', __name__); print('before')",
    "thread that goes on": """
        import threading, time
        class Late: pass
        def work():
            time.sleep(0.2)
            import __main__; print(__main__.Late.__module__)
        threading.Thread(target=work).start()
    """,
    "pickle": """
        import pickle
        class Own:
            x = 1
        print(type(pickle.loads(pickle.dumps(Own()))) is Own)
    """,
    "forked workers": """
        import multiprocessing
        class Own:
            def __init__(self, value): self.value = value
        def make(value): return Own(value)
        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print([own.value for own in pool.map(make, [1, 2])])
    """,
    "spawned workers": """
        import multiprocessing
        def double(value): return 2 * value
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
    """,
    "source": "import inspect\ndef f(): return 1\nprint(inspect.getsource(f))",
    "collector": "import gc; print(gc.isenabled())",
    "relative import": "from . import neighbour",
    "encoding": "# coding: latin-1\nprint('\u00e9')",
}  # fmt: skip


def ran(command, folder, **options):
    """Run it where `dpdemo` can be imported from: in both cases, so that nothing else differs."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return run(command, cwd=folder, env=env, **options)


def as_python(folder, *arguments, **options):
    return ran([sys.executable, *arguments], folder, **options)


def as_ours(folder, *arguments, **options):
    return ran([sys.executable, "-c", OURS, *arguments], folder, **options)


def expect_alike(folder, *arguments, **options):
    python = as_python(folder, *arguments, **options)
    ours = as_ours(folder, *arguments, **options)
    assert (ours.returncode, ours.stdout, ours.stderr) == (python.returncode, python.stdout, python.stderr)
    return ours


def write(path, text, encoding="utf-8"):
    import textwrap

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding=encoding)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "neighbour.py", "name = __name__")
    write(tmp_path / "pkg/__init__.py", "")
    write(tmp_path / "pkg/neighbour.py", "name = __name__")
    return tmp_path


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_does_what_it_does_under_python(folder, name):
    write(folder / "script.py", PROGRAMS[name], "latin-1" if name == "encoding" else "utf-8")
    expect_alike(folder, "script.py", input="typed in")


@pytest.mark.parametrize(
    "name", ["names", "exception", "syntax error", "exit with words", "pickle", "relative import", "guard"]
)
def test_a_module_does_what_it_does_under_python(folder, name):
    write(folder / "pkg/mod.py", PROGRAMS[name])
    expect_alike(folder, "-m", "pkg.mod", "--help", "-m", "x")


def test_options_after_the_script_are_the_scripts(folder):
    write(folder / "script.py", PROGRAMS["names"])
    done = expect_alike(folder, "script.py", "--help", "--gpus", "3", "--", "-m")
    assert "['script.py', '--help', '--gpus', '3', '--', '-m']" in done.stdout


@pytest.mark.parametrize("name", ["sub/script.py", "./sub/script.py", "link.py"])
def test_a_script_elsewhere_has_its_own_folder_on_the_path(folder, name):
    write(folder / "sub/script.py", PROGRAMS["names"])
    (folder / "link.py").symlink_to("sub/script.py")
    assert str(folder / "sub") in expect_alike(folder, name).stdout


def test_folders_archives_and_compiled_scripts_run_too(folder):
    write(folder / "app/__main__.py", PROGRAMS["exception"])
    write(folder / "script.py", PROGRAMS["names"])
    with zipfile.ZipFile(folder / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", "import sys; print(sys.argv, sys.path[0], __name__, __file__)")
    for name in ("app", "app.pyz"):
        expect_alike(folder, name, "a")
    as_python(folder, "-c", "import py_compile; py_compile.compile('script.py', 'script.pyc')")
    expect_alike(folder, "script.pyc", "a")


def test_an_installed_command_is_a_script_if_python_runs_it(folder, monkeypatch):
    monkeypatch.setenv("PATH", str(folder / "bin"))
    for name, first_line in (("launch", "#!/usr/bin/env python3"), ("other", "#!/bin/sh")):
        write(folder / "bin" / name, f"{first_line}\n")
        (folder / "bin" / name).chmod(0o755)
    assert find_program("launch", ["a"]) == Program(str(folder / "bin/launch"), ("a",))
    with pytest.raises(UsageError, match="expected a script, got 'other', which does not exist"):
        find_program("other")


def test_a_submodule_that_is_not_there_is_said_in_pythons_words(folder):
    done = expect_alike(folder, "-m", "pkg.nothing")
    assert (done.returncode, done.stdout) == (1, "")
    assert "No module named pkg.nothing" in done.stderr


def test_a_safe_path_stays_safe(folder):
    write(folder / "script.py", "import neighbour")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    for start in ([sys.executable], [sys.executable, "-c", OURS]):
        done = run([*start, "script.py"], cwd=folder, env=env)
        assert "No module named 'neighbour'" in done.stderr


def test_ctrl_c_shows_pythons_traceback_and_exits_130(folder):
    write(folder / "script.py", "import time\nprint('here', flush=True)\ntime.sleep(60)")
    child = subprocess.Popen(
        [sys.executable, "-c", OURS, "script.py"], cwd=folder, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout.readline() == "here\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == 130
    assert err.splitlines()[0] == "Traceback (most recent call last):"
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert "program.py" not in err


def test_a_hook_that_fails_is_said_with_the_original_exception(folder):
    write(folder / "script.py", "import sys\nsys.excepthook = lambda *found: {}['a']\n1 / 0")
    done = as_ours(folder, "script.py")
    assert done.returncode == 1
    assert "Error in sys.excepthook:" in done.stderr
    assert "KeyError: 'a'" in done.stderr
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("name", "is_module", "said"),
    [
        (
            "no/such.py",
            False,
            "expected a script, got 'no/such.py', which does not exist - at argument `program`",
        ),
        ("pkg", False, "expected a script, got the directory 'pkg' without a `__main__.py`"),
        ("nowhere.mod", True, "expected a module, got 'nowhere.mod': there is no `nowhere`"),
        ("pkg/mod.py", True, "expected a module such as `pkg.mod`, got 'pkg/mod.py'"),
        ("script.py", True, "expected a module such as `pkg.mod`, got 'script.py'"),
        ("", True, "expected a module such as `pkg.mod`, got ''"),
    ],
)
def test_what_cannot_be_run_is_a_usage_error_before_anything_runs(folder, monkeypatch, name, is_module, said):
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError) as caught:
        find_program(name, is_module=is_module)
    assert said in str(caught.value)
    assert caught.value.hint


def test_looking_for_a_module_runs_none_of_it(folder, monkeypatch):
    write(folder / "noisy/__init__.py", "raise SystemExit('ran')")
    monkeypatch.chdir(folder)
    before = list(sys.path)
    assert find_program("noisy.mod", ["a"], is_module=True) == Program("noisy.mod", ("a",), is_module=True)
    assert sys.path == before
