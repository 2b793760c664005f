"""What follows from the host and from constants is known on GPUs without numbers too, and computed truly.

The oracle is the CPU: the same lines run outside the block, on real tensors.
"""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from dpdemo.virtual import UnsupportedOpError, virtual_gpus
from dpdemo.virtual.ops.known import LARGEST

pytestmark = pytest.mark.usefixtures("gpus")


@pytest.fixture
def gpus():
    """Two virtual GPUs without numbers."""
    with virtual_gpus(2, storage="meta") as opened:
        yield opened


def learned(*shape):
    """Return a tensor on GPU 0 of which no number is known."""
    return nn.Parameter(torch.ones(shape)).cuda().detach()


def padding(device):
    """Return the mask of two rows of 3 and of 5 tokens."""
    return torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], device=device)


def causal(device):
    """Return the mask of a decoder, as most libraries make it."""
    places = torch.arange(5, device=device)
    return (places[None, :] <= places[:, None])[None, None] & padding(device).bool()[:, None, None, :]


def packed(device):
    """Return which sequence each token belongs to, told from the positions."""
    positions = torch.tensor([[0, 1, 2, 0, 1]], device=device)
    first = positions.diff(prepend=positions[:, :1] - 1, dim=1) != 1
    return first.cumsum(-1)


def written_in_part(device):
    """Return zeros of which some were overwritten, through a view and by a mask."""
    rows = torch.zeros(2, 5, dtype=torch.int64, device=device)
    rows[:, 1:] = padding(device)[:, :-1]
    rows.masked_fill_(rows == 0, -100)
    rows[0].view(5)[4] = 7
    return rows


def buckets(device):
    """Return buckets of relative positions, by way of fractions."""
    places = torch.arange(40, device=device)
    far = (places.float().clamp(min=1).log() / 3 * 8).to(torch.int64)
    return torch.where(places < 8, places, far.clamp(max=15))


PROGRAMS = [
    padding, causal, packed, written_in_part, buckets,
    lambda device: padding(device).nonzero(),
    lambda device: padding(device)[padding(device).bool()],
    lambda device: padding(device).sum(1).cumsum(0),
    lambda device: torch.repeat_interleave(torch.arange(2, device=device), padding(device).sum(1)),
    lambda device: padding(device).to(torch.float32).mean(1),
    lambda device: torch.full((3, 4), 2, device=device).mul_(torch.ones(3, 1, device=device).long()),
    lambda device: torch.ones(2, 3, device=device).cumsum(1).flip(1).t().contiguous(),
    lambda device: torch.cat([padding(device), torch.zeros(2, 1, dtype=torch.int64, device=device)], 1),
    lambda device: torch.tensor(5, device=device) % torch.arange(1, 4, device=device),
    lambda device: torch.linspace(0, 1, 5, device=device),
    lambda device: torch.bincount(padding(device).flatten()),
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_follows_from_the_host_is_known_as_on_the_cpu(program):
    expected, found = program("cpu"), program("cuda:1")
    assert found.device == torch.device("cuda:1")
    assert found.is_meta
    assert (found.shape, found.dtype, found.stride()) == (expected.shape, expected.dtype, expected.stride())
    assert found.tolist() == expected.tolist()
    assert torch.equal(found.cpu(), expected)


STEPS = {
    "add": lambda x, _: x.add_(1),
    "a column": lambda x, _: x[:, 1].fill_(5),
    "a view": lambda _, seen: seen.fill_(2),
    "a mask": lambda x, _: x.__setitem__(x > 1, -1),
    "a new whole": lambda x, _: torch.full_like(x, 3),
    "a copy": lambda x, _: x.clone(),
    "transposed": lambda x, _: x.t().contiguous().t() * 2,
    "zero": lambda x, _: x.zero_(),
    "sum": lambda x, _: x + torch.ones_like(x),
}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=1, max_size=4),
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=6),
)
def test_any_sequence_of_reads_and_writes_gives_what_the_cpu_gives(rows, steps):
    def run(device):
        x = torch.tensor(rows, device=device)
        seen = x[0]
        for step in steps:
            result = STEPS[step](x, seen)
            x = result if isinstance(result, torch.Tensor) and result.shape == x.shape else x
        return [x.tolist(), seen.tolist(), int(x.sum())]

    assert run("cuda") == run("cpu")


def test_the_same_is_seen_in_each_replica():
    seen = []

    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("places", torch.arange(6))
            self.layer = nn.Linear(4, 4)

        def forward(self, x, mask):
            seen.append((mask.tolist(), bool(mask.all()), self.get_buffer("places")[: len(mask)].tolist()))
            rows = self.layer(x)
            return rows[mask]

    mask = torch.tensor([True, True, True, False])
    output = nn.DataParallel(Looks().cuda())(learned(4, 4), mask)
    assert output.shape == (3, 4)
    assert seen == [([True, True], True, [0, 1]), ([True, False], False, [0, 1])]


def test_an_index_by_a_known_mask_has_its_gradient():
    for index in (padding("cuda").bool(), torch.tensor([1, 0, 1]).cuda(), torch.tensor([1, 0])):
        x = learned(*((2, 5) if index.dtype is torch.bool else (4, 3))).requires_grad_()
        torch.autograd.backward(x[index].sum())
        assert x.grad is not None
        assert x.grad.get_device() == 0


