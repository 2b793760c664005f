"""Ranks take their parts of different orders.

A sampler by rank cuts one order; if ranks have other orders, some samples come twice and others never.

Seen in: samples drawn twice and samples left out in a whole epoch, though no rank draws one twice by itself

Instead: give all ranks one seed, or the sampler a generator that is seeded alike on all ranks
"""

from typing import Literal

from dpdemo.ranks.mistakes.evidence import trained_epochs
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake
from dpdemo.ranks.samples import Together
from dpdemo.results.ranksamples import often
from dpdemo.wording import counted


@mistake("orders-differ")
def find(evidence: Evidence) -> Found:
    """Look for epochs in which some samples come twice and others never."""
    for ranks in evidence.crews(shared=True).values():
        told = set()
        for epoch in trained_epochs(ranks):
            at = epoch.first.at
            if at not in told and _is_torn(epoch):
                told.add(at)
                cause, advice, kind = _cause(epoch)
                yield Mistake(f"{_sentence(epoch)}: {cause}", at, advice, kind)


def _is_torn(epoch: Together) -> bool:
    """Return whether ranks that take no sample twice by themselves overlap, and leave others out."""
    if not (epoch.is_complete and epoch.is_listed and epoch.by_index) or epoch.first.repeats:
        return False
    alone = all(len(set(names)) == len(names) for names in epoch.drawn)
    is_same = len(set(map(frozenset, epoch.drawn))) == 1
    return alone and not is_same and epoch.num_repeated > 0 and epoch.num_left_out > 0


def _sentence(epoch: Together) -> str:
    repeated = [count for count in epoch.times.values() if count > 1]
    most = often(max(repeated)) if len(set(repeated)) == 1 else "several times"
    number = epoch.first.number
    drew = f"drew {counted(len(repeated), 'sample')} {most} and left {epoch.num_left_out} out"
    return f"Epoch {number} {drew} of {epoch.length}"


def _cause(epoch: Together) -> tuple[str, str, Literal["mistake", "note"]]:
    """Return why the orders differ, what to do, and whether some programs mean it."""
    first = epoch.first
    seeds = [each.seed for each in epoch.epochs]
    numbers = [each.set_epoch for each in epoch.epochs]
    order = first.samplers[-1] if first.samplers else "the sampler"
    if len(set(seeds)) > 1:
        return (
            f"the seeds of {order} differ between ranks ({_listed(seeds)})",
            "give all ranks one seed",
            "mistake",
        )
    if len(set(numbers)) > 1:
        return (
            f"set_epoch got other numbers on each rank ({_listed(numbers)})",
            "give all ranks the same number",
            "mistake",
        )
    if len({each.part for each in epoch.epochs}) > 1:
        return (
            f"the Subset that {order} cuts has other samples on each rank",
            "split it alike on all ranks: random_split(…, generator=torch.Generator().manual_seed(0))",
            "mistake",
        )
    if not first.splitter and not first.is_distributed:
        is_cut = order != "RandomSampler" and abs(epoch.times.total() - (epoch.length or 0)) < len(seeds)
        return (
            f"each rank draws by itself with {order}",
            "cut one order on all ranks: the same seed, and the same state of the sampler when it is resumed"
            if is_cut
            else "this is right if ranks mean to draw at random",
            "mistake" if is_cut else "note",
        )
    by = f", of which {first.splitter} takes one rank's part" if first.splitter else ""
    advice = f"give {order} a generator with the same seed on all ranks"
    return f"{order} makes another order on each rank{by}", advice, "mistake"


def _listed(values: list[int | None]) -> str:
    found = [str(value) for value in dict.fromkeys(values)][:4]
    return f"{', '.join(found[:-1])} and {found[-1]}"
