"""Arguments that scatter does not cut, or not as meant: DP207 to DP215."""

import re
from collections.abc import Iterator

from dpdemo.preflight.evidence import Call, Evidence, Leaf, Probe
from dpdemo.preflight.looking import (
    failures,
    forward_place,
    gather_failures,
    is_hidden_state,
    listed,
    sizes_text,
)
from dpdemo.preflight.registry import Found, rule


@rule("DP207", "replicated-batch", "error")
def replicated_batch(evidence: Evidence) -> Iterator[Found]:
    """A batch that is no tensor goes to every replica whole.

    What happens: each replica works on all samples of a list, an array or a batch object: outputs have n
        times the rows, or lengths do not fit the chunk beside them.
    Why: scatter cuts tensors only; a list is opened element by element, and everything else is handed to all.
    Before: model(np_array)
    After: model(torch.as_tensor(np_array))   # lists of text: tokenize first, or cut by hand
    Seen by: an argument as long as the batch that every replica received whole.
    References: pytorch/pytorch#75442, pyg-team/pytorch_geometric#101, Lightning-AI/pytorch-lightning#1508
    """
    for probe, call in evidence.calls:
        if len(call.replicas) < 2 or not call.arguments or _is_harmless(probe, call):
            continue
        for name, what in _whole_batches(probe, call):
            yield Found(
                name,
                f"`{name}` ({what}) is not cut: each of the {len(call.replicas)} replicas gets all of it",
                forward_place(evidence),
                probe,
            )

        if not any(leaf.is_tensor or leaf.tensors_inside or leaf.length for leaf in call.arguments):
            yield Found(
                "no tensor",
                f"no argument is a tensor: each of the {len(call.replicas)} replicas runs on all of them",
                forward_place(evidence),
                probe,
            )


def _is_harmless(probe: Probe, call: Call) -> bool:
    return probe.comparison.values_equal is True and call.raised is None


def _whole_batches(probe: Probe, call: Call) -> Iterator[tuple[str, str]]:
    rows = call.rows or probe.batch_size
    groups: dict[str, list[Leaf]] = {}
    for leaf in call.arguments:
        step = re.fullmatch(r"(.*)\[\d+\]", leaf.path)
        if step:
            groups.setdefault(step[1], []).append(leaf)
        if not leaf.is_tensor and leaf.length == rows and leaf.type not in ("str", "bytes") and rows > 1:
            yield leaf.path, f"{leaf.type} of {rows}"
    for path, leaves in groups.items():
        if len(leaves) == rows > 1 and not any(leaf.is_tensor for leaf in leaves):
            yield path, f"a list of {rows} {leaves[0].type}"


@rule("DP208", "opaque-tensors", "error")
def opaque_tensors(evidence: Evidence) -> Iterator[Found]:
    """Tensors inside an object are neither cut nor moved.

    What happens: every replica gets the same object, whose tensors lie on GPU 0: `found at least two
        devices` in replica 1.
    Why: scatter opens tuples, lists, dicts and namedtuples, and no other class: no dataclass, no UserDict.
    Before: model(Batch(x=x, mask=mask))
    After: model({"x": x, "mask": mask})
    Seen by: an argument of another class that holds tensors.
    References: pytorch/pytorch#45840, huggingface/transformers#2818
    """
    for probe, call in evidence.calls:
        for leaf in call.arguments:
            if leaf.tensors_inside and len(call.replicas) > 1:
                yield Found(
                    leaf.path,
                    f"`{leaf.path}` is a {leaf.type} that holds {leaf.tensors_inside[0]}: scatter does "
                    "not look inside",
                    forward_place(evidence),
                    probe,
                )


@rule("DP209", "unbuildable-container", "error")
def unbuildable_container(evidence: Evidence) -> Iterator[Found]:
    """A container that cannot be built anew from its items.

    What happens: `TypeError: first argument must be callable or None` for a defaultdict, as argument or as
        result; other subclasses of dict or list fail in their own constructor.
    Why: scatter and gather call `type(obj)(items)`.
    Before: model(defaultdict(list, x=x))
    After: model(dict(batch))
    Seen by: an exception of scatter or gather, and a container of another class than dict, list or tuple.
    References: pytorch/pytorch#52597
    """
    for probe, error in failures(evidence):
        call = probe.call
        if call is None or error.stage not in ("scatter", "gather") or error.type != "TypeError":
            continue
        given = call.argument_structures if error.stage == "scatter" else (("the result", _result_of(call)),)
        for name, text in given:
            odd = re.search(r"(\w+)[{\[]", text)
            if odd:
                yield Found(
                    name,
                    f"`{name}` is or holds a {odd[1]}, which {error.stage} cannot build anew: "
                    f"{error.message}",
                    forward_place(evidence),
                    probe,
                )


def _result_of(call: Call) -> str:
    return next((replica.structure for replica in call.replicas if replica.structure), "")


@rule("DP210", "input-changed", "warning")
def input_changed(evidence: Evidence) -> Iterator[Found]:
    """Forward changes an input in place, and the caller sees a part of it.

    What happens: after the call only the rows of chunk 0 are changed.
    Why: chunk 0 is a view of a tensor that is on the first GPU already; the others are copies.
    Before: x.mul_(2)
    After: x = x * 2
    Seen by: the inputs before and after, on one GPU and under DataParallel.
    References: torch/csrc/cuda/comm.cpp, scatter
    """
    for probe in evidence.probes:
        # forward works on copies of these, on one GPU too
        on_host = (
            {leaf.path for leaf in probe.call.arguments if leaf.device == "cpu"} if probe.call else set()
        )
        for change in probe.changes:
            if change.kind == "input" and not change.same and change.path not in on_host:
                yield Found(
                    change.path,
                    f"forward changes `{change.path}` in place: on one GPU all of it, here chunk 0 only",
                    forward_place(evidence),
                    probe,
                )


