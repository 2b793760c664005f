"""WeightedDataParallel against one device, which is what it promises to equal."""

import contextlib
import copy
import io
import pickle
import sys
from typing import Any, NamedTuple

import processes
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dpdemo import WeightedDataParallel
from dpdemo.virtual import virtual_gpus

weightings = st.lists(st.integers(0, 6) | st.sampled_from([0.5, 1.5, 0.1]), min_size=1, max_size=6)


class Result(NamedTuple):
    scores: torch.Tensor
    extra: list[Any]


class Mixed(nn.Module):
    """Two inputs in structures, results in a structure, and a buffer that each forward counts up."""

    def __init__(self, dim=0):
        super().__init__()
        self.dim = dim
        self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 2, bias=False)
        self.unused = nn.Linear(1, 1)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x, more, *, factor=1, as_dict=False):
        self.calls.add_(1)
        hidden = torch.tanh(self.one(x.movedim(self.dim, 0))) * self.scale
        scores = self.two(hidden + more["bias"].movedim(self.dim, 0)) * factor
        result = Result(scores.movedim(0, self.dim), [hidden.movedim(0, self.dim)])
        return result._asdict() if as_dict else result


def made(dim=0):
    torch.manual_seed(0)
    return Mixed(dim).double()


def tensors_of(result):
    values = result.values() if isinstance(result, dict) else result
    scores, (hidden,) = values
    return scores, hidden


def step(model, x, bias, **options):
    """Forward, and backward of a loss of the whole result; the results, then all gradients, on the CPU."""
    model.zero_grad()
    x, bias = x.detach().clone().requires_grad_(), bias.detach().clone().requires_grad_()
    scores, hidden = tensors_of(model(x, {"bias": bias, "note": ("kept", 1)}, **options))
    (scores.square().mean() + hidden.mean()).backward()
    gradients = [p.grad for name, p in model.named_parameters() if "unused" not in name]
    return [tensor.detach().cpu() for tensor in (scores, hidden, *gradients, x.grad, bias.grad)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using -1 to represent CPU:FutureWarning")
@given(
    weights=weightings.filter(any),
    batches=st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.booleans()), min_size=5, max_size=5),
    dim=st.integers(0, 1),
    data=st.data(),
)
def test_results_gradients_and_buffers_are_those_of_one_gpu(weights, batches, dim, data):
    """A thousand batches, five for each wrapper: on the CPU or the first GPU, the result of two types."""
    output_device = data.draw(st.none() | st.integers(0, len(weights) - 1))
    alone = made(dim)
    with virtual_gpus(len(weights)):
        inner = made(dim).cuda()
        wrapper = WeightedDataParallel(inner, output_device=output_device, dim=dim, weights=weights)
        num_counted = 0
        for rows, on_cpu, as_dict in batches:
            x, bias = inputs_of(rows, dim)
            expected = step(alone, x, bias, factor=-2.5, as_dict=as_dict)
            uses_first = wrapper.split(rows).used()[0] == 0
            num_counted += uses_first
            lost = pytest.warns(UserWarning, match="cuda:0 gets no row of this batch")
            with contextlib.nullcontext() if uses_first else lost:
                where = "cpu" if on_cpu else "cuda:0"
                got = step(wrapper, x.to(where), bias.to(where), factor=-2.5, as_dict=as_dict)
            for ours, theirs in zip(got, expected, strict=True):
                torch.testing.assert_close(ours, theirs)
        assert (inner.calls.item(), alone.calls.item()) == (num_counted, len(batches))


def inputs_of(rows, dim):
    shape = (rows, 3) if dim == 0 else (2, rows, 3)
    return torch.randn(shape).double(), torch.randn(*shape[:-1], 4).double()


@given(weights=weightings.filter(any), rows=st.integers(2, 40))
@pytest.mark.slow
def test_batchnorm_sees_each_chunk_alone_and_keeps_the_first_gpus_as_in_data_parallel(weights, rows):
    torch.manual_seed(0)
    norm, x = nn.BatchNorm1d(3).double().eval(), torch.randn(rows, 3).double()
    with virtual_gpus(len(weights)):
        wrapper = WeightedDataParallel(copy.deepcopy(norm).cuda(), weights=weights)
        sizes = wrapper.split(rows).sizes()
        wrapper.train()
        with contextlib.ExitStack() as expected:
            if without_first := wrapper.split(rows).used()[0] > 0:
                expected.enter_context(pytest.warns(UserWarning, match="running mean, is lost"))
            if 1 in sizes:
                expected.enter_context(pytest.raises(ValueError, match="more than 1 value per channel"))
            got = wrapper(x.cuda()).cpu()
        if 1 in sizes:
            return
        kept = wrapper.module.running_mean.cpu()
    by_hand = [copy.deepcopy(norm).train() for _ in sizes]
    chunks = [replica(chunk) for replica, chunk in zip(by_hand, x.split(list(sizes)), strict=True)]
    torch.testing.assert_close(got, torch.cat(chunks))
    torch.testing.assert_close(kept, (norm if without_first else by_hand[0]).running_mean)


