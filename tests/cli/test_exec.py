"""`dpdemo exec`, as processes: what an unmodified program does, and what is reported when it is over."""

import json
import sys
import textwrap

import pytest
from jsonforms import read_json
from processes import interrupted, needs_no_gpu

from dpdemo.cli.exec import finisher
from dpdemo.results.ranks import Mistake, RanksResult

pytestmark = needs_no_gpu

SPLITS = {
    2: {30: [15, 15], 10: [5, 5]},
    3: {30: [10, 10, 10], 10: [4, 4, 2]},
    8: {30: [4, 4, 4, 4, 4, 4, 4, 2], 10: [2, 2, 2, 2, 2]},
}  # the cases this project was created from


def tutorial_lines(num_gpus):
    yield f"Let's use {num_gpus} GPUs!"
    for batch in (30, 30, 30, 10):
        for rows in SPLITS[num_gpus][batch]:
            yield f"\tIn Model: input size torch.Size([{rows}, 5]) output size torch.Size([{rows}, 2])"
        yield f"Outside: input size torch.Size([{batch}, 5]) output_size torch.Size([{batch}, 2])"


@pytest.fixture
def script(tmp_path):
    def write(text, name="script.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    return write


@pytest.mark.slow
@pytest.mark.parametrize("num_gpus", SPLITS)
def test_the_tutorial_prints_its_lines_in_device_order_and_its_splits_are_reported(
    program, tmp_path, num_gpus
):
    path = tmp_path / "report.json"
    done = program("exec", "--gpus", num_gpus, "--report", path, "tests/tools/bench/tutorial.py")
    assert done.code == 0
    assert done.out.splitlines() == list(tutorial_lines(num_gpus))
    assert f"Ran on {num_gpus} virtual GPUs: tests/tools/bench/tutorial.py" in done.err
    report = json.loads(path.read_text())
    assert report["schema"] == "dpdemo.exec/1"
    (use,) = report["data_parallel"]
    assert (use["wrapper"], use["module"], use["num_calls"]) == ("DataParallel", "Model", 4)
    assert {
        split["batch_size"]: [replica["rows"] for replica in split["in_model"]] for split in use["splits"]
    } == SPLITS[num_gpus]
    assert [split["count"] for split in use["splits"]] == [3, 1]
    assert use["splits"][1]["idle"] == [f"cuda:{i}" for i in range(len(SPLITS[num_gpus][10]), num_gpus)]
    copies = report["moved"]
    assert copies["num_host_to_device"] == 4 + 2  # batches; weight and bias
    assert copies["host_to_device_bytes"] == (100 * 5 + 5 * 2 + 2) * 4
    assert len(report["memory"]) == num_gpus
    assert all(gpu["peak_bytes"] > 0 for gpu in report["memory"])


def test_failing_program_keeps_traceback_code_and_report(program, script, tmp_path):
    path = script("""
        import os, sys, torch
        from torch import nn
        os.chdir("/")
        print(sys.argv[1:], torch.cuda.device_count())
        unused = nn.DataParallel(nn.ReLU())
        model = nn.DataParallel(nn.Linear(3, 2)).cuda()
        model(torch.randn(5, 3))
        model(torch.randn(5, 4))
    """)
    done = program(
        "exec", "--gpus", "0,1", "--report", tmp_path / "report.json", path, "--help", "--gpus", "x"
    )
    assert done.code == 1
    assert done.out == "['--help', '--gpus', 'x'] 2\n"
    head, _, tail = done.err.partition("Ran ")
    lines = head.splitlines()
    assert lines[:2] == ["Traceback (most recent call last):", f'  File "{path}", line 8, in <module>']
    assert "Caught RuntimeError in replica 0 on device 0" in head
    for ours in ("dpdemo/cli", "dpdemo/programs", "dpdemo/calls", "dpdemo/checking"):
        assert ours not in head
    assert "DataParallel(ReLU) #1 on cuda:0–1: never called" in tail
    assert "run on cuda:0 alone" in " ".join(tail.split())
    assert "DataParallel(Linear) #2 on cuda:0–1: 1 call, 1 more failed" in tail
    report = read_json("exec", (tmp_path / "report.json").read_text())
    assert report["arguments"] == ["--help", "--gpus", "x"]
    assert [use["num_failed"] for use in report["data_parallel"]] == [0, 1]


def test_program_without_dataparallel_is_reported(program, script):
    path = script("""
        import os, torch
        x = torch.ones(256, device="cuda:1").cpu()
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        raise SystemExit("the program's own words")
    """)
    done = program("exec", "--gpus", "2", path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("the program's own words\n")
    assert "DataParallel was not used" in done.err
    lines = " ".join(done.err.split())
    assert "device → host 1 KiB in 1 copy Peak cuda:0 0 B cuda:1 1 KiB" in lines
    assert "The program set CUDA_VISIBLE_DEVICES to '1' after CUDA had read it, so it saw all 2." in lines


def test_program_hides_gpus_from_itself(program, script, tmp_path):
    """The variable's value outside is ignored: it refers to real GPUs."""
    path = script("""
        import os
        assert os.environ.setdefault("CUDA_VISIBLE_DEVICES", "2,0") == "2,0"
        import torch
        print(torch.cuda.device_count(), torch.cuda.mem_get_info(0)[1])
        torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())(torch.ones(4, 2))
    """)
    saved = tmp_path / "report.json"
    options = ("--gpus=3", "--gpu-memory=1MiB,2MiB,3MiB", "--report", saved)
    done = program("exec", *options, path, CUDA_VISIBLE_DEVICES="7")
    assert (done.code, done.out) == (0, f"2 {3 * 2**20}\n")
    assert "DataParallel(Linear) #1 on cuda:0–1: 1 call" in done.err
    assert "The program set CUDA_VISIBLE_DEVICES to '2,0', so it saw 2 of 3." in " ".join(done.err.split())
    report = read_json("exec", saved.read_text())
    assert [gpu["capacity_bytes"] for gpu in report["memory"]] == [3 * 2**20, 2**20]


def test_quiet_leaves_the_report_out_and_the_code_and_stdin_are_the_programs(program, script, tmp_path):
    path = script("""
        import gc, sys, __main__
        assert gc.isenabled() and __main__.__file__ == __file__
        print(__name__, sys.argv, input())
        sys.exit(7)
    """)
    done = program("exec", "--gpus=3", "-q", "--report", tmp_path / "r.json", path, "-q", typed="typed\n")
    assert (done.code, done.err) == (7, "")
    assert done.out == f"__main__ ['{path}', '-q'] typed\n"
    assert json.loads((tmp_path / "r.json").read_text())["data_parallel"] == []


MISTAKE, NOTE = (
    Mistake("All ranks drew the same samples", "train.py:9", "…", kind) for kind in ("mistake", "note")
)


@pytest.mark.parametrize(
    ("found", "fail_on", "fails"),
    [
        ([MISTAKE], "mistakes", True),
        ([MISTAKE], "never", False),
        ([NOTE], "mistakes", False),
        ([], "mistakes", False),
    ],
)
def test_mistakes_of_ranks_make_the_exit_code_1_if_asked_for(capsys, found, fail_on, fails):
    report = RanksResult("train.py", (), (), mistakes=tuple(found))
    assert finisher(fail_on=fail_on, quiet=True)(report) is fails
    assert ("--fail-on mistakes: All ranks drew the same" in capsys.readouterr().err) is fails


def test_findings_make_the_exit_code_1_if_asked_for_once_all_exit_functions_ran(program, script):
    path = script("""
        import atexit, torch
        atexit.register(print, "last")
        class Net(torch.nn.Linear):
            seen = 0
            def forward(self, rows):
                self.seen += 1
                return super().forward(rows)
        torch.nn.DataParallel(Net(2, 2).cuda())(torch.ones(4, 2).cuda()).sum().backward()
    """)
    done = program("exec", "--gpus=2", "--check", "--fail-on=error", path)
    assert (done.code, done.out) == (1, "last\n")
    assert "--fail-on error: Net on 2 virtual GPUs" in done.err
    assert program("exec", "--gpus=2", "--check", path).code == 0


def test_a_severity_needs_a_check(dpdemo):
    done = dpdemo("exec", "--fail-on", "error", "train.py")
    assert "expected `--check` beside `error`, got none" in done.err


def test_the_report_is_saved_by_the_ending_of_the_file(program, script, tmp_path):
    path = script("import torch; torch.ones(2).cuda()")
    saved = [tmp_path / name for name in ("r.json", "r.txt", "r.svg")]
    done = program("exec", "--gpus=1", *(f"--save={each}" for each in saved), path)
    assert done.code == 0
    assert [each.read_text()[:1] for each in saved] == ["{", "R", "<"]


def test_a_module_with_workers_threads_and_atexit_functions_keeps_its_gpus_to_the_end(
    program, script, tmp_path
):
    """All in one program: each process costs an import of torch."""
    (tmp_path / "pkg").mkdir()
    script("own = 3", "pkg/__init__.py")
    script(
        """
        import atexit, os, pickle, sys, threading, time
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        from . import own

        class Numbers(Dataset):
            def __len__(self): return 6
            def __getitem__(self, index): return torch.full((2,), float(index))

        class Model(nn.Linear):
            pass

        def late():
            time.sleep(0.3)
            print("thread", model(torch.ones(4, 2)).device)

        def last():
            print("atexit", model(torch.ones(3, 2)).device)

        if __name__ == "__main__":
            model = nn.DataParallel(Model(2, 2)).cuda()
            assert type(pickle.loads(pickle.dumps(model)).module) is Model
            for batch in DataLoader(Numbers(), batch_size=4, num_workers=2, pin_memory=True):
                print("batch", model(batch.cuda()).shape[0])
            sys.stdout.flush()  # else the child has it to flush too
            child = os.fork()
            if not child:
                sys.exit(5)
            print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            atexit.register(last)
            threading.Thread(target=late).start()
            print("end", sys.argv[1:], own)
        """,
        "pkg/mod.py",
    )
    done = program("exec", "--gpus", "2", "-m", "pkg.mod", "-m", "--report", "x", cwd=tmp_path)
    assert done.code == 0, done.err
    late = ["thread cuda:0", "atexit cuda:0"]
    if (3, 12) <= sys.version_info < (3, 12, 3):
        late = []  # there no thread can be started once the main one is done: python/cpython#113964
    assert done.out.splitlines() == ["batch 4", "batch 2", "child 5", "end ['-m', '--report', 'x'] 3", *late]
    assert done.err.count("Ran on 2 virtual GPUs: -m pkg.mod") == 1
    assert "DataParallel(Model) #1 on cuda:0–1: 4 calls" in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "code", "reported"),
    [("os._exit(6)", 6, False), ("sys.stderr.close()", 0, False), ("sys.stdout.close()", 0, True)],
)
def test_abrupt_end_and_closed_streams_keep_the_exit_code(program, script, ending, code, reported):
    done = program("exec", "--gpus", "1", script(f"import os, sys\nprint('a', flush=True)\n{ending}"))
    assert (done.code, done.out) == (code, "a\n")
    assert ("Ran on 1 virtual GPU:" in done.err) is reported
    assert "Exception" not in done.err


