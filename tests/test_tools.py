"""Every program under `tests/tools` and `tests/gpus` is started once, on its smallest input."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "tests" / "tools"
STARTED = {
    "tools/bench/check.py": "--quick",
    "tools/bench/commands.py": "--quick",
    "tools/bench/epoch.py": "--quick",
    "tools/bench/launches.py": "--quick",
    "tools/bench/memory.py": "--quick",
    "tools/bench/random_numbers.py": "--quick",
    "tools/bench/ranks.py": "--quick",
    "tools/bench/virtual.py": "--quick",
    "tools/refusals.py": "",
    "tools/releases.py": f"--python {sys.executable} --only tests/test_sizes.py",
    "tools/pytorch_rank_tests.py": "test_nccl_backend_bool test_accumulate_gradients test_ddp_hook_parity",
    "gpus/memory_against_cuda.py": "--predict tests/gpus/cuda_programs.py:lstm",
    "gpus/steps_on_card.py": "virtual",
}
STARTED_ELSEWHERE = {
    "tools/bench/bare_ddp.py", "tools/bench/ddp_step.py", "tools/bench/ddp_epoch.py",
    "tools/bench/empty.py", "tools/bench/tutorial.py",
    "tools/cpus.py", "tools/floors.py", "tools/wheel.py", "tools/movie.py", "tools/pictures.py",
    "tools/notebook.py", "tools/readme.py", "tools/fuzz/commandline.py", "tools/fuzz/dataparallel.py",
    "tools/fuzz/interrupts.py", "tools/mismatch_sweep.py", "tools/opinfo_sweep.py", "tools/out_sweep.py",
    "tools/cuda_kernels.py", "tools/pytorch_own_tests.py", "tools/bench/quick.py", "tools/bench/ratios.py",
}  # fmt: skip
"""By other benchmarks, other tests, or CI."""
NEEDS_A_GPU = ["cuda_sweep.py", "memory_against_cuda.py", "steps_on_card.py"]


def run_program(path, *arguments):
    command = [sys.executable, str(ROOT / "tests" / path), *arguments]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("path", STARTED)
def test_a_program_runs(path):
    done = run_program(path, *STARTED[path].split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def test_no_program_is_forgotten():
    programs = {
        path.relative_to(ROOT / "tests").as_posix()
        for folder in (TOOLS, ROOT / "tests" / "gpus")
        for path in folder.rglob("*.py")
        if '__name__ == "__main__"' in path.read_text() or path.parent.name == "bench"
    }
    known = STARTED.keys() | STARTED_ELSEWHERE | {f"gpus/{name}" for name in NEEDS_A_GPU}
    assert programs - known == set()


def test_files_for_other_processors_exist():
    sys.path.insert(0, str(TOOLS))
    import cpus

    assert [
        name for name in (*cpus.SHORT, *cpus.COMPUTING) if not (ROOT / name.partition("::")[0]).exists()
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS_A_GPU)
def test_without_a_gpu_a_comparison_with_one_says_so(name):
    done = run_program(f"gpus/{name}")
    assert done.returncode
    assert "expected a CUDA GPU, got none" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_list_of_cuda_kernels_is_current():
    sys.path.insert(0, str(TOOLS))
    import cuda_kernels

    held = cuda_kernels.TARGET.read_text()
    release = re.match(r"torch ([\d.]+):", held)[1]
    now = cuda_kernels.text_of(cuda_kernels.kernels())
    if now.startswith(f"torch {release}:"):
        assert now == held
    assert len(now) == pytest.approx(len(held), rel=0.2)  # another release has some other kernels


@pytest.mark.slow
def test_a_file_of_pytorchs_tests_runs_on_virtual_gpus(tmp_path):
    copy_of_tests = tmp_path / "test_data_parallel.py"
    copy_of_tests.write_text(
        "import torch\n"
        "from torch import nn\n"
        "from torch.testing._internal.common_utils import TestCase, run_tests\n"
        "class TestDataParallel(TestCase):\n"
        "    def test_split(self):\n"
        "        model = nn.DataParallel(nn.Linear(2, 2).cuda())\n"
        "        self.assertEqual(model(torch.ones(4, 2, device='cuda')).shape, (4, 2))\n"
        "        self.assertEqual(len(model.device_ids), 3)\n"
    )
    done = run_program("tools/pytorch_own_tests.py", str(copy_of_tests), "-n", "3")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "target", ["demo", "test", "test-all", "test-gpus", "bench", "lint", "docs", "clean"]
)
def test_make_targets_name_existing_programs(target):
    done = subprocess.run(
        [shutil.which("make"), "-n", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout
    loops = re.findall(r"for program in ([^;]+);.*?(tests/\S+?)\$program\.py", done.stdout, re.DOTALL)
    assert len(loops) == done.stdout.count("for program")
    for names, folder in loops:
        for name in names.split():
            assert (ROOT / folder / f"{name}.py").is_file()
