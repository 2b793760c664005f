"""Batches of sequences, and where their samples are: DP212, DP214 to DP216."""

from collections.abc import Iterator

from dpdemo.checking.errors import is_of_devices, tells
from dpdemo.checking.evidence import Call, Evidence, Probe
from dpdemo.checking.fills import swapped
from dpdemo.checking.questions.arguments import hidden_states, is_hidden_state, packed_arguments
from dpdemo.checking.questions.failures import failures, gather_failures
from dpdemo.checking.questions.words import listed, top_name
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Hit, advise, change_call, padded


@rule("DP212", "hidden-state", "error", explains=("raises", "difference"))
def hidden_state(evidence: Evidence) -> Iterator[Hit]:
    """An RNN's hidden state has the batch on dimension 1.

    What happens: `Expected hidden[0] size (1, 2, 5), got [1, 8, 5]` in a replica.
    Why: scatter cuts on dimension 0 and the state is (layers, batch, features), `batch_first` or not; a
        state made for the whole batch does not fit a chunk either.
    Before: model(x, h0)                                      # h0: (layers, B, H)
    After: model(x, h0.transpose(0, 1))                       # and back in forward, or make it there from
        x.size(0)
    Seen by: this exception, or another of a replica that got a part of such an argument, which is named.
    References: pytorch/pytorch#7890, pytorch/pytorch#15260
    """
    states = hidden_states(evidence)
    for probe, error in failures(evidence):
        is_refused = tells("DP212", error)
        if not is_refused and (not states or error.stage == "gather" or is_of_devices(error.message)):
            continue
        call = probe.call
        given = call.tensor_arguments if call else ()
        names = [leaf.path for leaf in given if call and is_hidden_state(leaf, call)]
        what = f"{listed(names)} {_has(names)} the batch on dimension 1" if names else _WHOLE
        turned = {name: f"{name}.transpose(0, 1)" for name in names if top_name(name) == name}
        made = "h = torch.zeros(layers, {x}.size(0), hidden, device={x}.device)"
        advice = advise(made + "   # made in forward, of its chunk")
        if call is not None and turned:
            advice = change_call(call, "and the same back in forward", **turned)
        told, explains = f"{what}: {error.message}", tuple(f"argument {state}" for state in states)
        yield Hit(",".join(names) or "hidden", told, error.place, probe, advice=advice, explains=explains)


_WHOLE = "the state is made for the whole batch"


@rule("DP214", "packed-sequence", "error", explains=("cut", "raises", "rows", "difference"))
def packed_sequence(evidence: Evidence) -> Iterator[Hit]:
    """Packed sequences do not survive the split.

    What happens: a PackedSequence as argument: `batch_sizes should always be on CPU`. Packed and unpacked in
        forward: `Input tensor at index 1 has invalid shape [2, 5, 4], but expected [2, 6, 4]` when results
        are gathered. Samples of unequal length one after another, with `cu_seqlens`, offsets or lengths
        beside them, are cut in the middle of a sample: an exception, or wrong numbers without a word.
    Why: scatter opens a PackedSequence like any tuple and cuts its parts; each replica pads to its own
        longest sequence; and where samples are joined, the first dimension is no batch.
    Before: pad_packed_sequence(packed, batch_first=True)
    After: pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
    Seen by: the type of the arguments; gather's exception in a model that pads without total_length; or whole
        numbers that climb to, or add up to, the rows of another argument.
    References: pytorch/pytorch#6299, pytorch/pytorch#2312, pytorch/pytorch#31422
    """
    forward = evidence.scan.forward
    for probe, call in evidence.calls:
        for name, text in call.argument_structures:
            if "PackedSequence(" in text:
                what = f"`{name}` is a PackedSequence: scatter cuts its parts apart"
                note = "padded, with its lengths; packed again in forward"
                advice = change_call(call, note, **{name: f"pad_packed_sequence({name}, batch_first=True)"})
                yield Hit(name, what, forward, probe, advice=advice)
    yield from _joined_samples(evidence)
    if evidence.scan.pads_alone:
        for probe, _, error in gather_failures(evidence):
            if "invalid shape" in error.message:
                what = (
                    "pad_packed_sequence without total_length pads each chunk to its own longest: "
                    f"{error.message}"
                )
                yield Hit("pad_packed_sequence", what, forward, probe, advice=advise())


