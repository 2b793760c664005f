"""A sweep of what is predicted for a model: memory, whether it fits, what more GPUs gain.

Every figure is a prediction for its own cell. Only whether a cell fits may also follow from two other cells
of its line, one on each side, that have the same answer: a larger batch needs more. This is checked: where a
line needs less for a larger batch, or fails, each of its cells is predicted. So is every batch that leaves a
sample alone on a GPU, which some models cannot run.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count, pairwise

from dpdemo.errors import RunError
from dpdemo.reports.speedup import Scaling
from dpdemo.reports.sweep import Basis, Line, Measure, Predicted, SweepReport
from dpdemo.sweeping.grid import Axes, sweep_line
from dpdemo.sweeping.kept import Kept
from dpdemo.sweeping.predictions import Predictions, Prepare
from dpdemo.sweeping.questions import Failure, Need, Question
from dpdemo.timing.predict import predict_speedup

Progress = Callable[[int, int], None]
"""Called with how many cells are done, and how many there are."""
_Cells = Iterator[tuple[int, float | None, str]]
"""The place of each cell of a line, its figure and its answer, in any order."""


def predicted_sweep(  # noqa: PLR0913 - the axes, the question, and what the caller has
    axes: Axes,
    of: Predicted,
    question: Question,
    kept: Kept,
    *,
    prepare: Prepare = lambda: None,
    progress: Progress = lambda _done, _all: None,
) -> SweepReport:
    """Predict a figure for every batch size over every number of GPUs.

    Args:
        axes: each batch size is the whole batch, which the GPUs share.
        of: `memory`, `fits` or `speedup`; the last is the break-even where no step of one GPU was measured.
        question: the model, and what is assumed.
        kept: predictions of earlier sweeps; `Kept()` keeps none.
        prepare: called before torch is imported, which is not where all is kept.
        progress: called with the cells that are done, and all.

    Raises:
        UsageError: if the model cannot be built, or its inputs are not valid.
        RunError: if the model can run none of the batches.

    """
    num_between = 0
    lines = []
    done = count(1)
    with Predictions(question, kept, prepare) as predictions:
        for number in axes.gpus:
            split = sweep_line(axes.batch_sizes, number, "balance")
            values: list[float | None] = [None] * len(axes.batch_sizes)
            answers = [""] * len(axes.batch_sizes)
            for place, value, answer in _cells(of, split, axes.batch_sizes, predictions, question):
                values[place], answers[place] = value, answer
                num_between += of == "fits" and value is None and answer != "fails"
                progress(next(done), axes.num_cells)
            lines.append(Line(number, values, split.has_idle, split.has_lone, tuple(answers)))
    failure = predictions.failure
    if failure is not None and all(answer == "fails" for line in lines for answer in line.answers or ()):
        raise RunError(failure.failure, hint=failure.hint)
    basis = _basis(of, question, predictions, num_between)
    measure: Measure = of if of != "speedup" or question.anchors else "break-even"
    return SweepReport(measure, axes.near, axes.batch_sizes, tuple(lines), basis)


def _basis(of: Predicted, question: Question, predictions: Predictions, num_between: int) -> Basis:
    failure = predictions.failure
    return Basis(
        model=question.config.model,
        num_predicted=predictions.num_asked,
        num_kept=predictions.num_kept,
        num_between=num_between,
        failure="" if failure is None else failure.failure,
        assumed=question.assumed(of),
    )


def _cells(
    of: Predicted, split: Line, batch_sizes: Sequence[int], predictions: Predictions, question: Question
) -> _Cells:
    def need(place: int) -> Need | Failure:
        return predictions.need(split.gpus, batch_sizes[place])

    match of:
        case "memory":
            for place in range(len(batch_sizes)):
                found = need(place)
                yield (
                    (place, None, "fails") if isinstance(found, Failure) else (place, found.needed_bytes, "")
                )
        case "fits":
            yield from _fitting(split, need, question.capacity_bytes or 0)
        case "speedup":
            for place, size in enumerate(batch_sizes):
                yield place, *_gain(predictions, question, split.gpus, size)


def _fitting(split: Line, need: Callable[[int], Need | Failure], capacity_bytes: int) -> _Cells:
    """Find where a line stops fitting, by halves; what lies between two equal answers has that answer too."""
    known: dict[int, Need | Failure] = {}

    def answer(place: int) -> str:
        if place not in known:
            known[place] = need(place)
        found = known[place]
        return "fails" if isinstance(found, Failure) else found.answer(capacity_bytes)

    several = [place for place, is_lone in enumerate(split.has_lone) if not is_lone]
    answers = _halved(several, answer)
    is_regular = _grows(known)
    for place in range(len(split.values)):
        said = answers[place] if is_regular and place in answers else answer(place)
        found = known.get(place)
        yield place, found.needed_bytes if isinstance(found, Need) else None, said


def _halved(places: Sequence[int], answer: Callable[[int], str]) -> dict[int, str]:
    """Ask for both ends, and for the middle between two that differ, until neighbours differ."""
    found: dict[int, str] = {}

    def fill(low: int, high: int) -> None:
        for place in {places[low], places[high]} - found.keys():
            found[place] = answer(place)
        if found[places[low]] == found[places[high]]:
            found.update(dict.fromkeys(places[low:high], found[places[low]]))
        elif high - low > 1:
            middle = (low + high) // 2
            fill(low, middle)
            fill(middle, high)

    if places:
        fill(0, len(places) - 1)
    return found


def _grows(known: dict[int, Need | Failure]) -> bool:
    found = [known[place] for place in sorted(known)]
    needs = [(need.needed_bytes, need.least_bytes) for need in found if isinstance(need, Need)]
    rises = all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(needs))
    return rises and len(needs) == len(found)


def _gain(
    predictions: Predictions, question: Question, gpus: int, batch_size: int
) -> tuple[float | None, str]:
    """Compare several GPUs that share a batch with one that has it all."""
    assert question.link is not None  # noqa: S101 - checked where the question was asked
    workload = predictions.workload(batch_size)
    if isinstance(workload, Failure):
        return None, "fails"
    report = predict_speedup(workload, question.link, [gpus], question.anchors)
    scaling = report.way(gpus, "DataParallel").strong
    return _break_even(scaling) if scaling.speedup is None else (scaling.speedup.point, scaling.verdict or "")


def _break_even(scaling: Scaling) -> tuple[float | None, str]:
    even = scaling.break_even_ms
    return (None, "never pays") if even is None else (even.point, "pays if longer")
