"""Published steps against what is predicted for them; as a program it prints the docs' tables."""

import csv
from dataclasses import dataclass
from pathlib import Path

from dpdemo.results.speedupdata import Anchor, Launches, Scaling
from dpdemo.timing.links import LINKS, link_of_bandwidth
from dpdemo.timing.predict import predict_speedup
from dpdemo.timing.workload import given_workload

HERE = Path(__file__).parent
TRUTH = HERE / "published_steps.csv"
HELD_OUT = HERE / "held_out_steps.csv"
FOUND_LATER = HERE / "found_later_steps.csv"
STRATEGIES = {"DP": "DataParallel", "DDP": "DDP"}


@dataclass(frozen=True)
class Compared:
    """One published step over several GPUs, and what is predicted from the one on one GPU."""

    row: dict[str, str]
    measured: float
    predicted: Scaling

    @property
    def error(self):
        return self.predicted.speedup.point / self.measured - 1

    @property
    def is_inside(self):
        return self.predicted.speedup.low <= self.measured <= self.predicted.speedup.high

    @property
    def is_on_right_side(self):
        """Whether the verdict, or its point where it cannot tell, says what was measured."""
        return (self.predicted.speedup.point > 1) == (self.measured > 1)


def compared(path):
    with path.open() as file:
        rows = list(csv.DictReader(file))
    alone = {_job(row): float(row["value"]) for row in rows if row["strategy"] == "single"}
    return [_compare(row, alone[_job(row)]) for row in rows if row["strategy"] != "single"]


def _job(row):
    return row["source"], row["model"], *row["task"].split(", ")[:2]


def _compare(row, one_gpu_ms):
    gpus = int(row["n_gpus"])
    counts = {name: int(row[name]) for name in ("forward", "backward", "modules", "tensors") if row[name]}
    workload = given_workload(
        int(row["parameters"]),
        output_bytes=int(row["output_bytes"]),
        input_bytes=int(row["input_bytes"]),
        launches=Launches(**counts) if counts else None,
    )
    link = LINKS.get(row["link"]) or link_of_bandwidth(row["link"])
    report = predict_speedup(workload, link, [gpus], [Anchor(ms=one_gpu_ms)])
    measured = gpus * one_gpu_ms / float(row["value"])
    ways = {way.strategy: way for way in report.ways}
    return Compared(row, measured, ways[STRATEGIES[row["strategy"]]].weak)


def table(rows):
    """Write the comparisons as a Markdown table."""
    lines = [
        "| model, rows per GPU | GPUs | over | measured | predicted | between | error | verdict |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for found in rows:
        row, gained = found.row, found.predicted.speedup
        block = f", {row['task'].split(', ')[1]}" if "block" in row["task"] else ""
        outside = "" if found.is_inside else " (outside)"
        cells = (
            f"{row['model']}{block}, {row['batch_per_gpu']}",
            f"{row['n_gpus']} × {row['gpu']} {row['strategy']}",
            row["link"],
            f"{found.measured:.2f}",
            f"{gained.point:.2f}",
            f"{gained.low:.2f}–{gained.high:.2f}{outside}",
            f"{100 * found.error:+.1f} %",
            found.predicted.verdict,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def outcome(rows):
    """Summarise the error of the predictions in a line."""
    errors = [abs(found.error) for found in rows]
    right, inside = sum(found.is_on_right_side for found in rows), sum(found.is_inside for found in rows)
    return (
        f"right side {right} of {len(rows)}, inside the interval {inside} of {len(rows)}, "
        f"mean error {100 * sum(errors) / len(errors):.1f} %, worst {100 * max(errors):.1f} %"
    )


if __name__ == "__main__":
    for path in (TRUTH, HELD_OUT, FOUND_LATER):
        print(f"{table(compared(path))}\n\n{outcome(compared(path))}\n")  # noqa: T201 - the tables of the docs
