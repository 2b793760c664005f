"""Tensors that scatter cuts, or should not: DP201 to DP206."""

from collections.abc import Iterator, Sequence

from dpdemo.checking.errors import tells
from dpdemo.checking.evidence import Call, Evidence, Leaf, Probe
from dpdemo.checking.questions.arguments import (
    batch_of,
    delivered_rows,
    hidden_states,
    in_lists_of_samples,
    must_stay_whole,
    short_arguments,
)
from dpdemo.checking.questions.failures import failures, may_be_of_sizes
from dpdemo.checking.questions.words import listed, top_name
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Advice, Hit, advise, change_call, padded
from dpdemo.results.findings import Severity


@rule("DP201", "truncated-batch", "error", symptoms=("cut",), explains=("raises", "difference"))
def truncated_batch(evidence: Evidence) -> Iterator[Hit]:
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
        if not call.replicas or rows >= call.rows or call.pictures:
            continue
        states = hidden_states(evidence) if call.raised is not None or call.errors else set()
        others = {*states, *must_stay_whole(evidence)}
        samples = in_lists_of_samples(evidence)
        short = [leaf for leaf in short_arguments(call) if leaf.path not in others]
        short = [leaf for leaf in short if not leaf.path.startswith(samples)]
        if not short:
            continue
        names, advice = [leaf.path for leaf in short], _kept_whole(short, call, evidence)
        what = (
            f"{listed(names)} {'has' if len(names) == 1 else 'have'} {short[0].size(call.dim)} of "
            f"{call.rows} rows, so only {rows} of {call.rows} samples are computed, on {len(call.replicas)} "
            f"of {call.num_gpus} GPUs"
        )
        explains = _arguments(*names)
        yield Hit(",".join(names), what, evidence.scan.forward, probe, advice=advice, explains=explains)


def _arguments(*paths: str) -> tuple[str, ...]:
    """Name some arguments as symptoms."""
    return tuple(f"argument {path}" for path in paths)


def _kept_whole(leaves: Sequence[Leaf], call: Call, evidence: Evidence) -> Advice:
    """Advise how replicas get all of some tensors: a row for each sample, or a buffer of the model."""
    are_rows = all(leaf.size(call.dim) == 1 and top_name(leaf.path) == leaf.path for leaf in leaves)
    if are_rows and _runs_with_rows(leaves, call, evidence):
        return change_call(call, **{leaf.path: _expanded(leaf, call) for leaf in leaves})
    if _is_graph(leaves[0]):
        return padded("one graph")
    code = 'self.register_buffer("{name}", {name})   # in __init__; forward reads self.{name}'
    return advise(code, before="{call}", name=top_name(leaves[0].path))


def _runs_with_rows(leaves: Sequence[Leaf], call: Call, evidence: Evidence) -> bool:
    """Whether the call was made once more with a row for each sample, and had results of the same shapes."""
    shapes = {}
    for probe, other in evidence.calls:
        given = {leaf.path: leaf.size(other.dim) for leaf in other.tensor_arguments}
        sizes = {given.get(leaf.path) for leaf in leaves}
        is_again = sizes == {other.rows}
        if other.rows == call.rows and (is_again or sizes == {1}):
            right = None if is_again and other.raised is not None else True
            shapes[is_again] = right and [(leaf.path, leaf.shape) for leaf in probe.single.output]
    return True in shapes and shapes[True] is not None and shapes[True] == shapes.get(False)


def _expanded(leaf: Leaf, call: Call) -> str:
    """Write how a tensor of one row is given one for each sample."""
    sizes = ["-1"] * len(leaf.shape or ())
    batch = batch_of(call)
    sizes[call.dim] = f"len({batch})" if batch and call.dim == 0 else str(call.rows)
    return f"{leaf.path}.expand({', '.join(sizes)})"


def _is_graph(leaf: Leaf) -> bool:
    """Return whether a tensor looks like the edges of a graph: two rows of node numbers."""
    return leaf.shape is not None and len(leaf.shape) == 2 and leaf.shape[0] == 2 and leaf.dtype == "int64"


