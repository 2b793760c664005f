"""Mistakes of a program's ranks that raise no error: found by comparing what the ranks have noted."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from dpdemo.executing.rank import ADDED
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Fact = dict[str, Any]
Noted = dict[str, list[Fact]]
"""The facts of one rank by their kind."""
_UNEVEN = 1.2
_CLOSE, _ALMOST = 1e-3, 0.1


def find_mistakes(facts: Mapping[int, Sequence[Fact]]) -> tuple[Mistake, ...]:
    """Compare the facts of each rank."""
    if len(facts) < 2:
        return ()
    by_kind = {rank: _by_kind(noted) for rank, noted in facts.items()}
    wrapped, by_hand = _groups(by_kind, "model"), _groups(by_kind, "by hand")
    shared = {group: mine for group, mine in wrapped.items() if mine[0]["rows"] + mine[0]["unsynced"]}
    shared |= {group: mine for group, mine in by_hand.items() if _is_shared(mine)}
    found: list[Mistake] = []
    for ranks in dict.fromkeys(ranks for ranks, _ in [*wrapped, *by_hand]):
        mine = [by_kind[rank] for rank in ranks]
        found += _orders(mine)
        if any(ranks == others for others, _ in shared):
            found += _samples(mine)
            found += _losses(ranks, mine)
    for noted in by_kind.values():
        found += _idle(noted)
    for mine in wrapped.values():
        found += _replicas(mine)
        if not any(fact["is_indexed"] and fact["was_trained"] for noted in mine for fact in noted["epoch"]):
            found += _rows(mine)
    for mine in by_hand.values():
        found += _by_hand(mine)
    for mine in shared.values():
        found += _norms(mine)
    found += _new_groups(by_kind)
    found += _files(by_kind)
    return tuple(dict.fromkeys(found))


def _by_kind(facts: Sequence[Fact]) -> Noted:
    found: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        found[fact["kind"]].append(fact)
    return found


def _groups(by_kind: Mapping[int, Noted], kind: str) -> dict[tuple[tuple[int, ...], str], list[Noted]]:
    """Return the models of a kind, by the ranks that train each and its name, with what these noted of it."""
    groups = {
        (tuple(fact["ranks"]), fact["model"])
        for noted in by_kind.values()
        for fact in noted[kind]
        if len(fact["ranks"]) > 1 and set(fact["ranks"]) <= set(by_kind)
    }
    return {
        (ranks, model): [_of_model(by_kind[rank], model) for rank in ranks] for ranks, model in sorted(groups)
    }


def _of_model(noted: Noted, model: str) -> Noted:
    """Leave out what a rank noted of other models."""
    return _by_kind([fact for facts in noted.values() for fact in facts if fact.get("model", model) == model])


def _is_shared(ranks: Sequence[Noted]) -> bool:
    """Return whether ranks train one model by hand: they reduce its gradients, or do all the same."""
    noted = [fact for rank in ranks for fact in rank["by hand"]]
    is_reduced = len(noted) == len(ranks) and all(fact["all"] + fact["some"] for fact in noted)
    checks = _checks(ranks)
    return is_reduced or (len(checks) > 1 and not any(map(_differs, checks)))


def _checks(ranks: Sequence[Noted]) -> list[tuple[Fact, ...]]:
    """Return what the ranks noted of a model's parameters, moment by moment."""
    return list(zip(*(rank["parameters"] for rank in ranks), strict=False))


def _differs(row: Sequence[Fact]) -> bool:
    return len({fact["sum"] for fact in row}) > 1


def _first_difference(checks: Sequence[Sequence[Fact]]) -> Fact | None:
    """Return the first check from which on the parameters differ between ranks, to the end."""
    differs = [_differs(row) for row in checks]
    if True not in differs or not all(differs[differs.index(True) :]):
        return None
    return checks[differs.index(True)][0]


