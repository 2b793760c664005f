"""`sweep`: a figure for every batch size over every number of GPUs.

Those of the split are computed by `grid.py` and import no torch. The others are predicted for a model:

    predicted.py     the lines of a predicted sweep
    questions.py     what is asked of a model, and what is found for a cell
    predictions.py   each prediction once, kept or made
    opened.py        makes them, with torch
    kept.py          the predictions of earlier sweeps
    sources.py       what they were made from, and whether that still holds
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from dpdemo.config.axes import parse_axis
from dpdemo.config.fields import INT64_MAX, Config
from dpdemo.config.gpus import MAX_ORDINAL
from dpdemo.config.load import resolve
from dpdemo.errors import UsageError
from dpdemo.reports.sweep import Predicted, Split, SweepReport
from dpdemo.sweeping.grid import Axes, sweep_line
from dpdemo.wording import show

if TYPE_CHECKING:
    from dpdemo.reports.memory import Training
    from dpdemo.reports.speedup import Link
    from dpdemo.sweeping.kept import Kept
    from dpdemo.sweeping.questions import Inputs, Question

MOST_CELLS = 10_000_000
MOST_PREDICTED = 10_000
GPUS = "1-16"
BATCH_SIZES = "1-64"

Numbers = str | int | Sequence[int]
"""An axis as its user writes it, `16-512:8`, or its numbers."""


def sweep(  # noqa: PLR0913 - all that a prediction depends on
    gpus: Numbers = GPUS,
    batch_size: Numbers = BATCH_SIZES,
    *,
    of: Split | Predicted = "balance",
    near: int | None = None,
    config: Config | str | os.PathLike[str] | None = None,
    training: "Training | None" = None,
    inputs: "Inputs" = None,
    gpu_memory: str | int | None = None,
    gpu: str | None = None,
    reserve: str | None = None,
    link: "str | Link" = "",
    one_gpu_step: str | Sequence[str] = (),
    **overrides: object,
) -> SweepReport:
    """Compute a figure for every batch size over every number of GPUs.

    Balance, weight and idle are those of a full batch, by arithmetic and without torch. Memory, fits and
    speedup are predicted for a model, with the whole batch shared by the GPUs; `dpdemo sweep` keeps such
    predictions for the next time, this function keeps none.

    Args:
        gpus: the numbers of GPUs, as `1-16`, `1-16:x2`, a number, or a sequence of them.
        batch_size: the batch sizes, in the same forms.
        of: `balance`, `weight` or `idle`, the `utilization`, `sample_weight` and idle devices of `simulate`;
            `memory` or `fits`, in bytes, of the GPU that needs most; or `speedup`, over one GPU.
        near: the batch size near which the best cell is looked for; the config's if left out.
        config: the model, as a Config or the path of a YAML file; the tutorial's if left out.
        training: as for `predict_memory`, and its loss for the speed-up.
        inputs: shapes such as `["32x128"]`, of which the first number is replaced by the batch size, or the
            name of a function of it, `pkg.mod:function`.
        gpu_memory: what each GPU can hold, such as "24GiB" or in bytes, for `fits`.
        gpu: the name of a card, such as "A100-80GB".
        reserve: what is kept free for the CUDA context, as "1GiB"; 600 MiB if left out.
        link: how the GPUs are joined, such as "pcie4", for `speedup`.
        one_gpu_step: a measured step of one GPU with its rows, `49ms@32`; several give a line. Without one
            `speedup` is the break-even.
        overrides: keys of the config that win over `config`, such as `model="model.py:Net"`.

    Returns:
        A figure for each pair of a batch size and a number of GPUs.

    Raises:
        UsageError: for numbers that cannot be, another word for `of`, or more than 10 million cells; for a
            model that cannot be built, or what its prediction lacks.
        RunError: if the model can run none of the batches.

    """
    known = (*get_args(Split), *get_args(Predicted))
    if of not in known:
        raise UsageError(f"expected {', '.join(known)}, got {show(of)} - at argument `of`")
    resolved = resolve(config, overrides)
    axes = Axes(
        _axis(gpus, MAX_ORDINAL, "argument `gpus`"),
        _axis(batch_size, INT64_MAX, "argument `batch_size`"),
        resolved.batch_size if near is None else near,
    )
    if of == "balance" or of == "weight" or of == "idle":  # noqa: PLR1714 - what a type checker follows
        return sweep_axes(axes, of)
    from dpdemo.sweeping.kept import Kept
    from dpdemo.sweeping.questions import make_question

    question = make_question(
        resolved, training, inputs, gpu_memory=gpu_memory, card=gpu, reserve=reserve, link=link,
        steps=[one_gpu_step] if isinstance(one_gpu_step, str) else one_gpu_step,
    )  # fmt: skip
    return sweep_predicted(axes, of, question, Kept())


def sweep_predicted(
    axes: Axes, of: Predicted, question: "Question", kept: "Kept", **caller: Any
) -> SweepReport:
    """Sweep over two axes by predictions; `caller` has the other arguments of `predicted_sweep`.

    Raises:
        UsageError: for more cells than anyone would wait for, or where the question lacks something.
        RunError: if the model can run none of the batches.

    """
    _check_cells(axes, MOST_PREDICTED)
    question.check(of)
    from dpdemo.sweeping.predicted import predicted_sweep

    return predicted_sweep(axes, of, question, kept, **caller)


def sweep_axes(axes: Axes, of: Split) -> SweepReport:
    """Sweep over two axes by the split alone.

    Raises:
        UsageError: for more than 10 million cells.

    """
    _check_cells(axes, MOST_CELLS)
    lines = tuple(sweep_line(axes.batch_sizes, number, of) for number in axes.gpus)
    return SweepReport(of, axes.near, axes.batch_sizes, lines)


def _check_cells(axes: Axes, most: int) -> None:
    if axes.num_cells > most:
        raise UsageError(
            f"expected at most {most} cells, got {len(axes.batch_sizes)} batch sizes over {len(axes.gpus)} "
            "numbers of GPUs - at options `--gpus` and `--batch-size`",
            hint="take every eighth batch size with `:8`, or powers of two with `:x2`",
        )


def _axis(numbers: Numbers, most: int, where: str) -> Sequence[int]:
    text = numbers if isinstance(numbers, str) else ",".join(map(str, _listed(numbers)))
    return parse_axis(text, most, where)


def _listed(numbers: int | Sequence[int]) -> Sequence[int]:
    return [numbers] if isinstance(numbers, int) else numbers
