"""A data set drew the same random numbers on all ranks."""

from rankevents import DATA_AT, TRAINED, epoch, mistakes


def run(first, second, **values):
    values |= {"length": 4, "is_distributed": True}
    drawn = ((0, 2), first), ((1, 3), second)
    return mistakes(*([*TRAINED, epoch(*samples, random=states, **values)] for samples, states in drawn))


def test_one_state_for_other_samples_is_a_note():
    (found,) = run({"numpy": (5, 6), "torch": (7,)}, {"numpy": (5, 6), "torch": (8,)})
    assert found.text.startswith("The data set drew the same random numbers (numpy) on all ranks")
    assert (found.at, found.kind, found.advice) == (DATA_AT, "note", "np.random.seed(seed + rank)")


def test_the_seeds_of_workers_are_the_advice():
    (found,) = run({"torch": (7,)}, {"torch": (7,)}, num_workers=1)
    assert found.advice.startswith("torch.manual_seed(seed + rank)")
    assert "worker_init_fn" in found.advice


def test_states_of_their_own_and_no_draws_are_right():
    assert run({"numpy": (5, 6)}, {"numpy": (6, 5)}) == ()
    assert run({}, {}) == ()
    assert run({"numpy": (5, 6)}, {}) == ()