def _by_hand(ranks: Sequence[Noted]) -> Iterator[Mistake]:
    """Name parameters that differ between ranks although these reduce their gradients, or should."""
    noted = [fact for rank in ranks for fact in rank["by hand"]]
    first = _first_difference(_checks(ranks))
    if first is None or len(noted) < len(ranks) or any(fact["is_local"] for fact in noted):
        return
    since = f"after step {first['steps']}" if first["steps"] else "from the start"
    differ = f"The parameters differ between ranks {since}"
    if all(fact["all"] for fact in noted) and not first["steps"]:
        yield Mistake(
            f"{differ}, although gradients are averaged",
            first["at"],
            "broadcast rank 0's parameters first, or give all ranks one seed",
        )
    elif first["steps"] and all(fact["all"] + fact["some"] for fact in noted):
        yield Mistake(differ, first["at"], "average the gradients of all parameters before each step")
    elif all(fact["is_alone"] for fact in noted) and _has_sampler(ranks):
        yield Mistake(
            f"No gradient was averaged; {differ[0].lower()}{differ[1:]}",
            first["at"],
            "wrap the model in DistributedDataParallel",
        )


def _has_sampler(ranks: Sequence[Noted]) -> bool:
    """Return whether each rank trains with samples that a DistributedSampler chose for it."""
    return all(
        any(fact["is_distributed"] and fact["was_trained"] for fact in rank["epoch"]) for rank in ranks
    )


def _samples(ranks: Sequence[Noted]) -> Iterator[Mistake]:
    """Name data loaders from which all ranks draw the same samples."""
    told = set()
    for epochs in _common_epochs(ranks):
        first = epochs[0]
        same_data = len({epoch["dataset"] for epoch in epochs}) == 1
        if first["at"] in told or not same_data or not _same_samples(epochs) or _are_cut(first, ranks):
            continue
        told.add(first["at"])
        count = len(set(first["drawn"])) if first["drawn"] is not None else first["count"]
        which = f"all {count} samples" if count == first["length"] else f"the same {count} samples"
        yield Mistake(
            f"Each of {len(epochs)} ranks drew {which}: an epoch is {len(epochs)} epochs",
            first["at"],
            _sharing_out(first["sampler"]),
        )


def _sharing_out(sampler: str) -> str:
    """Advise how each rank gets samples of its own, by the class of the sampler."""
    if sampler in {"SequentialSampler", "RandomSampler"}:
        return "give the DataLoader a DistributedSampler"
    if sampler == "DistributedSampler":
        return "give the DistributedSampler the number of each rank: rank=dist.get_rank()"
    return (
        f"{sampler} draws alike on all ranks: seed its generator by rank, or let each rank keep its share of "
        "what it draws"
    )


def _common_epochs(ranks: Sequence[Noted]) -> Iterator[list[Fact]]:
    """Yield the epochs of training that all ranks made, each as a list by rank."""
    keyed = [
        {(fact["at"], fact["number"]): fact for fact in noted["epoch"] if fact["is_indexed"]}
        for noted in ranks
    ]
    for key, fact in keyed[0].items():
        row = [epochs[key] for epochs in keyed if key in epochs]
        if len(row) == len(ranks) and fact["count"] > 1 and all(epoch["was_trained"] for epoch in row):
            yield row


def _same_samples(epochs: Sequence[Fact]) -> bool:
    if len({(epoch["sum"], epoch["count"]) for epoch in epochs}) == 1:
        return True
    if not all(epoch["is_complete"] and epoch["drawn"] is not None for epoch in epochs):
        return False
    return len({frozenset(epoch["drawn"]) for epoch in epochs}) == 1


def _are_cut(epoch: Fact, ranks: Sequence[Noted]) -> bool:
    """Return whether each rank takes its share of a batch: one of its tensors has N times the elements."""
    used = {fact["number"] for fact in ranks[0]["rows"]} | {fact["count"] for fact in ranks[0]["loss"]}
    whole = epoch["sizes"]
    return any(
        _is_close(number * len(ranks), size) and not any(_is_close(number, each) for each in whole)
        for number in used
        for size in whole
    )


