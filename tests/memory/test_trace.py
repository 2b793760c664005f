"""A replayed log gives the ledger's own figures, a pass may be booked twice, and sizes follow from three."""

from contextlib import ExitStack

import pytest
import torch
from fastpart import mostly_slow
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dpdemo.config.load import resolve
from dpdemo.memory import largest_batch, predict_memory
from dpdemo.memory.case import Case
from dpdemo.memory.hardware import Hardware
from dpdemo.memory.largest import _Search
from dpdemo.memory.steps import Stepper
from dpdemo.memory.trace import Lane, Replay, Step, fit, lanes_of
from dpdemo.results.memorydata import Training
from dpdemo.virtual import virtual_gpus
from dpdemo.virtual.accounts import ALLOCATED, FREED
from dpdemo.virtual.blocks import KIND_NAMES

MODELS = ("linear", "transformer", "partial", "hybrid", "cnn", "rnn")


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(__import__("pathlib").Path(__file__).parent))


def _counted(sizes):
    """Return the sizes by kind that the ledger counts: it has no blocks that are larger than requests."""
    return {name: size for name, size in zip(KIND_NAMES, sizes, strict=True) if name != "block remainders"}


def test_a_replay_finds_what_the_ledger_counts():
    with virtual_gpus(2, storage="meta") as gpus:
        allocators = gpus.recorder.allocators
        log = gpus.log()
        model = nn.DataParallel(nn.Sequential(nn.Linear(500, 900), nn.ReLU(), nn.Linear(900, 30)).cuda())
        gpus.phase = "forward"
        loss = model(torch.empty(600, 500, device="cuda")).square().mean()
        gpus.phase = "backward"
        loss.backward()
        lanes = lanes_of(log, [(0, len(log))], (1,), 2)
        for index, lane in enumerate(lanes):
            found = Replay(lane, ()).figures()
            assert _counted(found.parts) == _counted(gpus.peak_by_kind(index).values())
            assert _counted(found.most) == _counted(gpus.most_by_kind(index).values())
            assert found.phase == gpus.peak_phase(index)
            assert found.reserved_bytes == allocators[index].reserved_bytes


def test_a_log_begins_with_what_is_live_and_its_kind():
    with virtual_gpus(1, storage="meta") as gpus:
        model = nn.Linear(500, 900).cuda()
        gpus.live_by_kind(0)
        log = gpus.log()
        assert [event[3] for event in log] == [500 * 900 * 4, 900 * 4]
        lane = lanes_of(log, [(len(log), len(log))], (1,), 1)[0]
        assert sum(Replay(lane, ()).figures().parts) == gpus.live_bytes(0)
        del model


def test_a_block_counts_whole_as_cuda_counts_it():
    numbers = 20  # as many matrices of 2000 x 2000 are 335 MB on a real GPU (zero_redundancy_optimizer.rst)
    steps = tuple(Step(ALLOCATED, number, 0, "", 0) for number in range(numbers))
    freed = tuple(Step(FREED, number, 0, "", 0) for number in range(numbers))
    found = Replay(Lane((steps, freed), (1, 0), ((16_000_000,) * numbers, ())), ()).figures()
    parts = dict(zip(KIND_NAMES, found.parts, strict=True))
    assert (parts["parameters"], parts["block remainders"]) == (320_000_000, 20 * (2**24 - 16_000_000))
    assert sum(found.parts) == found.reserved_bytes == 20 * 2**24


