"""Tensors that scatter cuts, or should not: DP201 to DP206."""

import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Leaf, Probe
from dpdemo.checking.looking import (
    call_by_keyword,
    call_of,
    call_with,
    chunks_of,
    delivered_rows,
    expanded,
    failures,
    forward_place,
    hidden_states,
    listed,
    may_be_of_sizes,
    must_stay_whole,
    short_arguments,
    top_name,
)
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.before import reader_before
from dpdemo.checking.rewriting.handing import Given, handed_over, whole
from dpdemo.checking.rewriting.states import state_repair


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
        if not call.replicas or rows >= call.rows or call.pictures or probe.comparison.is_along_another:
            continue
        states = _refused_states(call, evidence)
        short = [leaf.path for leaf in short_arguments(call)]
        names = [path for path in short if path not in {*states, *must_stay_whole(evidence)}]
        if not names:
            continue
        leaves = {leaf.path: leaf for leaf in call.tensor_arguments}
        sizes = {path: leaf.size(call.dim) for path, leaf in leaves.items()}
        yield Found(
            ",".join(names),
            f"{listed(names)} {'has' if len(names) == 1 else 'have'} {sizes[names[0]]} of {call.rows} "
            "rows, so only "
            f"{rows} of {call.rows} samples are computed, on {len(call.replicas)} of {call.num_gpus} GPUs",
            forward_place(evidence),
            probe,
            repair=_whole_repair([leaves[name] for name in names], call, probe, evidence),
        )


def _refused_states(call: Call, evidence: Evidence) -> set[str]:
    """Name the hidden states, where something raises that got a part of them: that is DP212."""
    raises = call.raised is not None or any(replica.raised is not None for replica in call.replicas)
    return hidden_states(evidence) if raises else set()


def _whole_repair(
    leaves: list[Leaf], call: Call, probe: Probe, evidence: Evidence, *, is_graph: bool = False
) -> Repair:
    """Write the call, and one in which tensors are not cut: expanded, and taken back where need be."""
    note = f"   # {leaves[0].path}: {leaves[0].shape}"
    if (names := {leaf.path for leaf in leaves}) <= hidden_states(evidence):
        own = state_repair(sorted(names), call, forward_place(evidence), evidence)
        if own is not None:
            return own
    is_row = all(leaf.size(call.dim) == 1 for leaf in leaves)
    if is_row and not {leaf.path for leaf in leaves} & _lone_rows(evidence):
        wide = [expanded(leaf, call, is_column=leaf.path in probe.comparison.columns) for leaf in leaves]
        given = [Given(leaf.path, code) for leaf, code in zip(leaves, wide, strict=True)]
        repair = handed_over(given, call, evidence)
        plain = Repair(None, call_of(call), call_with(call, leaves[0].path, wide[0]))
        return (repair or plain)._replace(before=call_of(call) + note)
    is_known = {leaf.path for leaf in leaves} <= must_stay_whole(evidence)
    if is_graph or (_is_graph(leaves[0]) and not is_known):
        return Repair(
            None,
            call_of(call) + note,
            f"{call_of(call).replace('model(', 'model.module(', 1)}   # one graph cannot be split; a list of "
            "graphs can: torch_geometric.nn.DataParallel",
        )
    one_row = is_row and call.dim == 0
    given = [Given(leaf.path, _row_of_each(leaf, call), "{}[:1]") if one_row else whole(leaf, call)
             for leaf in leaves]  # fmt: skip
    stays = "; ".join(
        f'self.register_buffer("{name}", {name})' for name in (top_name(leaf.path) for leaf in leaves)
    )
    plain = Repair(None, "", f"{stays}   # in __init__, and forward reads it there: no one line can do it")
    return (handed_over(given, call, evidence) or plain)._replace(before=call_of(call) + note)


def _row_of_each(leaf: Leaf, call: Call) -> str:
    return "{}" + expanded(leaf, call).removeprefix(leaf.path)


def _lone_rows(evidence: Evidence) -> set[str]:
    """Name the tensors of one row that forward does not take with more."""
    return {path for probe in evidence.probes for path in probe.comparison.lone_rows}


