"""One GPU's share of a step of a model of which the user gives the bytes: needs no torch."""

from dpdemo.results.speedupdata import Launches, Workload

ITEM_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}


def given_workload(  # noqa: PLR0913 - a size each
    num_parameters: int,
    *,
    dtype: str = "float32",
    output_bytes: int = 0,
    input_bytes: int = 0,
    rows: int | None = None,
    launches: Launches | None = None,
) -> Workload:
    """Return the workload of a model of which only the bytes are known; its loss is computed inside it.

    Args:
        num_parameters: all of them are trained.
        dtype: the type of parameters and gradients, as a config names it.
        output_bytes: of one GPU's outputs, which DataParallel gathers on GPU 0; with the loss outside the
            model their gradients go back, so that the outputs count twice.
        input_bytes: of one GPU's inputs.
        rows: in one GPU's batch.
        launches: what Python handles of each replica, if known.

    """
    weight = num_parameters * ITEM_BYTES[dtype]
    return Workload(
        name="given sizes",
        rows=rows,
        num_parameters=num_parameters,
        parameter_bytes=weight,
        gradient_bytes=weight,
        buffer_bytes=0,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        launches=launches,
    )
