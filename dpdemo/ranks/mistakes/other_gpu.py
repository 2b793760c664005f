"""A rank put tensors on another rank's GPU.

`torch.load` puts tensors back on the GPU from which they were saved: on rank 0's, for all ranks.

Seen in: the peak of each GPU on each rank, and the lines that put tensors on a GPU for the first time

Instead: `torch.load(path, map_location="cpu")`, or `map_location=f"cuda:{local_rank}"`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.ranks.events import Ended, HomeGpu, OnOtherGpu
from dpdemo.ranks.mistakes.registry import mistake
from dpdemo.results.ranks import Mistake
from dpdemo.sizes import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.ranks.mistakes.evidence import Evidence


@mistake("other-gpu", when_stopped=True)
def find(evidence: Evidence) -> Iterator[Mistake]:
    """Compare where each rank put tensors with the GPUs that other ranks give to NCCL."""
    homes = {rank: noted[HomeGpu][-1].gpu for rank, noted in evidence.ranks.items() if noted[HomeGpu]}
    if len(set(homes.values())) < len(homes):
        return
    found: dict[tuple[str, int, str], dict[int, int]] = {}
    for rank, home in homes.items():
        others = {gpu: other for other, gpu in homes.items() if gpu != home}
        peaks = {
            name: held for event in evidence.ranks[rank][Ended] for name, held in event.peak_bytes.items()
        }
        for gpu in others:
            event = next((each for each in evidence.ranks[rank][OnOtherGpu] if each.gpu == gpu), None)
            if event is not None:
                held = peaks.get(f"cuda:{gpu}", event.bytes)
                found.setdefault((event.at, gpu, event.what), {})[rank] = held
    owners = {gpu: rank for rank, gpu in homes.items()}
    for (at, gpu, what), ranks in found.items():
        who = f"Rank {next(iter(ranks))}" if len(ranks) == 1 else f"Ranks {', '.join(map(str, ranks))}"
        each = " each" if len(ranks) > 1 else ""
        yield Mistake(
            f"{who} put {size(max(ranks.values()))}{each} on cuda:{gpu}, the GPU of rank {owners[gpu]}",
            at,
            "torch.load(…, map_location='cpu'), or map_location=f'cuda:{local_rank}'"
            if what
            else "torch.cuda.set_device(local_rank) before the first tensor, and no fixed cuda:0",
        )
