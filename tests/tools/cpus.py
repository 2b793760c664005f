"""The suite with the kernels that other processors would take: run this file.

Which kernel a library takes depends on the processor, the shapes and the number of threads, and so does
round-off. A setting makes the libraries choose as they would elsewhere; one that cannot be had is named.
"""

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
OLDEST = {
    "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OMP_NUM_THREADS": "1",
}  # fmt: skip
# left to itself, MKL takes no more threads than there are cores, and PyTorch follows it
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OMP_NUM_THREADS": "2", "MKL_DYNAMIC": "FALSE",
}  # fmt: skip
AVX512 = {"ATEN_CPU_CAPABILITY": "avx512", "OMP_NUM_THREADS": "4", "MKL_DYNAMIC": "FALSE"}
PROCESSORS = (OLDEST, AVX2, AVX512)
"""Settings of three processors: each library's kernels, and as many threads as cores."""
COMPUTING = [
    "tests/virtual", "tests/splitting", "tests/checking", "tests/memory", "tests/models",
    "tests/epochs/test_ddp.py", "tests/epochs/test_runner.py", "tests/results",
    "tests/explaining", "tests/cli/test_explain.py", "tests/test_fuzz.py", "tests/test_readme.py",
]  # fmt: skip
"""Tests whose assertions depend on a kernel's numbers, or on its temporary memory."""
SHORT = [
    "tests/splitting", "tests/checking/test_clean_models.py",
    "tests/programs/test_watched_calls.py",
    "tests/explaining", "tests/cli/test_explain.py", "tests/results", "tests/models",
    "tests/test_fuzz.py::test_random_programs_equal_chunks_by_hand",
]  # fmt: skip
"""The part of it for every run of CI: whatever compares numbers of one program with those of another."""
LEVELS = ["default", "avx2", "avx512"]


def main() -> None:
    """Run tests as other processors would, and exit with 1 where one fails."""
    parser = argparse.ArgumentParser(
        description="The part of the suite that computes, as three processors would."
    )
    parser.add_argument("--oldest", action="store_true", help="a shorter part, as the oldest one would")
    chosen = parser.parse_args()
    settings = (OLDEST,) if chosen.oldest else PROCESSORS
    failed = [
        named(setting) for setting in settings if not passes(setting, SHORT if chosen.oldest else COMPUTING)
    ]
    sys.exit("\n".join(["failed under:", *failed]) if failed else 0)


def named(setting: dict[str, str]) -> str:
    """Write a setting as a shell takes it."""
    return " ".join(f"{key}={value}" for key, value in setting.items())


def obstacle(key: str, value: str) -> str:
    """Return why a variable cannot have a value here, or nothing."""
    capability = torch.backends.cpu.get_cpu_capability().lower()
    levels = LEVELS[: LEVELS.index(capability) + 1] if capability in LEVELS else LEVELS[:1]
    if key == "ATEN_CPU_CAPABILITY" and value not in levels:
        return f"for this processor has {capability}"  # PyTorch would take the setting at its word, and crash
    if key == "MKL_CBWR" and not torch.backends.mkl.is_available():
        return "for this torch has no MKL"
    if key == "ONEDNN_MAX_CPU_ISA" and platform.machine() not in {"x86_64", "AMD64"}:
        return f"for it is of x86, and this is {platform.machine()}"
    return ""


def passes(setting: dict[str, str], tests: list[str]) -> bool:
    """Run tests under the part of a setting that works here, once torch confirms it."""
    obstacles = {key: obstacle(key, value) for key, value in setting.items()}
    possible = {key: value for key, value in setting.items() if not obstacles[key]}
    print(f"\n{named(possible)}", flush=True)
    for key, reason in obstacles.items():
        if reason:
            print(f"without {key}={setting[key]}, {reason}", flush=True)
    if not possible:
        return True
    env = {**os.environ, **possible}
    code = "import torch; print(torch.backends.cpu.get_cpu_capability().lower(), torch.get_num_threads())"
    told = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    for key, got in zip(("ATEN_CPU_CAPABILITY", "OMP_NUM_THREADS"), told.stdout.split(), strict=True):
        if possible.get(key, got) != got:
            sys.exit(f"expected torch to apply {key}={possible[key]}, got {got}")
    command = [sys.executable, "-m", "pytest", "-n", "2", "-q", *tests]
    return subprocess.run(command, env=env, cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    main()