def _is_graph(leaf: Leaf) -> bool:
    """Return whether a tensor looks like the edges of a graph: two rows of node numbers."""
    return leaf.shape is not None and len(leaf.shape) == 2 and leaf.shape[0] == 2 and leaf.dtype == "int64"


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
    Seen by: a replica received fewer arguments than replica 0, and ran. A warning as for DP203.
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
                    None if probe.is_real else "warning",
                    repair=_keyword_repair(path, call, probe, evidence),
                )
                break


def _keyword_repair(path: str, call: Call, probe: Probe, evidence: Evidence) -> Repair:
    """Write the call, and the same with all arguments by keyword: then there is one list of chunks.

    An argument that is shorter than the batch goes to every sample, as for DP204.
    """
    leaf = next((one for one in short_arguments(call) if one.path == path), None)
    if leaf is not None:
        return _whole_repair([leaf], call, probe, evidence)
    return Repair(None, call_of(call), call_by_keyword(call))


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
    Seen by: a replica with fewer arguments than replica 0 raised TypeError. A warning where no batch of the
        epoch is known to have such a size.
    References: pytorch/pytorch#52260, pytorch/pytorch#31460, pytorch/pytorch#16432
    """
    for probe, call in evidence.calls:
        for index, path in _starved(call):
            error = call.replicas[index].raised
            if must_stay_whole(evidence) or _has_scalars(evidence):
                break  # what has more chunks is none of the batch's: that is DP205, or DP206
            if error is not None and re.search(r"missing \d+ required", error.message):
                yield Found(
                    path,
                    f"a batch of {call.rows} gives {_chunks_for(call, path)} chunks for {call.num_gpus} "
                    "GPUs, and "
                    f"replica {index} is called without `{path}`: {error.message}",
                    forward_place(evidence),
                    probe,
                    None if probe.is_real else "warning",
                    repair=_keyword_repair(path, call, probe, evidence),
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
            [leaf for leaf in call.tensor_arguments if not call.is_for_each_gpu(leaf)],
            key=lambda leaf: chunks_of(leaf.size(call.dim) or 1, call.num_gpus),
            default=None,
        )
        if fewest is not None and fewest.path in hidden_states(evidence):
            continue  # that is DP212
        name = fewest.path if fewest else "the keyword arguments"
        count = chunks_of((fewest.size(call.dim) if fewest else None) or 1, call.num_gpus)
        yield Found(
            name,
            f"`{name}` gives {count} of {call.num_gpus} chunks, the other side more: {error.message}",
            forward_place(evidence),
            probe,
            repair=_whole_repair([fewest], call, probe, evidence) if fewest else None,
            before=call_of(call),
            after=call_by_keyword(call),
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
    whole = must_stay_whole(evidence)
    if any(probe.comparison.batch_dims for probe in evidence.probes):
        return  # that is DP216
    for probe, call in evidence.calls:
        names = [leaf.path for leaf in call.tensor_arguments if leaf.path in whole]
        if _refused_states(call, evidence).intersection(names):
            continue  # that is DP212; with its other arguments whole a chunk of one row may run by chance
        if names and (probe.comparison.blamed or probe.comparison.needed_whole):
            yield _cut_constants(names, probe, call, evidence)
        relating = _relating_rows(call) if probe.is_real and not names else []
        for leaf, what in () if names else relating or _of_other_sizes(probe, call, evidence):
            ending = f" ({call.raised})" if call.raised else ""
            yield Found(
                leaf.path,
                f"`{leaf.path}` {what}: it is cut into chunks all the same, and no replica sees it "
                f"whole{ending}",
                forward_place(evidence),
                probe,
                repair=reader_before(leaf.path, evidence, call)
                if _is_refuted(call) and not relating
                else _whole_repair([leaf], call, probe, evidence, is_graph=bool(relating)),
            )


def _is_refuted(call: Call) -> bool:
    """Whether replicas raise with arguments whole, too: that was tried, as always where one raises."""
    return call.raised is not None and call.raised.stage == "replica"


def _relating_rows(call: Call) -> list[tuple[Leaf, str]]:
    """List what relates the rows of a batch to each other, as a graph's matrix, where a replica raises."""
    rows = call.rows
    error = call.raised
    if error is None or error.stage != "replica" or not may_be_of_sizes(error) or rows < 2:
        return []
    found = [leaf for leaf in call.tensor_arguments[1:] if leaf.shape == (rows, rows)]
    return [
        (leaf, f"of shape ({rows}, {rows}) relates each row of the batch to every other") for leaf in found
    ]


