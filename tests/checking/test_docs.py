"""docs/check.md and docs/errors.md hold what the registry and the table of messages have.

`python tests/checking/test_docs.py` writes them.
"""

from pathlib import Path

import pytest
import torch

from dpdemo.checking.doctor import diagnose
from dpdemo.checking.errors import find
from dpdemo.checking.registry import rule_of, rules
from dpdemo.models.messages import OF_OTHERS, find_known
from dpdemo.results.findings import FAMILIES

FILE = Path(__file__).parent.parent.parent / "docs/check.md"
ERRORS = FILE.with_name("errors.md")
BEGIN, END = "<!-- rules: begin -->\n", "<!-- rules: end -->\n"


def rules_table():
    """All rules as a Markdown table: code, name, severity, what is found, and how."""
    lines = ["| rule | name | severity | finds | how it is detected |", "|---|---|---|---|---|"]
    for rule in rules():
        seen = " ".join(rule.section("Seen by").split()).replace("|", "\\|")
        lines.append(f"| {rule.code} | {rule.name} | {rule.severity} | {rule.title} | {seen} |")
    return "\n".join(lines) + "\n"


def with_table(text):
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + rules_table() + END + rest.partition(END)[2]


def test_the_table_of_rules_is_that_of_the_registry():
    text = FILE.read_text()
    assert with_table(text) == text, "run python tests/checking/test_docs.py"


def test_every_rule_is_of_a_family():
    assert {known.code[:3] for known in rules()} == set(FAMILIES)


OF_DATA_PARALLEL = (
    (
        "RuntimeError: module must have its parameters and buffers on device cuda:0 (device_ids[0]) but "
        "found one of them on device: cpu"
    ),
    "AttributeError: 'DataParallel' object has no attribute 'fc'",
    (
        'RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "fc.weight". '
        'Unexpected key(s) in state_dict: "module.fc.weight".'
    ),
    "AssertionError: Invalid device id",
    "ValueError: Attempted to use an uninitialized parameter",
    "TypeError: Net.forward() missing 1 required positional argument: 'mask'",
    "AssertionError: The number of modules 4 is not equal to the number of kwargs_tup 1",
    "RuntimeError: chunk expects at least a 1-dimensional tensor",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 32x8)",
    "ValueError: Expected input batch_size (16) to match target batch_size (32).",
    "RuntimeError: Expected hidden[0] size (2, 16, 8), got [2, 32, 8]",
    "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor",
    (
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
        "cuda:0 and cuda:1!"
    ),
    "StopIteration: Caught StopIteration in replica 0 on device 0.",
    (
        "RuntimeError: Output 0 of BroadcastBackward is a view and is being modified inplace. This view is "
        "the output of a function that returns multiple views."
    ),
    "RuntimeError: you can only change requires_grad flags of leaf variables.",
    (
        "RuntimeError: Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
        "protocol at the moment."
    ),
    "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 8])",
    "RuntimeError: grad can be implicitly created only for scalar outputs",
    "RuntimeError: a Tensor with 4 elements cannot be converted to Scalar",
    "AssertionError: Gather function not implemented for CPU tensors",
    "RuntimeError: Input tensor at index 1 has invalid shape [8, 20], but expected [8, 24]",
    "RuntimeError: Gather got an input of invalid size: got [8, 20], but expected [8, 24]",
)
"""Errors of DataParallel as PyTorch prints them, whose rules errors.py knows."""


def errors_page():
    """Each message with its meaning, as a heading that a search finds."""
    lines = [
        "# Errors of multi-GPU PyTorch, and what they mean",
        "",
        "Written from the table by which `dpdemo check --traceback FILE` (`-` for stdin) explains a",
        "traceback. In an error of DataParallel, `Caught RuntimeError in replica 0 on device 0.` says only",
        "that the rest was raised in a replica: the last line of the traceback is the error.",
        "",
        "## DataParallel",
        "",
    ]
    for text in OF_DATA_PARALLEL:
        rule = rule_of(find(text, "", ""))
        why = " ".join(rule.section("Why").split())
        lines += [f"### `{text}`", "", f"{rule.title} {why[0].upper()}{why[1:]}", ""]
        lines += ["```text", rule.section("After"), "```", ""]
        lines += [f"`dpdemo check model.py:Net` finds it ([{rule.code}](check.md)).", ""]
    lines += ["## torch.distributed and CUDA", ""]
    for error in OF_OTHERS:
        meaning = f"{error.means[0].upper()}{error.means[1:]} What to do: {error.todo}"
        lines += [f"### `{error.text}`", "", meaning, ""]
    return "\n".join(lines)


def test_the_page_of_errors_is_that_of_the_table():
    assert ERRORS.read_text() == errors_page(), "run python tests/checking/test_docs.py"


@pytest.mark.parametrize("error", OF_OTHERS, ids=lambda error: error.text[:50])
def test_another_error_is_explained_where_its_traceback_is_given(error):
    assert find_known(error.text) is error
    frames = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    step()\n'
    text = frames + error.text + "\n"
    assert diagnose(text).notes[0].endswith(error.means)


def test_words_of_a_log_without_an_exception_are_repeated_as_they_are():
    assert diagnose("port 29500: EADDRINUSE: address already in use").notes[0].startswith("EADDRINUSE: ")


FROM_CUDA_BUILDS = ("Watchdog", "Duplicate GPU", "invalid device ordinal", "CUDA out of memory")
"""What a build of torch for the CPU has no words for."""
FROM_PYTHON = ("object has no attribute", "FileNotFoundError")


@pytest.fixture(scope="module")
def pytorchs_words():
    root = Path(torch.__file__).parent
    files = [*root.rglob("*.py"), root / "lib/libtorch_cpu.so", root / "lib/libtorch_python.so"]
    return b"".join(file.read_bytes() for file in files)


@pytest.mark.slow
def test_the_words_are_pytorchs(pytorchs_words):
    """Some four words of each message stand in PyTorch's files as they are."""
    for error in OF_OTHERS:
        if any(word in error.text for word in (*FROM_CUDA_BUILDS, *FROM_PYTHON)):
            continue
        words = error.text.split()
        parts = [" ".join(words[at : at + 4]).encode() for at in range(1, max(2, len(words) - 3))]
        assert any(part in pytorchs_words for part in parts), error.text


if __name__ == "__main__":
    ERRORS.write_text(errors_page())
    FILE.write_text(with_table(FILE.read_text()))