def _is_close(number: float, other: float) -> bool:
    return abs(number - other) <= _ALMOST * other


def _orders(ranks: Sequence[Noted]) -> Iterator[Mistake]:
    """Name shuffling samplers that draw the same order in each epoch."""
    before: dict[str, list[Fact]] = {}
    told = set()
    for epochs in _common_epochs(ranks):
        at = epochs[0]["at"]
        last = before.get(at)
        before[at] = epochs
        if last is None or at in told or not all(epoch["is_shuffled"] for epoch in epochs):
            continue
        if all(
            (old["sum"], old["count"], old["set_epoch"]) == (new["sum"], new["count"], new["set_epoch"])
            for old, new in zip(last, epochs, strict=True)
        ):
            told.add(at)
            yield Mistake(
                f"Epochs {last[0]['number']} and {epochs[0]['number']} drew the same order on every rank",
                at,
                "call sampler.set_epoch(epoch) before each epoch",
            )


def _rows(ranks: Sequence[Noted]) -> Iterator[Mistake]:
    """Name a module that gets the same rows on all ranks, which change from step to step."""
    sums = [[fact["sum"] for fact in noted["rows"]] for noted in ranks]
    if sums[0] and len(set(sums[0])) > 1 and all(others == sums[0] for others in sums):
        yield Mistake(
            f"All {len(ranks)} ranks trained on the same rows in each of {len(sums[0])} steps",
            ranks[0]["rows"][0]["at"],
            "give each rank rows of its own, or its own seed for drawing them",
        )


def _replicas(ranks: Sequence[Noted]) -> Iterator[Mistake]:
    """Name replicas whose parameters differ from some step on, to the end."""
    first = _first_difference(_checks(ranks))
    if first is None:
        return
    steps = first["steps"]
    differ = f"the parameters differ between ranks {f'after step {steps}' if steps else 'before step 1'}"
    unsynced = [fact for rank in ranks for fact in rank["unsynced"]] if steps else []
    if not unsynced:
        advice = "every rank has to make the same optimizer step from the same gradients"
        if not steps:
            advice = "load a checkpoint on every rank, or before the model is wrapped"
        if first["added"]:
            advice = f"{', '.join(first['added'])} {ADDED}"
        yield Mistake(differ.capitalize(), first["at"], advice)
        return
    unused: list[str] = next((fact["unused"] for fact in unsynced if fact["unused"]), [])
    bypass = next((fact["bypass"] for fact in unsynced if ":" in fact["bypass"]), None)
    at = unsynced[0]["at"]
    advice = "the last backward pass before a step has to go through the module, outside of no_sync()"
    if unused:
        advice = f"no gradient reached {', '.join(unused)}: find_unused_parameters=True"
    elif bypass:
        at, advice = bypass, "call the DistributedDataParallel module itself, not its `.module`"
    yield Mistake(f"No gradient was averaged; {differ}", at, advice)


def _norms(ranks: Sequence[Noted]) -> Iterator[Mistake]:
    """Name batch normalization whose running statistics differ between ranks."""
    noted = [{fact["step"]: fact["stats"] for fact in rank["norms"]} for rank in ranks]
    steps = set.intersection(*map(set, noted))
    if not steps:
        return
    stats = [by_step[max(steps)] for by_step in noted]
    worst, layer = 0.0, ""
    for name in stats[0]:
        for values in zip(*(layers.get(name, ()) for layers in stats), strict=False):
            apart = (max(values) - min(values)) / max(1e-12, *map(abs, values))
            if max(values) - min(values) > worst and apart > _CLOSE:
                worst, layer = max(values) - min(values), name
    if layer:
        at = next(fact["at"] for fact in (*ranks[0]["model"], *ranks[0]["parameters"]))
        yield Mistake(
            f"BatchNorm `{layer}` is not synced: running statistics differ by up to {worst:.3g}",
            at,
            "nn.SyncBatchNorm.convert_sync_batchnorm(model), unless each rank is to normalize its own rows",
            "note",
        )