def over_three(**how):
    return WeightedDataParallel(made().cuda(), [0, 1, 2], **how)


def test_chunks_are_exact_for_a_full_batch_and_proportional_for_a_short_one():
    with virtual_gpus(3):
        wrapper = over_three(chunks=(4, 13, 13))
        assert wrapper.split(30).rows() == (4, 13, 13)
        assert wrapper.split(15).rows() == (2, 7, 6)
        x, more = torch.randn(15, 3).double().cuda(), {"bias": torch.zeros(15, 4).double().cuda()}
        torch.testing.assert_close(wrapper(x, more).scores, wrapper.module(x, more).scores)


def test_a_batch_with_more_rows_than_the_chunks_have_is_an_error():
    with virtual_gpus(3), pytest.raises(ValueError, match=r"at most 30 rows \(4, 13, 13\), got 31"):
        over_three(chunks=(4, 13, 13))(torch.zeros(31, 3).double().cuda(), {})


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "expected `weights` or `chunks`, got none"),
        ({"weights": (1, 1, 1), "chunks": (1, 1, 1)}, "expected `weights` or `chunks`, got both"),
        ({"weights": (1, 2)}, r"one of `weights` for each of the 3 GPUs \[0, 1, 2\], got 2: \[1, 2\]"),
        ({"chunks": (1, 2)}, "one of `chunks` for each of the 3 GPUs"),
        ({"chunks": (1, 2.5, 1)}, "whole numbers as `chunks`"),
        ({"weights": (0, 0, 0)}, "at least one weight above 0"),
        ({"weights": (1, -1, 1)}, "a weight of 0 or more, got -1"),
    ],
)
def test_impossible_weights_are_errors_when_it_is_built(how, message):
    with virtual_gpus(3), pytest.raises(ValueError, match=message):
        over_three(**how)


def test_the_state_dict_is_data_parallels_both_ways():
    with virtual_gpus(3):
        ours, theirs = over_three(weights=(1, 2, 2)), nn.DataParallel(made().cuda())
        assert list(ours.state_dict()) == list(theirs.state_dict())
        ours.load_state_dict(theirs.state_dict())
        theirs.load_state_dict(ours.state_dict())


@pytest.mark.parametrize("how", [{"weights": (0, 2, 1)}, {"chunks": (4, 13, 13)}])
def test_copies_and_pickles_cut_as_the_original_does(how):
    with virtual_gpus(3):
        wrapper = over_three(**how)
        x, more = torch.randn(7, 3).double().cuda(), {"bias": torch.zeros(7, 4).double().cuda()}
        wrapper.eval()
        saved = io.BytesIO()
        torch.save(wrapper, saved)
        saved.seek(0)
        for again in (
            copy.deepcopy(wrapper),
            pickle.loads(pickle.dumps(wrapper)),  # noqa: S301 - our own
            torch.load(saved, weights_only=False),
        ):
            assert again.split(7) == wrapper.split(7)
            torch.testing.assert_close(again(x, more).scores, wrapper(x, more).scores)


def test_it_tells_how_it_cuts():
    with virtual_gpus(3):
        assert "weights=(1, 2, 2)" in repr(over_three(weights=[1, 2, 2]))
        assert "chunks=(4, 13, 13)" in repr(over_three(chunks=[4, 13, 13]))


def test_without_a_gpu_it_calls_the_module():
    if torch.cuda.is_available():
        pytest.skip("a CUDA GPU is visible on this machine")
    wrapper = WeightedDataParallel(nn.Linear(2, 1), weights=(1, 2))
    x = torch.ones(3, 2)
    assert torch.equal(wrapper(x), wrapper.module(x))


def test_a_call_without_arguments_runs_on_the_first_gpu():
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.value = nn.Parameter(torch.ones(2))

        def forward(self):
            return self.value * 2

    with virtual_gpus(2):
        wrapper = WeightedDataParallel(Constant().cuda(), weights=(1, 3))
        assert wrapper().tolist() == nn.DataParallel(Constant().cuda())().tolist()


def test_a_forward_that_fails_leaves_nothing_behind():
    with virtual_gpus(2):
        wrapper = WeightedDataParallel(nn.Linear(3, 2).cuda(), weights=(0, 1))
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            wrapper(torch.zeros(4, 5).cuda())
        replicas = wrapper.replicate(wrapper.module, [0, 1])
        assert [next(iter(replica.parameters()), replica.weight).device.index for replica in replicas] == [
            0,
            1,
        ]


IMPORT = """
import sys
from dpdemo import LossParts, WeightedDataParallel, loss_parts, mean_over_ranks
ours = {name.partition(".")[2].partition(".")[0] for name in sys.modules if name.startswith("dpdemo.")}
assert ours <= {"arithmetic", "splitting", "watching"}, ours
assert not {"rich", "typer", "pydantic", "ruamel", "click"} & set(sys.modules)
"""


def test_it_needs_torch_and_nothing_else():
    """A script on a real multi-GPU machine imports it."""
    processes.run([sys.executable, "-c", IMPORT], check=True)