def _of_other_sizes(probe: Probe, call: Call, evidence: Evidence) -> Iterator[tuple[Leaf, str]]:
    """List the tensors that have another number of rows than the batch, where that does harm."""
    states = _refused_states(call, evidence)
    graph = next((leaf for leaf in call.tensor_arguments if _is_graph(leaf)), None)
    if any("PackedSequence(" in text for _, text in call.argument_structures):
        return  # that is DP214
    if call.raised is not None and "kwargs_tup" in call.raised.message:
        return  # and DP204 that one
    if call.raised is not None and not may_be_of_sizes(call.raised):
        return
    if call.pictures or probe.comparison.is_along_another:
        return
    for leaf in call.tensor_arguments:
        size = leaf.size(call.dim)
        if size is None or size == call.rows or not _is_harmful(call, probe.comparison.values_equal):
            continue
        if leaf.path in states:
            continue  # that is DP212
        if call.replicas and leaf in short_arguments(call) and delivered_rows(call) < call.rows:
            continue  # that is DP201
        if call.is_for_each_gpu(leaf) or (graph is not None and leaf is not graph):
            continue  # what belongs to a graph's edges is told with them
        yield leaf, f"has {size} rows and the batch {call.rows}"


def _cut_constants(names: list[str], probe: Probe, call: Call, evidence: Evidence) -> Found:
    """Tell of arguments that were found to be meant whole, by giving them whole to each replica."""
    leaves = {leaf.path: leaf for leaf in call.tensor_arguments}
    it, is_cut = ("it", "is cut") if len(names) == 1 else ("them", "are cut")
    ending = (
        f"the results are wrong; they are those of one GPU when each replica gets {it} whole"
        if probe.comparison.blamed
        else f"replicas raise ({_first_error(call)}); they run when each gets {it} whole"
    )
    what = f"{listed(names)} {is_cut} into chunks with the batch, and {ending}"
    repair = _whole_repair([leaves[name] for name in names], call, probe, evidence)
    return Found(",".join(names), what, forward_place(evidence), probe, repair=repair)


def _first_error(call: Call) -> str:
    return next((str(one.raised) for one in call.replicas if one.raised is not None), str(call.raised))


def _is_harmful(call: Call, values_equal: bool | None) -> bool:
    return values_equal is not True or call.raised is not None


@rule("DP206", "scalar-argument", "error")
def scalar_argument(evidence: Evidence) -> Iterator[Found]:
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
                yield Found(
                    leaf.path,
                    f"`{leaf.path}` is a tensor of shape {leaf.shape}: it has no dimension {call.dim} to cut "
                    f"({error.message})",
                    forward_place(evidence),
                    probe,
                    repair=_scalar_repair(leaf, call, probe, evidence),
                )


def _has_scalars(evidence: Evidence) -> bool:
    """Whether a call could not be cut for a tensor without dimensions, whose repair is by keyword."""
    return any(leaf.shape == () for _, call in evidence.calls for leaf in call.tensor_arguments)


def _scalar_repair(leaf: Leaf, call: Call, probe: Probe, evidence: Evidence) -> Repair:
    """Write the call with a number, or one for each sample, or a dimension more, in a tensor's place."""
    if leaf.shape:
        one = Given(leaf.path, "{}.unsqueeze(0)", "{}[0]")
        given = call_with(call, leaf.path, f"{leaf.path}.unsqueeze(0)")
        return handed_over([one], call, evidence) or Repair(None, call_of(call), given)
    way = dict(probe.comparison.scalars).get(leaf.path, "item()")
    if way == "item()" and top_name(leaf.path) == leaf.path:
        after = call_by_keyword(call, **{leaf.path: f"{leaf.path}.item()"})
        return Repair(None, call_of(call), after)  # a number beside positions: DP203
    return Repair(None, call_of(call), call_with(call, leaf.path, f"{leaf.path}.{way}"))
