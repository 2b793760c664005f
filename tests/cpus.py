"""The suite with the kernels that other processors would take: `make test-cpus`.

Which kernel a library takes depends on the processor, the shapes and the number of threads, and so does
round-off. Each setting makes one library choose as it would elsewhere; one that cannot be had is named.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
SETTINGS = (
    *({"ATEN_CPU_CAPABILITY": known} for known in ("default", "avx2", "avx512")),
    *({"MKL_CBWR": branch} for branch in ("COMPATIBLE", "AVX2")),
    *({"ONEDNN_MAX_CPU_ISA": known} for known in ("SSE41", "AVX2")),
    # left to itself, MKL takes no more threads than there are cores, and PyTorch follows it
    *({"OMP_NUM_THREADS": number, "MKL_DYNAMIC": "FALSE"} for number in ("1", "2", "4")),
)
OLDEST = {
    "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OMP_NUM_THREADS": "1",
}  # fmt: skip
COMPUTING = [
    "tests/virtual", "tests/weighting", "tests/checking", "tests/memory", "tests/comparing", "tests/models",
    "tests/running/test_ddp.py", "tests/running/test_runner.py", "tests/reports", "tests/replaying",
    "tests/explaining", "tests/cli/test_explain.py", "tests/fuzz", "tests/test_readme.py",
]  # fmt: skip
"""Where what is asserted depends on numbers that a kernel computed, or on what it keeps while it does."""
SHORT = [
    "tests/virtual/test_data_parallel.py", "tests/weighting", "tests/checking/test_clean_models.py",
    "tests/checking/test_watching.py", "tests/checking/test_unequal.py", "tests/comparing", "tests/replaying",
    "tests/explaining", "tests/reports", "tests/models", "tests/fuzz/test_fuzz.py", "tests/test_readme.py",
]  # fmt: skip
"""The part of it for every run of CI: whatever compares numbers of one program with those of another."""
LEVELS = ["default", "avx2", "avx512"]


def main() -> None:
    """Run the part that computes in each setting; with --oldest the short one, in the lowest of each."""
    is_short = sys.argv[1:] == ["--oldest"]
    oldest = {key: value for key, value in OLDEST.items() if not obstacle({key: value})}
    failed = []
    for setting in [oldest] if is_short else SETTINGS:
        text = " ".join(f"{key}={value}" for key, value in setting.items())
        reason = obstacle(setting)
        print(f"\n{text}{f': left out, {reason}' if reason else ''}", flush=True)
        if not reason and not passes(setting, SHORT if is_short else COMPUTING):
            failed.append(text)
    sys.exit("\n".join(["failed under:", *failed]) if failed else 0)


def obstacle(setting: dict[str, str]) -> str:
    """Say why a setting cannot be had here, or nothing."""
    own = torch.backends.cpu.get_cpu_capability().lower()
    levels = LEVELS[: LEVELS.index(own) + 1] if own in LEVELS else LEVELS[:1]
    if setting.get("ATEN_CPU_CAPABILITY", "default") not in levels:
        return f"for this processor has {own}"  # PyTorch would take the setting at its word, and crash
    if "MKL_CBWR" in setting and not torch.backends.mkl.is_available():
        return "for this torch has no MKL"
    if "ONEDNN_MAX_CPU_ISA" in setting and platform.machine() not in {"x86_64", "AMD64"}:
        return f"for it is of x86, and this is {platform.machine()}"
    return ""


def passes(setting: dict[str, str], tests: list[str]) -> bool:
    """Run tests in a setting, once torch says that it heeds it."""
    env = {**os.environ, **setting}
    code = "import torch; print(torch.backends.cpu.get_cpu_capability().lower(), torch.get_num_threads())"
    told = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    for key, got in zip(("ATEN_CPU_CAPABILITY", "OMP_NUM_THREADS"), told.stdout.split(), strict=True):
        if setting.get(key, got) != got:
            sys.exit(f"expected torch to heed {key}={setting[key]}, got {got}")
    command = [sys.executable, "-m", "pytest", "-n", "2", "-q", *tests]
    return subprocess.run(command, env=env, cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    main()