@pytest.mark.parametrize("places", [[-1, 0], (1, 0), range(2), np.array([2, 1]), [True, False, True], []])
def test_places_that_are_listed_pick_known_numbers(places):
    """As `pad_token_id in input_ids[:, [-1, 0]]` does, by which models warn of padding without a mask."""
    ids = torch.tensor([[5, 6, 0], [7, 8, 9]])
    there = ids.cuda()
    assert there[:, places].tolist() == ids[:, places].tolist()
    assert (0 in there[:, places]) == (0 in ids[:, places])
    there[:, places] = 4
    ids[:, places] = 4
    assert there.tolist() == ids.tolist()


def test_all_equal_elements_of_any_number_take_no_memory():
    huge = torch.ones(2**20, 2**20, dtype=torch.int64, device="cuda")
    assert bool((huge == 1).all())
    assert not bool((huge * 2 == 0).any())
    with pytest.raises(UnsupportedOpError):
        huge.sum(1).cumsum(0).tolist()


def test_past_the_bound_numbers_are_not_known():
    assert torch.arange(LARGEST // 8, device="cuda")[-1].item() == LARGEST // 8 - 1
    with pytest.raises(UnsupportedOpError):
        torch.arange(LARGEST // 8 + 64, device="cuda")[-1].item()


def test_what_is_written_with_learned_numbers_is_no_longer_known():
    scores = torch.zeros(4, device="cuda")
    first = scores[:1]
    assert first.tolist() == [0]
    scores[2] = learned(1)[0]
    with pytest.raises(UnsupportedOpError):
        first.tolist()
    scores.zero_()
    assert first.tolist() == [0]


def test_numbers_that_are_not_known_are_taken_to_be_finite():
    x = learned(3)
    assert not x.isnan().any()
    assert not x.isinf().any()
    assert x.isfinite().all()
    with pytest.raises(UnsupportedOpError):
        bool((x > 0).any())


def test_a_scaler_makes_its_step_and_a_norm_may_be_checked(gpus):
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda", growth_interval=1)
    scaler.scale(model(torch.ones(2, 8).cuda()).sum()).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0 * 65536
    assert gpus.live_by_kind(0)["optimizer state"] == 4 * 512


def test_a_deep_copy_knows_what_its_original_knows_and_goes_its_own_way():
    import copy

    counter = torch.arange(3, device="cuda")
    other = copy.deepcopy(counter)
    counter += 1
    assert (counter.tolist(), other.tolist()) == ([1, 2, 3], [0, 1, 2])


def test_reading_what_is_known_counts_as_a_copy_to_the_host(gpus):
    counter = torch.arange(3, device="cuda")
    before = gpus.bytes_moved.num_device_to_host
    counter.tolist()
    int(counter[0])
    assert gpus.bytes_moved.num_device_to_host == before + 2


def test_batch_norm_counts_its_batches_and_its_statistics_are_not_known():
    norm = nn.BatchNorm1d(4).cuda()
    assert norm.running_mean is not None
    assert norm.running_mean.tolist() == [0, 0, 0, 0]
    for _ in range(3):
        norm(learned(8, 4))
    assert norm.num_batches_tracked is not None
    assert norm.num_batches_tracked.item() == 3
    with pytest.raises(UnsupportedOpError):
        norm.running_mean.tolist()


def test_buffers_made_of_parameters_that_have_no_numbers_can_be_moved():
    norm = nn.BatchNorm1d(4)
    assert norm.running_mean is not None
    norm.running_mean.copy_(nn.Linear(4, 4).bias.detach())
    norm.cuda().eval()
    assert norm(learned(2, 4)).shape == (2, 4)


def _checked_by_if(x):
    if torch.any(x < 0):
        raise ValueError("negative")
    return x


def _checked_by_if_not(x):
    if not (x > 0).all():
        message = "not positive"
        raise ValueError(message)
    return x


def _checked_by_assert(x):
    assert x.max() < 100
    assert not (x < 0).any(), "negative"
    return x


def _checked_by_pytorch(x):
    torch._check_tensor_all(x > 0, lambda: "not positive")
    torch._check_tensor_all_with(ValueError, x > 0, lambda: "not positive")
    return x


def _decides(x):
    if x.sum() > 0:
        x = x * 2
    return x


@pytest.mark.parametrize(
    "program", [_checked_by_if, _checked_by_if_not, _checked_by_assert, _checked_by_pytorch]
)
def test_a_check_that_can_only_raise_passes(program):
    assert program(learned(3)).shape == (3,)
    with pytest.raises((ValueError, AssertionError, RuntimeError)):
        program(torch.tensor([-1, 200], device="cuda"))


def test_a_decision_is_refused():
    with pytest.raises(UnsupportedOpError, match=r"Tensor\.__bool__"):
        _decides(learned(3))


@pytest.mark.parametrize(
    "kind",
    [torch.optim.Adafactor, torch.optim.ASGD, torch.optim.Adagrad, torch.optim.RAdam, torch.optim.Rprop],
)
def test_optimizers_make_their_steps(kind):
    model = nn.Linear(8, 8).cuda()
    optimizer = kind(model.parameters())
    for _ in range(2):
        torch.autograd.backward(model(learned(2, 8)).sum())
        optimizer.step()


def test_losses_that_check_their_operands_or_take_lengths_work():
    functional, x = nn.functional, learned(4, 8).requires_grad_()
    scores = x.view(4, 1, 8).log_softmax(-1)
    lengths = torch.tensor([4]).cuda(), torch.tensor([2]).cuda()
    losses = [
        functional.gaussian_nll_loss(x, x, x.exp()),
        functional.ctc_loss(scores, torch.tensor([1, 2]).cuda(), *lengths),
        functional.multilabel_margin_loss(x, torch.zeros(4, 8, dtype=torch.int64).cuda()),
    ]
    torch.autograd.backward(torch.stack(losses).sum())
    assert x.grad is not None