def test_unsaved_report_is_an_error_and_the_code_stays(program, script, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    path = script(f"import os; os.rmdir({str(folder)!r})")
    done = program("exec", "--gpus", "1", "--quiet", "--report", folder / "r.json", path)
    assert done.code == 0
    assert f"error: could not save '{folder}/r.json': No such file or directory" in done.err


TRAINING = """
    import gc
    import torch
    from torch import nn

    model = nn.DataParallel(nn.Linear(1024, 1024)).cuda()
    batch = {batch}
    while True:
        try:
            model(torch.randn(batch, 1024).cuda()).sum().backward()
            break
        except {caught}:
            batch //= 2
        gc.collect()  # DataParallel's error holds its own frames, and they the tensors
        torch.cuda.empty_cache()
    print("done", batch)
"""


def on_small_gpus(program, path, *options):
    return program("exec", "--gpus", 2, "--gpu-memory", "24MiB", *options, path)


def test_report_shows_memory_and_capacity_of_each_gpu(program, script, tmp_path):
    path = script(TRAINING.format(batch=8, caught="torch.cuda.OutOfMemoryError"))
    done = on_small_gpus(program, path, "--report", tmp_path / "r.json")
    assert (done.code, done.out) == (0, "done 8\n"), done.err
    assert done.err.count("of 24 MiB") == 2
    for gpu in json.loads((tmp_path / "r.json").read_text())["memory"]:
        assert 4 * 2**20 < gpu["peak_bytes"] < gpu["capacity_bytes"] == 24 * 2**20


def test_out_of_memory_has_cudas_error_and_the_peaks(program, script):
    path = script(TRAINING.format(batch=16384, caught="ZeroDivisionError"))
    done = on_small_gpus(program, path)
    assert (done.code, done.out) == (1, "")
    head, _, tail = done.err.partition("Ran on 2 virtual GPUs")
    assert f'File "{path}", line 9, in <module>' in head
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has" in head
    assert "a total capacity of 24.00 MiB of which" in head
    assert "cli/exec.py" not in head
    assert tail.count("of 24 MiB") == 2


def test_program_may_catch_out_of_memory(program, script):
    path = script(TRAINING.format(batch=16384, caught="torch.cuda.OutOfMemoryError"))
    done = on_small_gpus(program, path, "-q")
    assert (done.code, done.err) == (0, "")
    word, batch = done.out.split()
    assert word == "done"
    assert 8 <= int(batch) < 16384


SHORT_TENSOR = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 4)

        def forward(self, x, w):
            return self.fc(x) * w.mean()

    parallel = nn.DataParallel(Net().cuda())
    print(parallel(torch.randn(32, 8).cuda(), torch.ones(1).cuda()).shape)
