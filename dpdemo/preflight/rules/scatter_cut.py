"""Tensors that scatter cuts, or should not: DP201 to DP206."""

import re
from collections.abc import Iterator

from dpdemo.preflight.evidence import Call, Evidence
from dpdemo.preflight.looking import (
    chunks_of,
    delivered_rows,
    failures,
    forward_place,
    is_hidden_state,
    listed,
    short_arguments,
)
from dpdemo.preflight.registry import Found, rule


@rule("DP201", "truncated-batch", "error")
def truncated_batch(evidence: Evidence) -> Iterator[Found]:
    """One short tensor cuts the whole batch short, without a word.

    What happens: a tensor with fewer rows than the batch gives fewer chunks, and all other arguments are
        cut to as many. The rest of the batch is never computed, and nothing says so.
    Why: scatter zips the lists of chunks of all arguments with `strict=False`, so the shortest decides,
        inside lists and dicts too.
    Before: model(x, position_ids)                   # position_ids: (1, T)
    After: model(x, position_ids.expand(len(x), -1))  # or a registered buffer
    Seen by: the rows that reach the replicas are fewer than those of the batch.
    References: pytorch/pytorch#7358
    """
    for probe, call in evidence.calls:
        rows = delivered_rows(call)
        if not call.replicas or rows >= call.rows:
            continue
        is_hidden = any("Expected hidden" in str(replica.raised) for replica in call.replicas)
        names = [
            leaf.path for leaf in short_arguments(call) if not (is_hidden and is_hidden_state(leaf, call))
        ]
        if not names:
            continue
        sizes = {leaf.path: leaf.size(call.dim) for leaf in call.tensor_arguments}
        yield Found(
            ",".join(names),
            f"{listed(names)} {'has' if len(names) == 1 else 'have'} {sizes[names[0]]} of {call.rows} "
            "rows, so only "
            f"{rows} of {call.rows} samples are computed, on {len(call.replicas)} of {call.num_gpus} GPUs",
            forward_place(evidence),
            probe,
        )


def _starved(call: Call) -> Iterator[tuple[int, str]]:
    """List the replicas that got fewer arguments than replica 0, and the first one that they miss."""
    if not call.replicas:
        return
    wanted = [leaf.path for leaf in call.replicas[0].inputs]
    for replica in call.replicas[1:]:
        got = {leaf.path for leaf in replica.inputs}
        missing = [path for path in wanted if path not in got]
        if missing:
            yield replica.index, missing[0]


@rule("DP202", "starved-default", "error")
def starved_default(evidence: Evidence) -> Iterator[Found]:
    """A replica runs on the default of an argument that was passed.

    What happens: the batch gives fewer chunks than there are GPUs, but numbers and flags are copied to
        each. The replicas beyond the last chunk are called without the tensor, and its default value lets
        them run.
    Why: scatter_kwargs pads the shorter of the positional and the keyword chunks with empty ones.
    Before: def forward(self, x=None, scale=1.0): ...   # model(x, scale=2.0)
    After: model(x=x, scale=2.0)                        # all by keyword, or all by position
    Seen by: a replica received fewer arguments than replica 0, and ran.
    References: pytorch/pytorch#52260
    """
    for probe, call in evidence.calls:
        for index, path in _starved(call):
            if call.replicas[index].raised is None and call.replicas[index].output is not None:
                yield Found(
                    path,
                    f"replica {index} is called without `{path}` and runs on its default: a batch of "
                    f"{call.rows} gives "
                    f"{_chunks_for(call, path)} chunks of it for {len(call.replicas)} replicas",
                    forward_place(evidence),
                    probe,
                )
                break


def _chunks_for(call: Call, path: str) -> int:
    return sum(any(leaf.path == path for leaf in replica.inputs) for replica in call.replicas)


@rule("DP203", "missing-argument", "error")
def missing_argument(evidence: Evidence) -> Iterator[Found]:
    """A replica is called without an argument that was passed.

    What happens: `forward() missing 1 required positional argument` in a replica that got no chunk, at the
        first batch that gives fewer chunks than there are GPUs, such as the last one of an epoch.
    Why: numbers and flags are copied to every GPU, tensors give only ceil(B / ceil(B / n)) chunks, and
        scatter_kwargs pads the shorter side with nothing.
    Before: model(x, scale=2.0)
    After: model(x, 2.0)   # or model(x=x, scale=2.0), or drop_last=True
    Seen by: a replica with fewer arguments than replica 0 raised TypeError.
    References: pytorch/pytorch#52260, pytorch/pytorch#31460, pytorch/pytorch#16432
    """
    for probe, call in evidence.calls:
        for index, path in _starved(call):
            error = call.replicas[index].raised
            if error is not None and re.search(r"missing \d+ required", error.message):
                yield Found(
                    path,
                    f"a batch of {call.rows} gives {_chunks_for(call, path)} chunks for {call.num_gpus} "
                    "GPUs, and "
                    f"replica {index} is called without `{path}`: {error.message}",
                    forward_place(evidence),
                    probe,
                )
                break


