import pytest
import torch
from hypothesis import given, settings
from strategies import batch_sizes, device_counts

from dpdemo.arithmetic.chunk import even_batch_sizes_near, split_batch


def chunk_sizes(batch_size: int, num_devices: int) -> tuple[int, ...]:
    """The oracle: what torch itself makes of such a batch."""
    return tuple(len(chunk) for chunk in torch.empty(batch_size, 0).chunk(num_devices))


def test_every_small_split_is_torchs():
    ours = {(b, n): split_batch(b, n).sizes() for b in range(130) for n in range(1, 40)}
    assert ours == {(b, n): chunk_sizes(b, n) for b, n in ours}


@settings(max_examples=500)
@given(batch_sizes, device_counts)
def test_any_split_is_torchs(batch_size, num_devices):
    assert split_batch(batch_size, num_devices).sizes() == chunk_sizes(batch_size, num_devices)


@given(batch_sizes, device_counts)
def test_chunks_add_up_and_none_is_empty(batch_size, num_devices):
    split = split_batch(batch_size, num_devices)
    sizes = split.sizes()
    assert sum(sizes) == batch_size
    assert len(sizes) == split.num_chunks <= num_devices
    assert len(sizes) + split.num_idle == num_devices
    assert min(sizes) >= 1
    assert (max(sizes), min(sizes)) == (split.largest, split.smallest)
    assert split.rows() == sizes + (0,) * split.num_idle
    assert split.used() + split.idle() == tuple(range(num_devices))
    assert split.is_even == (min(sizes) == max(sizes))


@pytest.mark.parametrize("num_devices", [1, 2, 8])
def test_an_empty_batch_gives_each_device_an_empty_chunk_as_in_torch(num_devices):
    split = split_batch(0, num_devices)
    assert split.sizes() == chunk_sizes(0, num_devices) == (0,) * num_devices
    assert split.num_idle == 0


def test_a_batch_beyond_memory_is_split():
    split = split_batch(10**18, 127)
    assert (split.num_chunks, sum(split.sizes())) == (127, 10**18)


@pytest.mark.parametrize(("batch_size", "num_devices"), [(-1, 2), (3, 0), (3, -2)])
def test_impossible_counts_are_errors(batch_size, num_devices):
    with pytest.raises(ValueError, match=r"expected (a batch size of 0|1) or more( devices)?, got"):
        split_batch(batch_size, num_devices)


def is_full(batch_size: int, num_devices: int) -> bool:
    sizes = chunk_sizes(batch_size, num_devices)
    return len(sizes) == num_devices and len(set(sizes)) == 1 and sizes[0] >= 2


@given(batch_sizes, device_counts)
def test_even_batch_sizes_are_the_nearest_that_fill_every_device(batch_size, num_devices):
    below = next((b for b in range(batch_size, 0, -1) if is_full(b, num_devices)), None)
    above = next(b for b in range(batch_size, batch_size + 2 * num_devices + 1) if is_full(b, num_devices))
    assert even_batch_sizes_near(batch_size, num_devices) == tuple(sorted({below or above, above}))
