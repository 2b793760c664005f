"""Processes that a program starts: each finds the GPUs that CUDA_VISIBLE_DEVICES names for it.

What each sees is what CUDA says of the variable (CUDA programming guide), on a machine with four GPUs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parent.parent.parent

CHILD = """
    import dpdemo.virtual  # before torch
    import os, sys, torch
    count = torch.cuda.device_count()
    at = [str(torch.ones(1).cuda(index).device) for index in range(count)]
    uuids = [str(torch.cuda.get_device_properties(index).uuid)[-1] for index in range(count)]
    print(count, at, uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))
"""


def run_exec(folder, program, **files):
    for name, text in {"program": program, **files}.items():
        (folder / f"{name}.py").write_text(dedent(text))
    report = folder / "report.json"
    command = [sys.executable, "-m", "dpdemo", "exec", "--gpus", "4", "--report", str(report), "program.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), json.loads(report.read_text()), done.stderr


ALL = "4 ['cuda:0', 'cuda:1', 'cuda:2', 'cuda:3'] ['0', '1', '2', '3']"


@pytest.mark.slow
def test_subprocesses_see_the_gpus_that_the_program_names_for_them(tmp_path):
    out, report, err = run_exec(
        tmp_path,
        """
        import os, subprocess, sys
        def child(**env): subprocess.run([sys.executable, "child.py"], env={**os.environ, **env}, check=True)
        child()
        child(CUDA_VISIBLE_DEVICES="3,1")
        child(CUDA_VISIBLE_DEVICES="")
        os.environ["CUDA_VISIBLE_DEVICES"] = "2"
        subprocess.run([sys.executable, "child.py"], check=True)
        del os.environ["CUDA_VISIBLE_DEVICES"]
        os.system(f"{sys.executable} child.py")
        os.system(f"CUDA_VISIBLE_DEVICES=1 {sys.executable} child.py")
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        """,
        child=CHILD,
    )
    assert out == [
        f"{ALL} None",
        "2 ['cuda:0', 'cuda:1'] ['3', '1'] 3,1",
        "0 [] [] ",
        "1 ['cuda:0'] ['2'] 2",
        f"{ALL} None",
        "1 ['cuda:0'] ['1'] 1",
    ]
    assert report["devices"] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert report["is_cuda_started"] is False
    assert "used no GPU itself" in " ".join(err.split())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_of_multiprocessing_see_what_the_program_set_before_it_used_a_gpu(tmp_path, method):
    out, _, _ = run_exec(
        tmp_path,
        f"""
        import os, torch, torch.multiprocessing as mp
        def work(index):
            {"import child" if method == "fork" else "pass"}
            x = torch.ones(1, device="cuda", requires_grad=True)
            (x * index).backward()
            print(torch.cuda.device_count(), x.grad.item(), x.device, flush=True)
        if __name__ == "__main__":
            assert torch.cuda.device_count() == 4
            os.environ["CUDA_VISIBLE_DEVICES"] = "1,2"
            mp.start_processes(work, (), nprocs=1, start_method="{method}")
            with mp.get_context("{method}").Pool(1) as pool: pool.map(work, [3])
        """,
        child="",
    )
    assert out == ["2 0.0 cuda:0", "2 3.0 cuda:0"]


@pytest.mark.slow
def test_a_child_starts_its_own_site_customisation_and_finds_its_own_path(tmp_path):
    out, _, _ = run_exec(
        tmp_path,
        """
        import os, subprocess, sys
        first, sep, rest = os.environ["PYTHONPATH"].partition(os.pathsep)
        os.environ["PYTHONPATH"] = sep.join([first, "own", rest])
        os.mkdir("own")
        with open("own/sitecustomize.py", "w") as file: file.write("print('customised')")
        subprocess.run([sys.executable, "child.py"], check=True)
        subprocess.run([sys.executable, "-c", "import child"], check=True)
        """,
        child="""
        import importlib.util, sys, sitecustomize
        print("torch" in sys.modules, sitecustomize.__file__[-20:], [p for p in sys.path if "startup" in p])
        print(importlib.util.find_spec("torch").loader.__class__.__name__)
        import torch
        ours = [finder for finder in sys.meta_path if finder.__class__.__module__ == "sitecustomize"]
        print(torch.cuda.device_count(), torch.__loader__.is_package("torch"), ours)
        """,
    )
    customised = ["customised", "False own/sitecustomize.py []", "SourceFileLoader", "4 True []"]
    assert out == customised * 2


@pytest.mark.slow
def test_data_loaders_with_workers_of_each_kind_read_on_gpus_that_the_program_has_not_used(tmp_path):
    out, _, _ = run_exec(
        tmp_path,
        """
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Squares(Dataset):
            def __len__(self): return 4
            def __getitem__(self, index): return (torch.tensor(index, device="cuda") ** 2).item()
        if __name__ == "__main__":
            for method in "fork", "spawn":
                loader = DataLoader(Squares(), 2, num_workers=2, multiprocessing_context=method)
                print(torch.cat(list(loader)))
        """,
    )
    assert out == ["tensor([0, 1, 4, 9])"] * 2