@rule("DP204", "chunk-counts", "error")
def chunk_counts(evidence: Evidence) -> Iterator[Found]:
    """Positional and keyword arguments give different numbers of chunks.

    What happens: `AssertionError: The number of modules 4 is not equal to the number of kwargs_tup 3`.
    Why: scatter_kwargs pads the shorter side only if it is shorter than the number of positional arguments.
    Before: model(x, mask=torch.ones(1, 5))
    After: model(x, mask=torch.ones(1, 5).expand(len(x), -1))
    Seen by: this exception; the argument with fewer chunks is named.
    References: pytorch/pytorch#11793
    """
    for probe, call in evidence.calls:
        error = call.raised
        if error is None or "is not equal to the number of kwargs_tup" not in error.message:
            continue
        fewest = min(
            call.tensor_arguments,
            key=lambda leaf: chunks_of(leaf.size(call.dim) or 1, call.num_gpus),
            default=None,
        )
        name = fewest.path if fewest else "the keyword arguments"
        count = chunks_of((fewest.size(call.dim) if fewest else None) or 1, call.num_gpus)
        yield Found(
            name,
            f"`{name}` gives {count} of {call.num_gpus} chunks, the other side more: {error.message}",
            forward_place(evidence),
            probe,
        )


@rule("DP205", "split-constant", "error")
def split_constant(evidence: Evidence) -> Iterator[Found]:
    """A tensor that belongs to the whole batch is cut with it.

    What happens: a matrix, class weights or a graph is cut into chunks like the samples. Shapes no longer
        fit, or, where its first size happens to be that of the batch, the numbers are wrong and the shape
        is right.
    Why: scatter cuts every tensor among the arguments; there is no way to exempt one.
    Before: model(x, adjacency)
    After: self.register_buffer("adjacency", adjacency)   # replicas get a whole copy
    Seen by: a tensor of another size than the batch; or results that are those of one device once it is
        left whole.
    References: pytorch/pytorch#27046, pytorch/pytorch#107374
    """
    for probe, call in evidence.calls:
        blamed = probe.comparison.blamed_argument
        if blamed:
            yield Found(
                blamed,
                f"`{blamed}` is cut into chunks with the batch, and the results are wrong; they are those "
                "of one GPU "
                "when each replica gets it whole",
                forward_place(evidence),
                probe,
            )
        is_hidden = any("Expected hidden" in str(replica.raised) for replica in call.replicas)
        for leaf in call.tensor_arguments:
            size = leaf.size(call.dim)
            if any("PackedSequence(" in text for _, text in call.argument_structures):
                continue  # DP214 tells that story
            if is_hidden and is_hidden_state(leaf, call):
                continue  # DP212 tells that story
            if size is None or size == call.rows or not _is_harmful(call, probe.comparison.values_equal):
                continue
            if call.replicas and leaf in short_arguments(call) and delivered_rows(call) < call.rows:
                continue  # DP201 tells that story
            if call.raised is not None and "kwargs_tup" in call.raised.message:
                continue  # and DP204 that one
            yield Found(
                leaf.path,
                f"`{leaf.path}` has {size} rows and the batch {call.rows}: it is cut into chunks all the "
                "same, and "
                "no replica sees it whole" + (f" ({call.raised})" if call.raised else ""),
                forward_place(evidence),
                probe,
            )


def _is_harmful(call: Call, values_equal: bool | None) -> bool:
    return values_equal is not True or call.raised is not None


@rule("DP206", "scalar-argument", "error")
def scalar_argument(evidence: Evidence) -> Iterator[Found]:
    """A tensor without dimensions cannot be scattered.

    What happens: `RuntimeError: chunk expects at least a 1-dimensional tensor`, before any replica runs.
    Why: scatter calls torch.chunk on every tensor.
    Before: model(x, torch.tensor(2.0))
    After: model(x, 2.0)   # or .item(), or .expand(len(x))
    Seen by: a tensor argument with no batch dimension.
    References: huggingface/trl#2338, huggingface/transformers#36492
    """
    for probe, error in failures(evidence):
        call = probe.call
        if call is None or error.stage != "scatter":
            continue
        for leaf in call.tensor_arguments:
            if leaf.size(call.dim) is None:
                yield Found(
                    leaf.path,
                    f"`{leaf.path}` is a tensor of shape {leaf.shape}: it has no dimension {call.dim} to cut "
                    f"({error.message})",
                    forward_place(evidence),
                    probe,
                )
