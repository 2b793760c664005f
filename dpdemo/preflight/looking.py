"""What several rules ask of the evidence."""

from collections.abc import Iterator

from dpdemo.preflight.evidence import Call, Evidence, Leaf, Place, Probe, Raised


def failures(evidence: Evidence) -> Iterator[tuple[Probe, Raised]]:
    """List every exception seen under DataParallel, of each replica and of each step, and of rehearsals."""
    for probe in evidence.probes:
        seen: list[Raised] = []
        for call in probe.calls:
            seen += [replica.raised for replica in call.replicas if replica.raised is not None]
            if call.raised is not None and call.raised.replica is None:
                seen.append(call.raised)
        if probe.raised is not None and not probe.calls:
            seen.append(probe.raised)
        if probe.gather_rehearsal is not None:
            seen.append(probe.gather_rehearsal)
        yield from ((probe, error) for error in seen)


def gather_failures(evidence: Evidence) -> Iterator[tuple[Probe, Call, Raised]]:
    """List what gather refused, in earnest or in rehearsal."""
    for probe, error in failures(evidence):
        if error.stage == "gather" and probe.call is not None:
            yield probe, probe.call, error


def gathered_calls(evidence: Evidence, at_least: int = 2) -> Iterator[tuple[Probe, Call]]:
    """List the calls whose results of so many replicas or more are known; gather joins a lone one too."""
    for probe, call in evidence.calls:
        if len(call.replicas) >= at_least and all(replica.output is not None for replica in call.replicas):
            yield probe, call


def result_at(path: str) -> str:
    """Name a part of the result in a sentence."""
    return f"the result's `{path}`" if path else "the result"


def forward_place(evidence: Evidence) -> Place | None:
    """Find the definition of the model's forward."""
    return evidence.scan.forward


def short_arguments(call: Call) -> list[Leaf]:
    """List the tensors that give fewer chunks than the batch does."""
    found = []
    for leaf in call.tensor_arguments:
        size = leaf.size(call.dim)
        if size is not None and 0 < chunks_of(size, call.num_gpus) < call.num_chunks:
            found.append(leaf)
    return found


def chunks_of(size: int, num_gpus: int) -> int:
    """Count the chunks that torch.chunk makes."""
    from dpdemo.split import split_batch

    return split_batch(size, num_gpus).num_chunks


def delivered_rows(call: Call) -> int:
    """Count the rows of the batch that reached the replicas, by the tensor that received most."""
    totals: dict[str, int] = {}
    for replica in call.replicas:
        for leaf in replica.inputs:
            size = leaf.size(call.dim)
            if size is not None:
                totals[leaf.path] = totals.get(leaf.path, 0) + size
    return max(totals.values(), default=0)


def is_hidden_state(leaf: Leaf, call: Call) -> bool:
    """Whether a tensor looks like an RNN's state, with the batch on dimension 1."""
    shape = leaf.shape or ()
    return len(shape) == 3 and shape[1] == call.rows != shape[0]


def two_devices(error: Raised) -> bool:
    """Whether an exception is about operands on two devices."""
    return "same device" in error.message or "Expected all tensors to be on" in error.message


def crossed_devices(evidence: Evidence) -> Iterator[tuple[Probe, Raised]]:
    """List the two-device errors of replicas."""
    for probe, error in failures(evidence):
        if error.stage == "replica" and error.replica is not None and two_devices(error):
            yield probe, error


def listed(names: list[str]) -> str:
    """Write names for a sentence: `a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in dict.fromkeys(names)]
    if len(quoted) > 4:
        return f"{', '.join(quoted[:2])} and {len(quoted) - 2} more"
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def sizes_text(sizes: list[int]) -> str:
    """Write the rows of chunks: `2+2+2+1`."""
    return "+".join(map(str, sizes))