def _joined_samples(evidence: Evidence) -> Iterator[Hit]:
    """Report samples of unequal length that are joined along the dimension that is cut."""
    for probe, call in evidence.calls:
        joined, by = packed_arguments(probe, call)
        if joined and (call.raised is not None or probe.comparison.values_equal is not True):
            what = (
                f"{listed(joined)} {_has(joined)} samples of unequal length one after another, and "
                f"{listed(by)} {'says' if len(by) == 1 else 'say'} how long each is: the first dimension is "
                "no batch, and is cut in the middle of a sample"
            )
            names = [*joined, *by]
            advice = padded(" and ".join(names))
            yield Hit(",".join(names), what, evidence.scan.forward, probe, advice=advice)


@rule("DP215", "cpu-lengths", "error")
def cpu_lengths(evidence: Evidence) -> Iterator[Hit]:
    """Lengths that must be on the CPU reach the replicas on their GPUs.

    What happens: `'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor`, where a
        plain call with the same lengths passes.
    Why: scatter moves every tensor among the arguments to the GPU of its replica.
    Before: pack_padded_sequence(x, lengths)
    After: pack_padded_sequence(x, lengths.cpu())
    Seen by: this exception in a replica.
    References: pytorch/pytorch#43227, pytorch/pytorch#13214
    """
    for probe, error in failures(evidence):
        if error.stage == "replica" and error.replica is not None and tells("DP215", error):
            what = f"scatter moves the lengths: {error.message}"
            to_cpu = swapped(r"(pack_padded_sequence\([^,]+,\s*[\w.\[\]]+)", r"\1.cpu()")
            advice, explains = advise(fill=to_cpu), (error.symptom,)
            yield Hit(str(error.place), what, error.place, probe, advice=advice, explains=explains)


@rule("DP216", "other-dimension", "error", explains=("cut", "raises", "rows", "difference"))
def other_dimension(evidence: Evidence) -> Iterator[Hit]:
    """The batch is on another dimension than the one that is cut.

    What happens: a recurrent layer without `batch_first`, a transformer of (time, batch, features): time is
        cut into chunks instead of samples, and each replica reads a piece of every sequence. Results have the
        right shape and wrong numbers, or shapes do not fit.
    Why: scatter and gather use DataParallel's `dim`, 0 if not set, for all arguments alike: time-first `x`
        beside `lengths` or a mask that is batch first must be transposed before the call.
    Before: nn.DataParallel(model)
    After: nn.DataParallel(model, dim=1)   # or batch_first=True, and x.transpose(0, 1) before the call
    Seen by: chunks along that dimension have the results of one GPU, and those that scatter makes have not.
    References: torch/nn/parallel/data_parallel.py, pytorch/pytorch#7890
    """
    for probe, call in evidence.calls:
        dim = probe.comparison.better_dim
        refuses_state = any(tells("DP212", error) for error in call.errors)
        if probe.comparison.batch_dims and not refuses_state:
            yield _unlike(probe, call, evidence)
        if dim is not None:
            leaf = call.tensor_arguments[0]
            what = (
                f"`{leaf.path}` of shape {leaf.shape} has its samples on dimension {dim}, and is cut along "
                f"dimension {call.dim}: along {dim} the chunks have the results of one GPU"
            )
            now, better = (
                f"nn.DataParallel(model{f', dim={each}' if each else ''})" for each in (call.dim, dim)
            )
            advice = advise(better, before=now)
            yield Hit("dim", what, evidence.scan.forward, probe, advice=advice)


def _unlike(probe: Probe, call: Call, evidence: Evidence) -> Hit:
    """Report arguments that have the batch on different dimensions."""
    dims = dict(probe.comparison.batch_dims)
    here, there = (
        [path for path, dim in dims.items() if (dim == call.dim) == is_cut] for is_cut in (True, False)
    )
    other = dims[there[0]]
    what = (
        f"{listed(there)} {_has(there)} the batch on dimension {other} and {listed(here)} on dimension "
        f"{call.dim}: DataParallel cuts all along dimension {call.dim}"
    )
    turned = {path: f"{path}.transpose({call.dim}, {other})" for path in there if top_name(path) == path}
    advice = change_call(call, "and the same back in forward", **turned)
    return Hit("dim", what, evidence.scan.forward, probe, advice=advice)


def _has(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"