class Remembers(nn.Module):
    """A model that keeps a tensor of its first call for later ones."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.kept = {}

    def forward(self, x):
        key = x.device
        if key not in self.kept:
            self.kept[key] = torch.ones(1000, 64, device=x.device)
        return self.layer(x) * self.kept[key][0]


@pytest.mark.parametrize(
    ("model", "training"),
    mostly_slow(
        [
            ("transformer", Training()), ("test_trace:Remembers", Training()), ("cnn", Training("momentum")),
            ("rnn", Training("adafactor")), ("partial", Training(amp=True)), ("hybrid", Training("none")),
            ("linear", Training(zero_grad="after")), ("linear", Training(zero_grad="to-zero")),
        ],
        8,
    ),
)  # fmt: skip
def test_a_pass_that_is_booked_twice_is_a_pass_that_is_made_twice(model, training, monkeypatch):
    given = {"model": model, "gpus": 3, "batch_size": 32, "training": training}
    if ":" in model:
        given["inputs"] = ["32x64"]
    once = predict_memory(**given).gpus
    monkeypatch.setattr(Stepper, "books_twice", False)
    assert once == predict_memory(**given).gpus


def test_a_model_that_keeps_something_is_not_booked_twice():
    def lane(*steps):
        parts = ((), (), *[tuple(Step(what, number, 0, "", 0) for what, number in part) for part in steps])
        sizes = tuple(tuple(512 for step in part if step.what == ALLOCATED) for part in parts)
        return Lane(parts, (1, 2, 3), sizes)

    assert lane([(ALLOCATED, 0), (FREED, 0)], [(ALLOCATED, 1)]).is_closed((1, 2, 3))
    assert not lane([(ALLOCATED, 0)], [(ALLOCATED, 1)]).is_closed((1, 2, 3))
    assert not lane([(ALLOCATED, 0)], [(ALLOCATED, 1), (FREED, 1)]).is_closed((1, 2, 3))


whole = st.integers(0, 10**6)


@given(
    st.lists(st.tuples(st.integers(1), whole, whole), min_size=1, max_size=5),
    st.integers(4, 99),
    st.integers(2, 8),
)
def test_sizes_on_a_line_are_those_at_any_batch(terms, batch, gpus):
    def lane(rows, batch):
        part = tuple(Step(ALLOCATED, number, 0, "", 0) for number in range(len(terms)))
        return Lane((part,), (), (tuple(a + b * rows + c * batch for a, b, c in terms),))

    batch *= gpus
    points = [(-(-size // gpus), size) for size in (batch, 2 * batch, 2 * batch - gpus - 1)]
    at = fit([lane(*point) for point in points], points)
    assert at is not None
    for size in (batch + gpus, 7 * batch):
        assert at(size // gpus, size) == lane(size // gpus, size)


def test_sizes_on_no_line_and_other_events_are_not_fitted():
    def lane(size, *more):
        part = tuple(Step(ALLOCATED, number, 0, "", 0) for number in range(1 + len(more)))
        return Lane((part,), (), ((size, *more),))

    points = [(8, 8), (16, 16), (15, 15)]
    assert fit([lane(8), lane(16), lane(15)], points) is not None
    assert fit([lane(64), lane(256), lane(225)], points) is None
    assert fit([lane(8), lane(16, 1), lane(15)], points) is None


def of_size(size):
    part = (Step(ALLOCATED, 0, 0, "", 0),)
    return Lane((part,), (), ((size,),))


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [((7, 7), 7), ((80, 160), 400), ((320, 630), 1600), ((90, 170), 410)],
    ids=["constant", "of the rows", "of the batch", "a line"],
)
def test_two_sizes_follow_the_simplest_law(sizes, wanted):
    at = fit([*map(of_size, sizes)], [(8, 32), (16, 63)])
    assert at(40, 160) == of_size(wanted)


def test_sizes_below_one_make_no_lane_and_falling_ones_no_law():
    at = fit([of_size(10), of_size(130)], [(8, 8), (15, 15)])
    assert at(16, 16) is not None
    assert at(2, 2) is None
    squares = [(rows, rows + batch % 2) for rows, batch in ((32, 64), (64, 127), (3000, 6000))]
    assert fit([of_size(rows * rows) for rows, _ in squares], squares) is None


class Squares(nn.Module):
    """A model whose memory grows with the square of its rows."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        x = self.layer(x)
        return (x @ x.T).softmax(-1) @ x


@pytest.mark.parametrize("model", mostly_slow(["linear", "test_trace:Squares"], 2))
def test_the_answer_is_that_of_steps_that_are_made(model, monkeypatch):
    given = {"model": model, "gpus": 2, "gpu_memory": "200MiB", "reserve": 0, "batch_size": 64}
    if ":" in model:
        given["inputs"] = ["64x64"]
    found = largest_batch(**given)
    monkeypatch.setattr("dpdemo.memory.largest.fit", lambda *_: None)
    made = largest_batch(**given)
    assert (found.fit.largest, found.gpus) == (made.fit.largest, made.gpus)
    assert found.fit.largest > 64


@pytest.mark.parametrize(
    ("model", "strategy"),
    mostly_slow(
        [*zip(("transformer", "cnn", "rnn", "hybrid", "partial"), ("dp", "ddp") * 3, strict=False)], 2
    ),
)
def test_a_batch_that_was_not_made_has_the_allocations_of_one_that_is(model, strategy):
    config = resolve(None, {"model": model, "gpus": 3, "batch_size": 12, "strategy": strategy})
    with ExitStack() as block:
        search = _Search(Case(config, Training(), Hardware()), block)
        law = search._law_of([12, 23])
        assert law is not None
        assert law(50) == [*search.measured(50).lanes]
