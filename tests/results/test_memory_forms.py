"""The picture of what each GPU must hold, and its other forms: goldens, read back, and what always holds."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memories import GIB, MIB, first, fitted, gpu, other, report
from samples import drawn

from dpdemo.results.devices import label
from dpdemo.results.memory import number_text, verdict
from dpdemo.results.memorydata import KEYS, PARTS, Training
from dpdemo.results.memorytable import SIGNS, bar, gpu_lines, share
from dpdemo.results.table import plain

GOLDEN = Path(__file__).parent / "golden"
SIXTY_FOUR = report(first(), *(other(device) for device in range(1, 63)), other(63, temporaries=MIB))


def flat(text):
    return " ".join(text.split())


LETTERS = [letter for letter, _ in SIGNS]
PICTURES = {
    "overfull-80": (report(), 80),
    "fits-60": (report(first(activations=8 * GIB), other(1)), 60),
    "unlimited-80": (report(first(None), *(other(device, None) for device in range(1, 4))), 80),
    "fit-80": (fitted(), 80),
    "fit-none-60": (fitted(largest=0, missing_bytes=3 * GIB, remedies=()), 60),
    "sixty-four-80": (SIXTY_FOUR, 80),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_looks_like_the_golden_one(name, golden):
    found, width = PICTURES[name]
    golden(f"memory-{name}.txt", drawn(found, width=width))


def test_the_ascii_picture_looks_like_the_golden_one(golden):
    golden("memory-ascii-60.txt", drawn(report(), width=60, encoding="ascii"))


@pytest.mark.parametrize("form", ["json", "csv", "markdown"])
def test_a_plain_form_looks_like_the_golden_one(form, golden):
    golden(f"memory-fit.{form}", drawn(fitted(), form))


parts = st.lists(
    st.sampled_from([0, 512, 3 * MIB, 5 * GIB, 80 * GIB]), min_size=len(PARTS), max_size=len(PARTS)
).map(tuple)
capacities = st.sampled_from([None, 1024, 24 * GIB, 80 * GIB])


@given(parts, capacities.filter(bool), st.integers(5, 80), st.sampled_from([1, 1000]))
def test_a_bar_passes_its_capacity_only_if_the_gpu_does(held, capacity, width, times):
    gpu = replace(first(capacity), parts=held)
    scale = times * max(gpu.peak_bytes, capacity)  # that of the largest GPU
    drawn_bar = plain(bar(gpu, scale, width))
    inside, mark, beyond = drawn_bar.partition("┃")
    assert mark
    assert len(drawn_bar) <= width
    assert bool(beyond.strip()) is (gpu.peak_bytes > capacity)
    if beyond.strip():
        assert not set(inside) & {"░", "."}


@given(parts, st.integers(5, 80))
def test_letters_of_a_bar_follow_the_order_of_the_held_parts(held, width):
    gpu = replace(first(None), parts=held)
    letters = re.sub("[^A-Z]", "", plain(bar(gpu, max(gpu.peak_bytes, 1), width)))
    assert [*letters] == sorted(letters, key=LETTERS.index)
    assert set(letters) <= {LETTERS[part] for part, size in enumerate(held) if size}
    shares = [size * width / max(sum(held), 1) for size in held]
    assert {LETTERS[part] for part, cells in enumerate(shares) if cells >= 1} <= set(letters)


def test_every_part_has_a_letter_and_a_colour_of_its_own_beside_its_neighbours():
    assert len({letter for letter, _ in SIGNS}) == len(SIGNS) == len(PARTS) == len(KEYS)
    assert all(sign[1] != other[1] for sign, other in itertools.pairwise(SIGNS))


def test_equal_gpus_share_a_column():
    assert [(line.label, line.count) for line in gpu_lines(SIXTY_FOUR.gpus)] == [
        ("cuda:0", 1),
        ("cuda:1–62", 62),
        ("cuda:63", 1),
    ]
    assert len(drawn(SIXTY_FOUR).splitlines()) < 30


@pytest.mark.parametrize(
    ("ordinals", "named"),
    [
        ([3], "cuda:3"),
        ([1, 2, 3], "cuda:1–3"),
        ([0, 2, 3, 4], "cuda:0, 2–4"),
        (range(0, 64, 2), "cuda:0, 2, 4, ... (32 GPUs)"),
    ],
)
def test_a_group_is_named_by_its_spans(ordinals, named):
    assert label([f"cuda:{ordinal}" for ordinal in ordinals]) == named


@pytest.mark.parametrize("change", ["rows", "phase", "capacity", "parts"])
def test_different_gpus_have_separate_columns(change):
    first_gpu, two = other(0), other(1)
    others = {
        "phase": {"phase": "forward"},
        "capacity": {"capacity_bytes": 80 * GIB},
        "parts": {"parts": (1, *two.parts[1:])},
    }
    found = report(
        first_gpu, replace(two, **others.get(change, {})), batch_size=255 if change == "rows" else 256
    )
    assert len(gpu_lines(found.gpus)) == 2
    assert len(gpu_lines(report(first_gpu, two).gpus)) == 1


def test_an_idle_gpu_is_full_in_no_phase():
    idle = gpu(1, "between steps")
    assert re.search("in phase +loss +–$", drawn(report(first(), idle)), re.MULTILINE)


VERDICTS = [
    (report(), "It does not fit: cuda:0 lacks 937 MiB in the loss."),
    (report(first(4 * GIB), other(1, 4 * GIB), other(2, 4 * GIB), batch_size=255),
     "It does not fit: cuda:0 lacks 20.9 GiB in the loss; cuda:1–2 lack 9.53 GiB each in backward."),
    (report(first(activations=8 * GIB), other(1)), "It fits: 3.08 GiB left on cuda:0, in the loss."),
    (report(other(0), other(1)), "It fits: 10.5 GiB left on cuda:0–1 each, in backward."),
    (report(first(None), other(1, None)), "cuda:0 holds most: 24.9 GiB, in the loss."),
    (report(other(0, None), other(1, None)), "cuda:0–1 each hold most: 13.5 GiB, in backward."),
    (fitted(),
     "Batch 256 does not fit; the largest that does is 244: then cuda:0 is full in the loss."),
    (fitted(largest=300, margin=9),
     "Batch 256 fits; the largest that does is 300, give or take 9: then cuda:0 is full in the loss."),
    (replace(fitted(), config=report().config),
     "The largest batch that fits is 244: then cuda:0 is full in the loss."),
    (fitted(largest=0, phase="optimizer step"),
     "It does not fit, not even one sample: cuda:0 lacks 40 MiB in the optimizer step."),
]  # fmt: skip


@pytest.mark.parametrize(("found", "said"), VERDICTS, ids=[said for _, said in VERDICTS])
def test_the_answer_is_one_sentence(found, said):
    assert verdict(found) == said
    assert said in flat(drawn(found))


def test_the_answer_names_three_groups_and_counts_the_rest():
    gpus = [gpu(device, "backward", GIB, activations=(device + 2) * GIB) for device in range(6)]
    said = verdict(report(*gpus))
    assert said.startswith("It does not fit: cuda:5 lacks 6 GiB in backward; cuda:4 lacks 5 GiB")
    assert said.endswith("; 3 more GPUs less.")


@pytest.mark.parametrize(
    ("training", "said"),
    [
        (
            Training(loss="output.loss"),
            "float32, AdamW, gradients freed before the forward pass, the loss that the model returns",
        ),
        (
            Training("momentum", "mse", amp=True),
            "float32 under autocast, SGD with momentum, gradients freed before the forward pass, MSE",
        ),
        (Training(loss="own.losses:huber"), "gradients freed before the forward pass, loss own.losses:huber"),
        (Training(inference=True, loss="none"), "124 million parameters, float32, input [256, 512]"),
    ],
)
def test_the_line_below_the_title_lists_assumptions(training, said):
    assert said in flat(drawn(report(training=training)))


@pytest.mark.parametrize(
    ("number", "said"),
    [(12, "12"), (999_999, "999,999"), (124_439_808, "124 million"), (1_500_000_000, "1.50 billion")],
)
def test_parameters_are_counted_as_people_count(number, said):
    assert number_text(number) == said


@pytest.mark.parametrize(
    ("held", "said"),
    [(0, "0 %"), (1, "0.1 %"), (500, "50 %"), (999, "99.9 %"), (1000, "100 %"), (1001, "> 100 %")],
)
def test_only_an_exactly_full_gpu_is_at_100_percent(held, said):
    assert share(gpu(0, "forward", 1000, activations=held)) == said
