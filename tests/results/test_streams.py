"""The libraries that a report loads, and its output in a pipe."""

import sys

import processes

LOADED = "import sys; print(*sorted({'torch','rich','typer','pydantic','ruamel'} & set(sys.modules)))"


def run(code: str, **environment: str) -> str:
    """Run Python as a pipe's upstream, without a terminal."""
    environment = {"PYTHONPATH": ":".join(sys.path), **environment}
    done = processes.run([sys.executable, "-c", code], check=True, env=environment, input="")
    return done.stdout


def test_a_table_in_a_pipe_loads_no_library_and_is_80_columns_wide():
    code = f"import dpdemo; dpdemo.simulate(gpus=3).write('table'); {LOADED}"
    for environment, width in (({}, 80), ({"COLUMNS": "67"}, 67)):
        *lines, loaded = run(code, **environment).splitlines()
        assert loaded == ""
        assert max(map(len, lines)) == width


def test_colours_are_forced_on_a_pipe():
    code = "import dpdemo; dpdemo.simulate(gpus=3).write('table')"
    assert "\x1b[1m" in run(code, FORCE_COLOR="1")
    assert "\x1b" not in run(code)