@rule("DP211", "shared-argument", "warning")
def shared_argument(evidence: Evidence) -> Iterator[Found]:
    """Forward writes to an argument that all replicas share.

    What happens: a list or object passed in is written to by n threads: n times the entries, in any order.
    Why: scatter hands what it cannot cut to every replica, the very same object.
    Before: model(x, log)           # forward does log.append(...)
    After: y, entries = model(x)    # return it instead
    Seen by: the argument before and after.
    References: pytorch/pytorch#15993
    """
    for probe in evidence.probes:
        for change in probe.changes:
            if change.kind == "argument" and change.parallel_changed:
                yield Found(
                    change.path,
                    f"`{change.path}` is written by all replicas: {change.single} after a call on one GPU, "
                    f"{change.parallel} under DataParallel",
                    forward_place(evidence),
                    probe,
                )


@rule("DP212", "hidden-state", "error")
def hidden_state(evidence: Evidence) -> Iterator[Found]:
    """An RNN's hidden state has the batch on dimension 1.

    What happens: `Expected hidden[0] size (1, 2, 5), got [1, 8, 5]` in a replica.
    Why: scatter cuts on dimension 0 and the state is (layers, batch, features), `batch_first` or not; a
        state made for the whole batch does not fit a chunk either.
    Before: model(x, h0)                                      # h0: (layers, B, H)
    After: model(x, h0.transpose(0, 1))                       # and back in forward, or make it there from
        x.size(0)
    Seen by: this exception; the argument with the batch on dimension 1 is named.
    References: pytorch/pytorch#7890, pytorch/pytorch#15260
    """
    for probe, error in failures(evidence):
        if not re.search(r"Expected hidden(\[\d\])? size|For batched .* hx should", error.message):
            continue
        names = (
            [leaf.path for leaf in probe.call.tensor_arguments if is_hidden_state(leaf, probe.call)]
            if probe.call
            else []
        )
        what = (
            f"{listed(names)} has the batch on dimension 1"
            if names
            else "the state is made for the whole batch"
        )
        yield Found(",".join(names) or "hidden", f"{what}: {error.message}", error.place, probe)


@rule("DP213", "idle-gpus", "warning")
def idle_gpus(evidence: Evidence) -> Iterator[Found]:
    """A batch leaves GPUs idle.

    What happens: fewer chunks than GPUs: some compute nothing. Batches smaller than the number of GPUs do
        it, and some
        larger ones: 5, 6 and 9 on 4 GPUs.
    Why: chunks have ceil(B / n) rows each, so there may be fewer than n of them.
    Before: DataLoader(data, batch_size=6)   # 4 GPUs
    After: DataLoader(data, batch_size=8)
    Seen by: arithmetic over the batch sizes that the epoch holds.
    References: pytorch/pytorch#25636, pytorch/pytorch#9226
    """
    for probe in evidence.probes:
        split = probe.split
        if probe.is_real and split is not None and split.num_idle:
            yield Found(
                str(split.batch_size),
                f"a batch of {split.batch_size} on {split.num_devices} GPUs is cut into "
                f"{sizes_text(list(split.sizes()))}: {split.num_idle} idle",
                None,
                probe,
            )


@rule("DP214", "packed-sequence", "error")
def packed_sequence(evidence: Evidence) -> Iterator[Found]:
    """Packed sequences do not survive the split.

    What happens: a PackedSequence as argument: `batch_sizes should always be on CPU`. Packed and unpacked
        in forward:
        `Input tensor at index 1 has invalid shape [2, 5, 4], but expected [2, 6, 4]` when results are
        gathered.
    Why: scatter opens it like any tuple and cuts its parts; and each replica pads to its own longest
        sequence.
    Before: pad_packed_sequence(packed, batch_first=True)
    After: pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
    Seen by: the type of the arguments; or gather's exception in a model that pads without total_length.
    References: pytorch/pytorch#6299, pytorch/pytorch#2312, pytorch/pytorch#31422
    """
    for probe, call in evidence.calls:
        for name, text in call.argument_structures:
            if "PackedSequence(" in text:
                yield Found(name, f"`{name}` is a PackedSequence: scatter cuts its parts apart",
                            forward_place(evidence), probe)  # fmt: skip
    if evidence.scan.pads_alone:
        for probe, _, error in gather_failures(evidence):
            if "invalid shape" in error.message:
                yield Found(
                    "pad_packed_sequence",
                    "pad_packed_sequence without total_length pads each chunk to its own longest: "
                    f"{error.message}",
                    forward_place(evidence),
                    probe,
                )


@rule("DP215", "cpu-lengths", "error")
def cpu_lengths(evidence: Evidence) -> Iterator[Found]:
    """Lengths that must be on the CPU reach the replicas on their GPUs.

    What happens: `'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor`, where a
        plain call with the same lengths passes.
    Why: scatter moves every tensor among the arguments to the GPU of its replica.
    Before: pack_padded_sequence(x, lengths)
    After: pack_padded_sequence(x, lengths.cpu())   # in forward
    Seen by: this exception in a replica.
    References: pytorch/pytorch#43227, pytorch/pytorch#13214
    """
    for probe, error in failures(evidence):
        if error.stage == "replica" and error.replica is not None and "1D CPU int64" in error.message:
            yield Found(str(error.place), f"scatter moves the lengths: {error.message}", error.place, probe)
