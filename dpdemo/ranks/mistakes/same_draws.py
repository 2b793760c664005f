"""A line drew the same random numbers on all ranks (a note: some programs mean it).

Ranks with one seed add the same noise to different rows.

Seen in: the draws of the program's own lines between optimizer steps, as many rows as the model gets

Instead: another seed on each rank after the model is made, if each row is to have numbers of its own
"""

import re

from dpdemo.ranks.events import Drawn, Rows, Trained
from dpdemo.ranks.mistakes.evidence import Team
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_FEWEST, _ORDER = 3, "randperm"
_FIRST_SIZE = re.compile(r"\[(\d+)")


@mistake("same-draws")
def find(evidence: Evidence) -> Found:
    """Compare the draws of each line on ranks that train on rows of their own."""
    told = set()
    for team in evidence.wrapped:
        rows = [[event.sum for event in noted[Rows]] for noted in team.noted]
        if len({tuple(sums) for sums in rows}) < 2:
            continue
        draws = [{(event.at, event.number): event for event in noted[Drawn]} for noted in team.noted]
        by_line: dict[str, list[tuple[Drawn, ...]]] = {}
        for key in draws[0]:
            by_line.setdefault(key[0], []).append(tuple(mine[key] for mine in draws if key in mine))
        for at, row in by_line.items():
            if at not in told and _are_alike(row, team):
                told.add(at)
                yield Mistake(
                    f"{row[0][0].name} drew the same random numbers on all ranks in each of {len(row)} calls",
                    at,
                    "torch.manual_seed(seed + rank) once the model is made, if each rank is to draw its own "
                    "(noise, augmentation, time steps)",
                    "note",
                )


def _are_alike(row: list[tuple[Drawn, ...]], team: Team) -> bool:
    """Return whether a line draws as many rows as the model gets, others each time, the same on all ranks."""
    sizes = {
        int(found[1])
        for noted in team.noted
        for event in noted[Trained]
        for found in [_FIRST_SIZE.match(shape) for shape in event.shapes]
        if found
    }
    first = [draws[0] for draws in row if draws]
    if any(each.name == _ORDER for each in first):
        return False  # a shuffling order: `same_rows` compares the rows themselves
    return (
        len({each.step for each in first}) >= _FEWEST
        and len({each.sum for each in first}) > 1
        and all(each.shape and each.shape[0] in sizes for each in first)
        and all(len(draws) == len(team.noted) and len({each.sum for each in draws}) == 1 for draws in row)
    )