@rule("DP203", "missing-argument", "error", symptoms=("cut",))
def missing_argument(evidence: Evidence) -> Iterator[Hit]:
    """A replica is called without an argument that was passed.

    What happens: `forward() missing 1 required positional argument` in a replica that got no chunk, at the
        first batch that gives fewer chunks than there are GPUs, such as the last one of an epoch; where the
        argument has a default the replica runs on that, without a word. `The number of modules 4 is not
        equal to the number of kwargs_tup 3` is another form of it.
    Why: numbers and flags are copied to every GPU, tensors give only ceil(B / ceil(B / n)) chunks, and
        scatter_kwargs pads the shorter side with nothing.
    Before: model(x, scale=2.0)
    After: model(x, 2.0)   # or model(x=x, scale=2.0), or drop_last=True
    Seen by: a replica that received fewer arguments than replica 0; or this exception. A warning where no
        batch of the epoch is known to have such a size.
    References: pytorch/pytorch#52260, pytorch/pytorch#31460, pytorch/pytorch#16432, pytorch/pytorch#11793
    """
    for probe, call in evidence.calls:
        if call.raised is not None and "number of kwargs_tup" in call.raised.message:
            yield from _unlike_counts(probe, call, evidence)
        for index, path in _starved(call):
            replica = call.replicas[index]
            runs = replica.raised is None and replica.output is not None
            is_missing = replica.raised is not None and tells("DP203", replica.raised)
            if runs or is_missing:
                told = "and runs on its default" if runs else f"({replica.raised})"
                number = sum(any(leaf.path == path for leaf in replica.inputs) for replica in call.replicas)
                what = (
                    f"replica {index} is called without `{path}` {told}: a batch of {call.rows} gives "
                    f"{number} chunks of it for {len(call.replicas)} replicas"
                )
                severity: Severity | None = None if probe.is_real else "warning"
                advice = _by_keyword(path, call, evidence)
                yield Hit(
                    path, what, evidence.scan.forward, probe, severity, advice,
                    symptoms=("missing",) if is_missing else (),
                    explains=tuple(error.symptom for error in call.errors if tells("DP203", error)),
                )  # fmt: skip
                break


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


def _by_keyword(path: str, call: Call, evidence: Evidence) -> Advice:
    """Advise all arguments by keyword, which makes one list of chunks; or a tensor as long as the batch."""
    short = [argument for argument in short_arguments(call) if argument.path == path]
    if short:
        return _kept_whole(short, call, evidence)
    return change_call(call, **{name: name for name, _ in call.argument_structures})


def _unlike_counts(probe: Probe, call: Call, evidence: Evidence) -> Iterator[Hit]:
    """Report positional and keyword arguments that give different numbers of chunks."""
    short = short_arguments(call)
    fewest = min(short, key=lambda leaf: leaf.size(call.dim) or 0, default=None)
    name = fewest.path if fewest else "the keyword arguments"
    what = f"`{name}` gives fewer than {call.num_gpus} chunks, the other side more: {call.raised}"
    advice, symptoms = _by_keyword(name, call, evidence), _arguments(name)
    yield Hit(name, what, evidence.scan.forward, probe, advice=advice, symptoms=symptoms)


@rule("DP205", "split-constant", "error", symptoms=("cut",), explains=("raises", "rows", "difference"))
def split_constant(evidence: Evidence) -> Iterator[Hit]:
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
    whole = must_stay_whole(evidence)
    for probe, call in evidence.calls:
        leaves = [leaf for leaf in call.tensor_arguments if leaf.path in whole]
        if leaves and (probe.comparison.blamed or probe.comparison.needed_whole):
            yield _cut_constants(leaves, probe, call, evidence)
        related = [] if leaves else _relating_rows(probe, call)
        for leaf in related:
            what = (
                f"`{leaf.path}` of shape {leaf.shape} relates each row of the batch to every other, and is "
                f"cut with it: no replica sees it whole ({call.raised})"
            )
            yield Hit(leaf.path, what, evidence.scan.forward, probe, advice=padded("one graph"))
        # where a replica raises, it was run again with its arguments whole
        was_refuted = call.raised is not None and call.raised.stage == "replica"
        for leaf in () if leaves or related else _of_other_sizes(probe, call, evidence):
            what = (
                f"`{leaf.path}` has {leaf.size(call.dim)} rows and the batch {call.rows}: it is cut into "
                "chunks, and no replica sees it whole" + (f" ({call.raised})" if call.raised else "")
            )
            advice = None if was_refuted else _kept_whole([leaf], call, evidence)
            yield Hit(
                leaf.path, what, evidence.scan.forward, probe, advice=advice, symptoms=_arguments(leaf.path)
            )


