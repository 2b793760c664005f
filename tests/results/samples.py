"""Reports and consoles that several tests draw with."""

import dataclasses
import io
from typing import Any

from hypothesis import strategies as st
from rich.console import Console

import dpdemo
from dpdemo.config.fields import Config
from dpdemo.results.batches import Outside, Replica
from dpdemo.results.report import Report
from dpdemo.results.split import SplitReport

INT64_MAX = 2**63 - 1


def simulated(**config: Any) -> SplitReport:
    """Predict a split."""
    return dpdemo.simulate(**config)


def called(name: str) -> SplitReport:
    """Predict two GPUs for a model of any name, past the config's own check of names."""
    report = simulated(gpus=2, model="a.b:factory")
    return dataclasses.replace(report, config=Config(**{**report.config.values(), "model": name}))


def observed(report: SplitReport, **changes: Any) -> SplitReport:
    """Make a prediction look like what `run` reports."""
    return dataclasses.replace(report, **{"command": "run", **changes})


def returning_a_dict() -> SplitReport:
    """Make a report of a model that takes and returns structures of tensors."""
    report = simulated(gpus=2, batch_size=4, data_size=4)
    (group,) = report.batches
    given = (("ids", (2, 7)), ("mask", (2, 7)))
    returned = (("logits", (2, 3)), ("state[0]", (1, 2, 9)))
    replicas = tuple(Replica(i, f"cuda:{i}", 2, given, returned) for i in range(2))
    outside = Outside("cpu", "cuda:1", (("ids", (4, 7)), ("mask", (4, 7))), (("logits", (4, 3)),))
    return observed(report, batches=(dataclasses.replace(group, in_model=replicas, outside=outside),))


def interrupted() -> SplitReport:
    """Make the report of a run that was stopped after two of four batches."""
    report = simulated(gpus=3)
    group = dataclasses.replace(report.batches[0], count=2)
    return observed(report, batches=(group,), partial=True)


def write(report: Report, form: str, console: Console, **options: bool) -> None:
    """Write a report to a console's file in its width; the console's colours only where it is a terminal."""
    report = dataclasses.replace(report, **options)
    if console.is_terminal:
        console.print(report, crop=False)
    else:
        report.write(form, console.file, width=console.width)


def drawn(
    report: Report, form: str = "table", *, width: int = 80, encoding: str = "utf-8", **options: Any
) -> str:
    """Write a report as a pipe would receive it."""
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding, newline="\n") as file:
        write(report, form, Console(file=file, width=width, _environ={}), **options)
        file.flush()
        return raw.getvalue().decode(encoding)


sizes = st.one_of(st.integers(1, 200), st.integers(1, INT64_MAX))
ordinals = st.lists(st.integers(0, 40), min_size=1, max_size=40).map(tuple)
gpus = st.one_of(st.none(), st.integers(1, 20), st.integers(1, 128), ordinals)


@st.composite
def reports(draw: st.DrawFn, sizes: st.SearchStrategy[int] = sizes, gpus: Any = gpus) -> SplitReport:
    """Draw any prediction."""
    return simulated(
        batch_size=draw(sizes),
        data_size=draw(sizes),
        gpus=draw(gpus),
        model=draw(st.sampled_from(["linear", "partial", "hybrid", "transformer", "some.module:Net"])),
    )


few_sizes = st.integers(1, 200)
few_gpus = st.one_of(st.none(), st.integers(1, 40), ordinals)
