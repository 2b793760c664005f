"""The generator, against the known answers of its authors' library and against itself in plain numbers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpdemo.virtual.cuda_random.philox import LOW, scrambled, words

# Random123 1.09, tests/kat_vectors, philox4x32 with 10 rounds: counter, key, result
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((LOW,) * 4, (LOW, LOW), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_the_known_answers_of_random123(counter, key, answer):
    seed = key[0] | key[1] << 32
    assert scrambled(counter, seed) == answer
    as_tensors = tuple(torch.tensor([word, word]) for word in counter)
    assert [word.tolist() for word in scrambled(as_tensors, seed)] == [[word] * 2 for word in answer]


@given(counter=st.integers(0, 2**64 - 1), seed=st.integers(0, 2**64 - 1), first=st.integers(0, 2**32 - 9))
@settings(max_examples=40, deadline=None)
def test_many_threads_at_once_draw_what_each_draws_alone(counter, seed, first):
    threads = range(first, first + 8)
    together = words(counter, torch.tensor(threads), seed)
    alone = [words(counter, thread, seed) for thread in threads]
    assert torch.stack(together, dim=1).tolist() == [list(each) for each in alone]