def _relating_rows(probe: Probe, call: Call) -> list[Leaf]:
    """List what relates the rows of a batch to each other, as a graph's matrix, where a replica raises."""
    error = call.raised
    if error is None or error.stage != "replica" or not may_be_of_sizes(error) or not probe.is_real:
        return []
    return [leaf for leaf in call.tensor_arguments[1:] if leaf.shape == (call.rows, call.rows) != (1, 1)]


def _of_other_sizes(probe: Probe, call: Call, evidence: Evidence) -> Iterator[Leaf]:
    """List the tensors that have another number of rows than the batch, where that does harm."""
    graph = next((leaf for leaf in call.tensor_arguments if _is_graph(leaf)), None)
    error = call.raised
    if error is not None and (tells("DP203", error) or not may_be_of_sizes(error)):
        return
    if call.pictures:
        return
    samples = in_lists_of_samples(evidence)
    for leaf in call.tensor_arguments:
        size = leaf.size(call.dim)
        if leaf.path.startswith(samples):
            continue
        is_harmful = probe.comparison.values_equal is not True or error is not None
        if size is None or size == call.rows or not is_harmful:
            continue
        if call.is_for_each_gpu(leaf) or (graph is not None and leaf is not graph):
            continue  # what belongs to a graph's edges is told with them
        yield leaf


def _cut_constants(leaves: Sequence[Leaf], probe: Probe, call: Call, evidence: Evidence) -> Hit:
    """Report arguments that were found to be meant whole, by giving them whole to each replica."""
    names = [leaf.path for leaf in leaves]
    it, is_cut = ("it", "is cut") if len(names) == 1 else ("them", "are cut")
    error = next(iter(call.errors), call.raised)
    ending = (
        f"the results are wrong; they are those of one GPU when each replica gets {it} whole"
        if probe.comparison.blamed
        else f"replicas raise ({error}); they run when each gets {it} whole"
    )
    what = f"{listed(names)} {is_cut} into chunks with the batch, and {ending}"
    advice = _kept_whole(leaves, call, evidence)
    place, about = evidence.scan.forward, _arguments(*names)
    return Hit(",".join(names), what, place, probe, advice=advice, symptoms=about, explains=("missing",))


@rule("DP206", "scalar-argument", "error", explains=("missing", "difference"))
def scalar_argument(evidence: Evidence) -> Iterator[Hit]:
    """A tensor without dimensions cannot be scattered.

    What happens: `RuntimeError: chunk expects at least a 1-dimensional tensor`, before any replica runs.
    Why: scatter calls torch.chunk on every tensor.
    Before: model(x, torch.tensor(2.0))
    After: model(x, 2.0)   # or .item(); .expand(len(x)) where forward wants a tensor
    Seen by: a tensor argument with no batch dimension.
    References: huggingface/trl#2338, huggingface/transformers#36492
    """
    for probe, error in failures(evidence):
        call = probe.call
        if call is None or error.stage != "scatter":
            continue
        for leaf in call.tensor_arguments:
            if leaf.size(call.dim) is None:
                what = (
                    f"`{leaf.path}` is a tensor of shape {leaf.shape}: it has no dimension {call.dim} to "
                    f"cut ({error.message})"
                )
                advice = _of_a_number(leaf, call, evidence)
                yield Hit(leaf.path, what, evidence.scan.forward, probe, advice=advice)


def _of_a_number(leaf: Leaf, call: Call, evidence: Evidence) -> Advice:
    """Advise a number, where the call was seen to run with one; else a row for each sample."""
    if top_name(leaf.path) != leaf.path:
        return advise("{path} = {path}.item()   # before the call", path=leaf.path)
    by_keyword = {name: name for name, _ in call.argument_structures}  # no replica may miss the number
    given = (
        argument for _, other in evidence.calls for argument in other.arguments if argument.path == leaf.path
    )
    if not leaf.shape and any(argument.type in {"int", "float", "bool"} for argument in given):
        return change_call(call, **{**by_keyword, leaf.path: f"{leaf.path}.item()"})
    rows = f"{leaf.path}.expand(len({batch_of(call)}))" if not leaf.shape else f"{leaf.path}.unsqueeze(0)"
    return change_call(call, "and forward takes a row for each sample", **{**by_keyword, leaf.path: rows})