"""


def test_check_names_the_short_argument(program, script):
    path = script(SHORT_TENSOR)
    done = program("exec", "--gpus", 4, "--check", "-q", path)
    assert (done.code, done.out) == (0, "torch.Size([8, 4])\n")
    assert f"error DP201 truncated-batch  {path}:9" in done.err
    assert "`w` has 1 of 32 rows, so only 8 of 32 samples are computed" in " ".join(done.err.split())


@pytest.mark.slow
def test_ctrl_c_while_a_call_is_rehearsed_ends_the_program_as_python_does(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        textwrap.dedent("""
        import os, time, torch
        from torch import nn

        class Slow(nn.Module):
            def forward(self, x):
                os.write(2, b"in forward\\n")
                time.sleep(60)

        nn.DataParallel(Slow())(torch.ones(8, 4))
    """)
    )
    code, out, err = interrupted("in forward", "-m", "dpdemo", "exec", "--gpus", "2", "--check", path)
    assert (code, out) == (130, "")
    head, _, tail = err.partition("Ran on 2 virtual GPUs")
    assert head.rstrip().splitlines()[-1] == "KeyboardInterrupt"
    assert "dpdemo/checking" not in head
    assert " ".join(tail.split()).endswith("nothing was compared; the program was interrupted")


def test_default_is_two_gpus_with_a_hint(program, script):
    path = script("import torch\nprint(torch.cuda.device_count())\n")
    done = program("exec", path, "--gpus", "8")
    assert (done.code, done.out) == (0, "2\n")
    assert f"hint: `--gpus` after {path} belongs to the program" in done.err
    assert "hint: 2 virtual GPUs, since none were named" in done.err


@pytest.mark.parametrize("words", [["torchrun"], ["-m", "torch.distributed.run"]])
def test_a_launcher_of_ranks_is_refused_beside_ranks(program, words):
    done = program("exec", "--ranks", "2", *words, "--nproc-per-node", "2", "train.py")
    assert done.code == 2
    assert "got torch" in done.err
    assert f"hint: dpdemo exec --gpus 2 {' '.join(words)}" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("words", [["python"], ["python3.11"], ["/usr/bin/python3"]])
def test_an_interpreter_before_the_script_is_left_out(program, script, words):
    path = script("import sys\nprint(sys.argv[1:])\n")
    done = program("exec", "--gpus", "2", *words, path, "--lr", "3")
    assert (done.code, done.out) == (0, "['--lr', '3']\n")
    assert f"hint: `{words[0]}` is left out" in done.err


def test_python_m_is_read_as_a_module(program):
    done = program("exec", "--gpus", "2", "python", "-m", "timeit", "-h")
    assert done.code == 0
    assert "Tool for measuring execution time" in done.out
