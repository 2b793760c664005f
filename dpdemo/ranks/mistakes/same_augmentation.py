"""A data set drew the same random numbers on all ranks (a note: some programs mean it).

Ranks with one seed change different samples in the same way, in workers, too.

Seen in: the states of PyTorch's, NumPy's and Python's random numbers from which data sets draw

Instead: another seed on each rank after the model is made; a `worker_init_fn` has to add the rank
"""

from dpdemo.ranks.mistakes.evidence import trained_epochs
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake
from dpdemo.ranks.samples import Together

_SEEDS = {"torch": "torch.manual_seed", "numpy": "np.random.seed", "random": "random.seed"}
_OF_WORKERS = (
    "torch.manual_seed(seed + rank) once the model is made: workers take their seeds from it; a "
    "worker_init_fn has to add the rank, too"
)


@mistake("same-augmentation")
def find(evidence: Evidence) -> Found:
    """Compare the states of data sets that gave each rank other samples."""
    for ranks in evidence.crews(shared=True).values():
        told = set()
        for epoch in trained_epochs(ranks):
            first = epoch.first
            names = [name for name in _SEEDS if _drew_alike(epoch, name)]
            if names and first.at not in told and len(set(epoch.drawn)) > 1:
                told.add(first.at)
                seeds = " and ".join(f"{_SEEDS[name]}(seed + rank)" for name in names)
                yield Mistake(
                    f"The data set drew the same random numbers ({', '.join(names)}) on all ranks, for other "
                    "samples: augmentation is alike on all ranks",
                    first.at,
                    _OF_WORKERS if first.num_workers else seeds,
                    "note",
                )


def _drew_alike(epoch: Together, name: str) -> bool:
    found = {each.random.get(name, ()) for each in epoch.epochs}
    return len(found) == 1 and bool(*found)