def _losses(numbers: Sequence[int], ranks: Sequence[Noted]) -> Iterator[Mistake]:
    """Name a mean over other numbers of elements on each rank, in at least half of the backward passes."""
    noted = [
        {(fact["at"], fact["number"], fact["place"], fact["name"]): fact for fact in rank["loss"]}
        for rank in ranks
    ]
    uneven: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    total: dict[str, int] = defaultdict(int)
    for key in noted[0]:
        row = [losses[key] for losses in noted if key in losses]
        if len(row) < len(noted):
            continue
        at = row[0]["at"]
        total[at] += 1
        counts = tuple(fact["count"] for fact in row)
        sums = [fact["count"] * fact["weight"] for fact in row]
        if min(counts) <= 0 or max(counts) < _UNEVEN * min(counts):
            continue
        if max(sums) - min(sums) <= _CLOSE * max(sums):
            uneven[at].append(counts)
    for at, found in uneven.items():
        if 2 * len(found) >= total[at]:
            counts = found[0]
            low, high = counts.index(min(counts)), counts.index(max(counts))
            yield Mistake(
                f"Means over {counts[low]:g} elements on rank {numbers[low]} and {counts[high]:g} on rank "
                f"{numbers[high]} are averaged: an element of rank {numbers[low]} weighs "
                f"{counts[high] / counts[low]:.3g} times as much",
                at,
                "divide the rank's sum by all ranks' number of elements, and multiply by the number of ranks",
            )


def _idle(noted: Noted) -> Iterator[Mistake]:
    """Name an optimizer whose parameters never get a gradient, beside a model that no step changes."""
    for fact in noted["by hand"]:
        if fact["is_idle"] and noted["unstepped"]:
            at = next(each["at"] for each in noted["parameters"] if each["model"] == fact["model"])
            yield Mistake(
                f"No step changes the model under {noted['unstepped'][0]['wrapper']}: "
                "the optimizer has other parameters, which never get a gradient",
                at,
                "make the optimizer after the model is wrapped, from the wrapped model's parameters",
            )


def _new_groups(by_kind: Mapping[int, Noted]) -> Iterator[Mistake]:
    """Name a group that not all ranks made, although it is not under local synchronization."""
    made: dict[tuple[int, ...], dict[int, list[Fact]]] = defaultdict(lambda: defaultdict(list))
    for rank, noted in by_kind.items():
        for fact in noted["new group"]:
            made[tuple(fact["members"])][rank].append(fact)
    for members, by_rank in made.items():
        counts = {rank: len(by_rank[rank]) for rank in members}
        if set(members) <= set(by_kind) and len(set(counts.values())) > 1:
            fewest = min(counts.values())
            missing = next(rank for rank in members if counts[rank] == fewest)
            fact = next(by_rank[rank][fewest] for rank in members if counts[rank] > fewest)
            yield Mistake(
                f"Rank {missing} did not call {fact['op']} #{fewest + 1}, as others did",
                fact["at"],
                "every rank has to call it, also for a group that it is not in: "
                "NCCL waits for all of them if init_process_group got a device_id",
            )


def _files(by_kind: Mapping[int, Noted]) -> Iterator[Mistake]:
    """Name files that several ranks write with no collective in between."""
    writers: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
    for rank, noted in by_kind.items():
        for fact in noted["file"]:
            writers[fact["path"], fact["collectives"]][rank] = fact["at"]
    told: set[str] = set()
    for (path, _), ranks in writers.items():
        if len(ranks) > 1 and path not in told:
            told.add(path)
            yield Mistake(
                f"{len(ranks)} ranks wrote {os.path.basename(path)}",  # noqa: PTH119 - text
                ranks[min(ranks)],
                "write it on rank 0 alone, or a file for each rank",
            )
