"""GPUs by the names they are sold under: what `--gpu A100-80GB` and `virtual_gpus(card="T4")` mean.

`memory_gib` is what PyTorch says the whole card has (`torch.cuda.get_device_properties(0).total_memory`, the
"total capacity" of its out-of-memory errors). That is less than the card's name says: part is kept for error
correction and by the driver. It differs by a per cent between drivers; the least that a public report names
is taken, and `source` is the issue on GitHub that has the report. Where `source` is empty none was found, and
the figure is an estimate. All else is NVIDIA's: the data sheets, and the tables of compute capabilities
of the CUDA programming guide.
"""

import difflib
import re
from dataclasses import dataclass

CONTEXT_BYTES = 600 * 2**20
"""Memory of a GPU that a process uses outside PyTorch's pool: the CUDA context and the libraries' kernels.

Without a GPU it cannot be asked. Public reports name 0.3 to 1.4 GB, by card, driver and libraries; this is a
value between, and `--reserve` sets another.
"""

_MIB, _GIB = 2**20, 2**30
_THREADS_OF_A_BLOCK = 256
_MAKERS = re.compile("nvidia|geforce|tesla|rtx|gtx|[^a-z0-9]")


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU that one can buy or rent.

    Attributes:
        model: its name without its memory, such as "A100".
        sold_gb: the memory that it is sold with.
        memory_gib: the memory that PyTorch finds.
        capability: NVIDIA's compute capability, by which PyTorch chooses kernels and workspaces.
        num_multiprocessors: how many of them it has.
        threads_per_multiprocessor: how many threads each runs at a time.
        cache_mib: its cache of level 2.
        reported_name: what `torch.cuda.get_device_name` prints.
        source: who reported `memory_gib`, as "owner/repository#number"; empty if it is an estimate.

    """

    model: str
    sold_gb: int
    memory_gib: float
    capability: tuple[int, int]
    num_multiprocessors: int
    threads_per_multiprocessor: int
    cache_mib: float
    reported_name: str
    source: str = ""

    @property
    def name(self) -> str:
        """The name that `find_card` takes and reports show, such as "A100-80GB"."""
        return f"{self.model}-{self.sold_gb}GB"

    @property
    def memory_bytes(self) -> int:
        """Memory of the card as PyTorch reports it."""
        return int(self.memory_gib * _GIB)

    @property
    def cache_bytes(self) -> int:
        """The size of the cache of level 2."""
        return int(self.cache_mib * _MIB)

    @property
    def num_blocks(self) -> int:
        """Blocks of 256 threads that run at a time: the most that a kernel for random numbers starts."""
        return self.num_multiprocessors * (self.threads_per_multiprocessor // _THREADS_OF_A_BLOCK)


# fmt: off
CARDS = (
    Card("B200", 180, 178.35, (10, 0), 148, 2048, 126, "NVIDIA B200"),
    Card("H200", 141, 139.72, (9, 0), 132, 2048, 50, "NVIDIA H200"),
    Card("GH200", 96, 94.50, (9, 0), 132, 2048, 60, "NVIDIA GH200 480GB"),
    Card("H100", 80, 79.11, (9, 0), 132, 2048, 50, "NVIDIA H100 80GB HBM3", "vllm-project/vllm#27508"),
    Card("H100-PCIe", 80, 79.11, (9, 0), 114, 2048, 50, "NVIDIA H100 PCIe"),
    Card("H100-NVL", 94, 93.02, (9, 0), 132, 2048, 60, "NVIDIA H100 NVL"),
    Card("H20", 96, 95.00, (9, 0), 78, 2048, 60, "NVIDIA H20"),
    Card("A100", 80, 79.14, (8, 0), 108, 2048, 40, "NVIDIA A100-SXM4-80GB", "lianqi1008/Control-GIC#6"),
    Card("A100", 40, 39.50, (8, 0), 108, 2048, 40, "NVIDIA A100-SXM4-40GB", "TianheWu/CoSeR#10"),
    Card("A40", 48, 44.35, (8, 6), 84, 1536, 6, "NVIDIA A40"),
    Card("A30", 24, 23.50, (8, 0), 56, 2048, 24, "NVIDIA A30", "LHRLAB/ChatKBQA#2"),
    Card("A10", 24, 21.99, (8, 6), 72, 1536, 6, "NVIDIA A10", "zai-org/CogVLM#236"),
    Card("A10G", 24, 21.99, (8, 6), 80, 1536, 6, "NVIDIA A10G"),
    Card("L4", 24, 22.03, (8, 9), 58, 1536, 48, "NVIDIA L4"),
    Card("L40", 48, 44.40, (8, 9), 142, 1536, 96, "NVIDIA L40", "QwenLM/Qwen3-VL#2097"),
    Card("L40S", 48, 44.42, (8, 9), 142, 1536, 96, "NVIDIA L40S", "stepfun-ai/Step-Video-T2V#8"),
    Card("V100", 32, 31.74, (7, 0), 80, 2048, 6, "Tesla V100-SXM2-32GB", "liucongg/ChatGLM-Finetuning#73"),
    Card("V100", 16, 15.78, (7, 0), 80, 2048, 6, "Tesla V100-SXM2-16GB", "kchengiva/Shift-GCN#34"),
    Card("T4", 16, 14.56, (7, 5), 40, 1024, 4, "Tesla T4", "Zheng-Chong/CatVTON#133"),
    Card("P100", 16, 15.90, (6, 0), 56, 2048, 4, "Tesla P100-PCIE-16GB", "openai/jukebox#145"),
    Card("RTX5090", 32, 31.36, (12, 0), 170, 1536, 96, "NVIDIA GeForce RTX 5090",
         "TrajectoryCrafter/TrajectoryCrafter#20"),
    Card("RTX4090", 24, 23.52, (8, 9), 128, 1536, 72, "NVIDIA GeForce RTX 4090",
         "Soul-AILab/SoulX-FlashTalk#5"),
    Card("RTX4080S", 16, 15.57, (8, 9), 80, 1536, 64, "NVIDIA GeForce RTX 4080 SUPER"),
    Card("RTX4080", 16, 15.57, (8, 9), 76, 1536, 64, "NVIDIA GeForce RTX 4080"),
    Card("RTX4070", 12, 11.60, (8, 9), 46, 1536, 36, "NVIDIA GeForce RTX 4070"),
    Card("RTX3090", 24, 23.68, (8, 6), 82, 1536, 6, "NVIDIA GeForce RTX 3090", "LambdaLabsML/examples#48"),
    Card("RTX3080", 10, 9.78, (8, 6), 68, 1536, 5, "NVIDIA GeForce RTX 3080", "zai-org/CogVideo#34"),
    Card("RTX3060", 12, 11.75, (8, 6), 28, 1536, 3, "NVIDIA GeForce RTX 3060", "Kunhao-Liu/StyleGaussian#12"),
    Card("RTX2080Ti", 11, 10.76, (7, 5), 68, 1024, 5.5, "NVIDIA GeForce RTX 2080 Ti",
         "JDAI-CV/image-captioning#11"),
    Card("TITANRTX", 24, 23.62, (7, 5), 72, 1024, 6, "NVIDIA TITAN RTX"),
    Card("GTX1080Ti", 11, 10.91, (6, 1), 28, 2048, 2.75, "NVIDIA GeForce GTX 1080 Ti",
         "open-mmlab/mmsegmentation#944"),
    Card("RTXA6000", 48, 47.43, (8, 6), 84, 1536, 6, "NVIDIA RTX A6000"),
    Card("RTXA5000", 24, 23.57, (8, 6), 64, 1536, 6, "NVIDIA RTX A5000"),
    Card("RTX6000Ada", 48, 44.43, (8, 9), 142, 1536, 96, "NVIDIA RTX 6000 Ada Generation",
         "DINGYANB/MTVCrafter#21"),
)
# fmt: on

VIRTUAL = Card("virtual", 80, 80.0, (9, 0), 132, 2048, 50, "Virtual GPU")
"""The default card of virtual GPUs: like an H100, so that bfloat16 is supported."""


def find_card(text: str) -> Card:
    """Find a card by its name, with or without its memory, in any writing: `a100-80gb`, `RTX 3090`, `T4`.

    Raises:
        ValueError: if no card has the name, or several do.

    """
    wanted = _plain(text)
    found = [card for card in CARDS if wanted in _names(card)]
    if len(found) == 1:
        return found[0]
    if found:
        names = " or ".join(card.name for card in found)
        raise ValueError(f"expected {names}, got {text!r}: say how much memory it has")
    known = {name: card.name for card in CARDS for name in _names(card)}
    near = dict.fromkeys(known[name] for name in difflib.get_close_matches(wanted, known, n=3, cutoff=0.5))
    meant = (
        f"did you mean {', '.join(near)}?" if near else f"known are {', '.join(card.name for card in CARDS)}"
    )
    raise ValueError(f"expected a card such as A100-80GB, got {text!r}: {meant}")


def _names(card: Card) -> tuple[str, ...]:
    whole = _plain(card.name)
    return whole, whole.removesuffix("gb"), _plain(card.model), _plain(card.reported_name)


def _plain(text: str) -> str:
    """Remove the optional parts of a name: spaces, dashes, the maker and its brands."""
    return _MAKERS.sub("", text.lower())
