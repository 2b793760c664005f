"""Each GPU has its stream of random numbers: CUDA's, or the CPU's with `random="cpu"`."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom

pytestmark = pytest.mark.usefixtures("gpus")


@pytest.mark.parametrize(
    "draw",
    [
        lambda device: torch.randn(5, device=device),
        lambda device: torch.rand(5, device=device),
        lambda device: torch.randint(9, (5,), device=device),
        lambda device: torch.randperm(9, device=device),
        lambda device: torch.zeros(5, device=device).uniform_(),
        lambda device: torch.rand_like(torch.zeros(5, device=device)),
        lambda device: torch.bernoulli(torch.full((9,), 0.5, device=device)),
        lambda device: torch.multinomial(torch.ones(9, device=device), 4),
        lambda device: F.dropout(torch.ones(9, device=device)),
        lambda device: F.rrelu(-torch.ones(9, device=device), training=True),
    ],
)
@pytest.mark.parametrize("gpus", ["cpu"], indirect=True)
def test_a_gpu_draws_the_cpus_numbers_where_they_are_asked_for(draw):
    torch.manual_seed(7)
    expected = draw("cpu").tolist()
    again = draw("cpu").tolist()
    assert expected != again
    for device in ("cuda:0", "cuda:1"):
        assert draw(device).tolist() == expected
        assert draw(device).tolist() == again


def test_drawing_on_a_gpu_leaves_the_cpus_generator_alone():
    torch.manual_seed(1)
    expected = torch.rand(3).tolist()
    torch.manual_seed(1)
    torch.rand(3, device="cuda")
    torch.rand_like(torch.zeros(3, device="cuda"))
    assert torch.rand(3).tolist() == expected


def test_seeds_and_states_are_each_devices_own():
    torch.cuda.manual_seed_all(5)
    assert torch.cuda.initial_seed() == 5
    state = torch.cuda.get_rng_state(1)
    first = torch.rand(2, device="cuda:1").tolist()
    torch.cuda.set_rng_state(state, 1)
    assert torch.rand(2, device="cuda:1").tolist() == first
    with torch.cuda.device(2):
        torch.cuda.manual_seed(6)
    assert torch.rand(2, device="cuda:2").tolist() != first
    assert torch.rand(2, device="cuda:3").tolist() == first
    assert len(torch.cuda.get_rng_state_all()) == 4
    with torch.random.fork_rng(devices=[0]):
        torch.rand(1, device="cuda:0")
    assert torch.rand(2, device="cuda:0").tolist() == first


def test_generators_can_be_made_copied_and_pickled_for_a_gpu():
    generator = torch.Generator("cuda:1").manual_seed(3)
    assert generator.device == torch.device("cuda:1")
    assert isinstance(generator, torch.Generator)
    assert isinstance(torch.Generator(), torch.Generator)
    expected = torch.rand(2, device="cuda", generator=torch.Generator("cuda:0").manual_seed(3)).tolist()
    again = pickle.loads(pickle.dumps(generator))  # noqa: S301
    for same in (copy.deepcopy(again), again, generator):
        assert same.device == torch.device("cuda:1")
        assert torch.rand(2, device="cuda:1", generator=same).tolist() == expected


def test_dropout_in_replicas_is_what_each_device_draws():
    torch.manual_seed(2)
    output = torch.nn.DataParallel(torch.nn.Dropout(0.5))(torch.ones(8, 3))
    torch.manual_seed(2)
    assert output.tolist() == F.dropout(torch.ones(2, 3, device="cuda:2")).tolist() * 4


def test_the_state_of_a_gpu_is_a_seed_and_an_offset_in_16_bytes():
    torch.manual_seed(2**64 - 3)
    torch.cuda.init()
    generator = torch.cuda.default_generators[0]
    assert (generator.initial_seed(), generator.get_offset()) == (2**64 - 3, 0)
    torch.rand(3, device="cuda")
    state = torch.cuda.get_rng_state(0)
    assert state.tolist() == [253, *[255] * 7, 4, *[0] * 7]
    second = torch.rand(3, device="cuda")
    generator.set_offset(4)
    assert torch.equal(torch.rand(3, device="cuda"), second)
    torch.cuda.set_rng_state(state, 1)
    assert torch.equal(torch.rand(3, device="cuda:1").cpu(), second.cpu())
    torch.cuda.set_rng_state(state[:8], 1)  # as versions before 1.0 saved it
    assert torch.cuda.default_generators[1].get_offset() == 0


def test_states_that_are_none_are_cudas_errors():
    generator = torch.Generator("cuda")
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4"):
        generator.set_offset(6)
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        generator.set_state(torch.zeros(5, dtype=torch.uint8))
    with pytest.raises(TypeError, match=r"RNG state must be a torch\.ByteTensor"):
        generator.set_state(torch.zeros(16))


def test_a_clone_of_a_generator_begins_in_its_state():
    generator = torch.Generator("cuda").manual_seed(5)
    clone = generator.clone_state()
    first = torch.rand(2, device="cuda", generator=generator)
    assert torch.equal(torch.rand(2, device="cuda", generator=clone), first)


@pytest.mark.parametrize(
    ("draw", "increment"),
    [
        (lambda: torch.rand(1, device="cuda"), 4),
        (lambda: torch.rand(132 * 2048, device="cuda"), 4),
        (lambda: torch.rand(132 * 2048 * 4 + 1, device="cuda"), 8),
        (lambda: torch.rand(132 * 2048 * 4 + 1, dtype=torch.float64, device="cuda"), 12),
        (lambda: torch.randint(5, (132 * 2048 * 2 + 1,), device="cuda"), 4),
        (lambda: torch.randint(2**40, (132 * 2048 * 2 + 1,), device="cuda"), 8),
        (lambda: torch.randperm(10, device="cuda"), 4 + 12),
        (lambda: torch.bernoulli(torch.full((9,), 0.5, device="cuda")), 12),
        (lambda: F.dropout(torch.ones(9, device="cuda")), 4),
        (lambda: F.dropout(torch.ones(9, device="cuda"), 0.0), 0),
        (lambda: torch.multinomial(torch.ones(9, device="cuda"), 4), 4),
        (lambda: torch.poisson(torch.ones(9, device="cuda")), 20),
        (lambda: torch.rand(0, device="cuda"), 0),
        (lambda: F.scaled_dot_product_attention(*[torch.ones(1, 1, 2, 8, device="cuda")] * 3), 0),
    ],
)
def test_an_operator_leaves_the_offset_where_its_kernel_does(draw, increment):
    torch.manual_seed(0)
    draw()
    assert torch.cuda.default_generators[0].get_offset() == increment


def test_a_seed_draws_the_same_on_every_gpu_and_in_every_replica():
    torch.manual_seed(4)
    assert len({tuple(torch.randn(5, device=f"cuda:{index}").tolist()) for index in range(4)}) == 1


def test_a_permutation_sorts_its_keys_and_draws_the_order_of_equal_ones():
    """The keys are of `bits` bits (ATen/native/cuda/Randperm.cu); 20 numbers have 11, and often two alike."""
    swapped = set()
    for seed in range(200):
        torch.manual_seed(seed)
        order = torch.randperm(20, device="cuda").cpu()
        torch.manual_seed(seed)
        drawn = torch.empty(20, dtype=torch.int32, device="cuda").random_(-(2**31), 2**31 - 1)
        keys = (drawn.cpu().long() % 2**11)[order]
        assert sorted(order.tolist()) == list(range(20))
        assert torch.equal(keys, keys.sort().values)
        alike = keys[1:] == keys[:-1]
        swapped |= set((order[1:] < order[:-1])[alike].tolist())
    assert swapped == {False, True}


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.empty(2000, device="cuda").exponential_(2.0),
        lambda: torch.multinomial(torch.tensor([1.0, 3.0], device="cuda"), 2000, replacement=True) / 1.5,
    ],
)
def test_other_distributions_are_drawn_from_the_seed_by_the_cpus_generator(draw):
    torch.manual_seed(3)
    first, second = draw(), draw()
    torch.manual_seed(3)
    assert torch.equal(draw(), first)
    assert not torch.equal(first, second)
    assert first.device == torch.device("cuda:0")
    assert first.mean().item() == pytest.approx(0.5, abs=0.05)  # four deviations of the mean
