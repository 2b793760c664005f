"""What the size of a chunk, or the number of calls, does to layers: DP315, DP316."""

from collections.abc import Iterator

from dpdemo.preflight.evidence import Evidence
from dpdemo.preflight.looking import failures, sizes_text
from dpdemo.preflight.registry import Found, rule
from dpdemo.split import split_batch


@rule("DP315", "flatten-parameters", "info")
def flatten_parameters(evidence: Evidence) -> Iterator[Found]:
    """An RNN's weights are scattered in memory in each replica.

    What happens: on real GPUs `RNN module weights are not part of single contiguous chunk of memory`, and
        each call compacts them.
    Why: replicas' weights are copies that lie anywhere; cuDNN wants them in one piece.
    Before: out, h = self.rnn(x)
    After: self.rnn.flatten_parameters(); out, h = self.rnn(x)   # in forward
    Seen by: an RNN in the model, and no forward that calls flatten_parameters.
    References: pytorch/examples#248, allenai/allennlp#2793
    """
    for path, kind in evidence.scan.module_types:
        if kind == "RNN" and not evidence.scan.flattens_parameters:
            name = path or evidence.scan.model
            yield Found(
                "RNN", f"`{name}`: call flatten_parameters() in forward, for cuDNN", evidence.scan.forward
            )
            return


@rule("DP316", "lone-sample", "error")
def lone_sample(evidence: Evidence) -> Iterator[Found]:
    """A chunk of one sample stops BatchNorm in training.

    What happens: `Expected more than 1 value per channel when training`, often at the last batch of the
        first epoch; on one GPU the same batch passes.
    Why: the last chunk takes what is left, and may be a lone sample.
    Before: DataLoader(data, batch_size=32, shuffle=True)
    After: DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    Seen by: this exception in a replica; the sizes that cause it are computed. A warning where no batch of
        the epoch is known to have such a size.
    References: pytorch/pytorch#18563
    """
    for probe, error in failures(evidence):
        if (
            "more than 1 value per channel" not in error.message
            and "more than 1 spatial element" not in error.message
        ):
            continue
        if probe.split is None or error.replica is None:
            continue
        sizes = sizes_text(list(probe.split.sizes()))
        largest = max(one.batch_size for one in evidence.probes)
        bad = [size for size in range(2, largest) if split_batch(size, evidence.num_gpus).last_chunk == 1]
        yield Found(
            "lone-sample",
            f"a batch of {probe.batch_size} is cut into {sizes}, and BatchNorm cannot train on one "
            "sample; so it is for "
            f"batches of {', '.join(map(str, bad[:8]))}{', ...' if len(bad) > 8 else ''}",
            None,
            probe,
            None if probe.is_real else "warning",
        )
