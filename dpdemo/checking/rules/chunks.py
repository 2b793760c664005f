"""Effects of the size of a chunk, the layout of weights and memory: DP213, DP315, DP316, DP701."""

from collections.abc import Iterator

from dpdemo.checking.errors import tells
from dpdemo.checking.evidence import Evidence, RaisedError
from dpdemo.checking.questions.failures import failures
from dpdemo.checking.questions.words import sizes_text
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Hit, full_batches
from dpdemo.results.findings import Severity


@rule("DP315", "flatten-parameters", "info")
def flatten_parameters(evidence: Evidence) -> Iterator[Hit]:
    """Replicas' weights lie otherwise in memory than the model's.

    What happens: on real GPUs `RNN module weights are not part of single contiguous chunk of memory`, and
        each call compacts them.
    Why: replicas' weights are copies in one flat buffer, and cuDNN wants those of an RNN in one piece.
    Before: out, h = self.rnn(x)
    After: self.rnn.flatten_parameters(); out, h = self.rnn(x)   # in forward
    Seen by: an RNN in the model, and no forward that calls flatten_parameters.
    References: pytorch/examples#248, allenai/allennlp#2793
    """
    for path, kind in evidence.scan.module_types:
        if kind == "RNN" and not evidence.scan.flattens_parameters:
            name = path or evidence.scan.model
            yield Hit(
                "RNN", f"`{name}`: call flatten_parameters() in forward, for cuDNN", evidence.scan.forward
            )
            return


@rule("DP316", "lone-sample", "error", explains=(), of_training=True)
def lone_sample(evidence: Evidence) -> Iterator[Hit]:
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
        if not tells("DP316", error):
            continue
        if probe.call is None or probe.split is None or error.replica is None:
            continue
        sizes = sizes_text(list(probe.split.sizes()))
        largest = max(probe.batch_size for probe in evidence.probes)
        sizes_tried = [probe.batch_size] if probe.call.shares else range(2, largest)  # the program's own cuts
        bad = [size for size in sizes_tried if probe.call.split(size).smallest == 1]
        what = (
            f"a batch of {probe.batch_size} is cut into {sizes}, and {_layer(error)} cannot train on one "
            f"sample; so it is for batches of {', '.join(map(str, bad[:8]))}{', ...' if len(bad) > 8 else ''}"
        )
        full = max(2, -(-largest // evidence.num_gpus)) * evidence.num_gpus  # the next with two rows or more
        advice = full_batches(largest, full, drop_last=True)
        severity: Severity | None = None if probe.is_real else "warning"
        yield Hit("lone-sample", what, None, probe, severity, advice, explains=(error.symptom,))


def _layer(error: RaisedError) -> str:
    """Name the layer that wants more than one value, by the function of torch.nn.functional that raised."""
    names = {"group_norm": "GroupNorm", "instance_norm": "InstanceNorm"}
    return next((name for function, name in names.items() if function in error.functions), "BatchNorm")


@rule("DP213", "idle-gpus", "warning", symptoms=("cut",), explains=())
def idle_gpus(evidence: Evidence) -> Iterator[Hit]:
    """A batch leaves GPUs idle.

    What happens: fewer chunks than GPUs: some compute nothing. Batches smaller than the number of GPUs do
        it, and some larger ones: 5, 6 and 9 on 4 GPUs.
    Why: chunks have ceil(B / n) rows each, so there may be fewer than n of them.
    Before: DataLoader(data, batch_size=6)   # 4 GPUs
    After: DataLoader(data, batch_size=8)
    Seen by: arithmetic over the batch sizes that the epoch holds. A note where a program's last batch does it
        and its others do not.
    References: pytorch/pytorch#25636, pytorch/pytorch#9226
    """
    filled = [
        probe.batch_size
        for probe, _ in evidence.calls
        if probe.is_real and probe.split is not None and not probe.split.num_idle
    ]
    for probe in evidence.probes:
        split, call = probe.split, probe.call
        if call is not None and probe.is_real and split is not None and split.num_idle:
            size = max((batch for batch in filled if batch > split.batch_size), default=0)
            is_last = size > 0
            full = size or split.batch_size + -split.batch_size % call.num_gpus
            what = (
                f"a batch of {split.batch_size} on {split.num_devices} GPUs is cut into "
                f"{sizes_text(list(split.sizes()))}: {split.num_idle} idle"
            )
            advice = full_batches(size or split.batch_size, full, drop_last=is_last)
            severity: Severity | None = "info" if is_last and evidence.is_program else None
            yield Hit(str(split.batch_size), what, None, probe, severity, advice)


_MIB = 2**20


@rule("DP701", "memory-imbalance", "info")
def memory_imbalance(evidence: Evidence) -> Iterator[Hit]:
    """GPU 0 needs much more memory than the others.

    What happens: `CUDA out of memory` on GPU 0 while the others are half empty.
    Why: it holds the model, its gradients, the whole batch and the gathered results; the optimizer's state
        and the gradients' sum come on top.
    Before: loss = criterion(dp(x), y)   # results of the whole batch on GPU 0
    After: nn.DataParallel(ModelWithLoss(model, criterion), output_device=1)   # each replica returns its loss
    Seen by: bytes held on each virtual GPU in a forward: twice as many, and a MiB more, on GPU 0.
    References: huggingface/transformers#279, pytorch/pytorch#1893
    """
    for probe in evidence.probes:
        peaks = probe.peak_bytes[: len(probe.call.replicas)] if probe.call else ()  # the others have no chunk
        if len(peaks) > 1 and peaks[0] > 2 * max(peaks[1:]) and peaks[0] - max(peaks[1:]) > _MIB:
            first, others = (f"{size / _MIB:.0f} MiB" for size in (peaks[0], max(peaks[1:])))
            what = f"GPU 0 holds up to {first} in a forward, the others {others}"
            yield Hit("memory", what, None, probe)
            return
