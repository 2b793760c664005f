"""`dpdemo doctor`, and a target without any command."""

import json
import shlex

import pytest
from jsonforms import read_json
from processes import needs_no_gpu

MODEL = """
from torch import nn


class Net(nn.Linear):
    def __init__(self):
        super().__init__(6, 2)
"""
SCRIPT = """
import sys

import torch
from torch import nn


class Net(nn.Linear):
    pass


model = nn.DataParallel(Net(4, 2).cuda())
print(sys.argv[1:], model(torch.zeros(10, 4).cuda()).shape)
"""


@pytest.fixture
def folder(users_folder):
    return users_folder({"model.py": MODEL, "train.py": SCRIPT})


@needs_no_gpu
@pytest.mark.usefixtures("folder")
class TestAModel:
    def test_each_question_has_an_answer(self, program):
        done = program("doctor", "--gpus", "2", "model.py:Net")
        assert done.code == 0
        for question in ("split evenly?", "right?", "fit?", "pay?", "next?"):
            assert question in done.out
        assert "Assumed: --input 32x6" in done.out

    @pytest.mark.slow
    def test_a_target_alone_is_diagnosed(self, program):
        assert program("model.py").out.startswith("Doctor: model.py over 4 GPUs, batch size 32\n")

    @pytest.mark.slow
    def test_exit_code_1_if_an_answer_is_bad(self, program):
        assert program("doctor", "--gpus", "2", "--gpu-memory", "1MiB", "linear").code == 1

    @pytest.mark.slow
    def test_suggested_commands_run(self, program):
        options = "--gpus 2 --gpu T4 --format json"
        done = program("doctor", *options.split(), "model.py:Net")
        named = [answer["more"] for answer in json.loads(done.out)["answers"]]
        assert [line.split()[1] for line in filter(None, named)] == ["simulate", "memory", "speedup", "check"]
        for line in filter(None, named):
            assert program(*shlex.split(line)[1:]).code == 0, line

    @pytest.mark.slow
    def test_json_has_its_form(self, program):
        done = program("doctor", "--gpus", "2", "--format", "json", "model.py:Net")
        assert read_json("doctor", done.out)["ok"] is True


@needs_no_gpu
@pytest.mark.usefixtures("folder")
class TestAScript:
    def test_it_runs_and_its_answers_go_to_stderr(self, program):
        done = program("doctor", "--gpus", "4", "train.py", "--lr", "3")
        assert (done.code, done.out) == (0, "['--lr', '3'] torch.Size([10, 2])\n")
        assert "Doctor: train.py over 4 GPUs" in done.err
        assert "not always: a batch of 10 gives 1 to 3 rows per GPU" in done.err

    @pytest.mark.parametrize("option", [("--input", "8x4"), ("--save", "d.svg"), ("--link", "pcie3")])
    def test_options_of_models_are_refused(self, program, option):
        done = program("doctor", *option, "train.py")
        assert done.code == 2
        assert f"expected a model for it, got a script - at option `{option[0]}`" in done.err

    def test_unused_dataparallel_is_not_called_right(self, program, folder):
        (folder / "broken.py").write_text("def f(:\n")
        done = program("doctor", "--gpus", "2", "broken.py")
        assert (done.code, done.out) == (1, "")
        said = " ".join(done.err.split())
        assert "? Is it right? nothing was checked" in said
        assert "SyntaxError" in said.partition("nothing was checked")[2]
        assert "make the program run to its end" in said

    def test_an_option_behind_a_script_that_dies_is_named(self, program, folder):
        (folder / "strict.py").write_text("import sys\nsys.exit(2 if sys.argv[1:] else 0)\n")
        done = program("strict.py", "--gpus", "8")
        assert done.code == 2
        said = " ".join(done.err.split())
        assert "? Is it right? nothing was checked; the program ended with exit code 2" in said
        assert "write --gpus before strict.py: behind it, it belongs to the program" in said
        assert "Does it pay? not computed for a program" in said

    def test_without_a_command_it_is_the_same(self, program):
        done = program("train.py", "x")
        assert done.out == "['x'] torch.Size([10, 2])\n"
        assert "Is it right?" in done.err
