"""The rates of links between GPUs: the least and most measured, with the source of each number.

A copy between two GPUs and NCCL's ring over all of them are different things: a V100 has one or two of its
six links to each neighbour, and the ring uses all six; without peer access the ring's two directions share
the host's memory.
"""

import difflib

from dpdemo.config.numbers import scaled_number
from dpdemo.errors import UsageError
from dpdemo.results.speedupdata import Link, Rate

_PCIE = (
    "PCI-SIG's {nominal} GB/s for 16 lanes; copies reach 63-80 % of it (RTX 4090: 41.4 both ways, "
    "tinygrad/open-gpu-kernel-modules#6; A40: 39.6-50.4 both ways, NVIDIA/nccl-tests#74), NCCL's ring "
    "32-64 % (two RTX 4090 over PCIe 4.0: 20-25, tinygrad/open-gpu-kernel-modules#26)"
)


def _link(name: str, copy: tuple[float, float], ring: tuple[float, float], source: str) -> Link:
    return Link(
        name=name,
        copy_rate=Rate(low=copy[0], high=copy[1]),
        ring_rate=Rate(low=ring[0], high=ring[1]),
        is_shared=not name.startswith("nvlink"),
        hides_ring=name != "no-p2p",
        source=source,
    )


LINKS = {
    link.name: link
    for link in (
        _link("pcie3", (10, 12.5), (5, 10), _PCIE.format(nominal="15.75")),
        _link("pcie4", (20, 25), (10, 20), _PCIE.format(nominal="31.5")),
        _link("pcie5", (40, 50), (20, 40), _PCIE.format(nominal="63")),
        _link(
            "nvlink2",
            (22, 47),
            (40, 130),
            "25 GB/s a link; a V100 has one or two to a neighbour and six in all, a TITAN RTX two (NVIDIA's "
            "data sheets); about 10 % goes to the protocol, and the ring uses every link",
        ),
        _link(
            "nvlink3",
            (215, 260),
            (200, 233),
            "A100: copies 430-520 both ways, a ring of 200 with 1 GB, of 230 and more with larger messages "
            "(NVIDIA/nccl-tests#149)",
        ),
        _link(
            "nvlink4",
            (300, 380),
            (370, 480),
            "H100: copies 376-380 (NVIDIA/nccl#1264), a ring of 370, 480 with NVLink SHARP "
            "(NVIDIA/nccl-tests#212)",
        ),
        _link(
            "nvlink-3090",
            (45, 51),
            (38, 51),
            "four links of 14.06 GB/s (NVIDIA's GA102 white paper); the A40 with the same bridge copies "
            "101.6 both ways (NVIDIA/nccl-tests#74), and NCCL keeps 80 % or less of the line rate "
            "(NVIDIA/nccl-tests#212)",
        ),
        _link(
            "no-p2p",
            (6, 12),
            (4, 10),
            "through the host's memory: copies 12 (RTX 4090, muellerzr's gist fbfabd0f), NCCL over shared "
            "memory 6 (L20, NVIDIA/nccl#1817); both ways at once 19-21 (A40, NVIDIA/nccl-tests#74), and half "
            "of that in slots of 8 lanes",
        ),
    )
}
"""The links that have a name."""

_GIGABYTES = {
    f"{unit}{per}": rate for unit, rate in (("MB", 1e-3), ("GB", 1.0), ("TB", 1e3)) for per in ("/S", "PS")
}


def find_link(name: str) -> Link:
    """Return the link of this name.

    Raises:
        UsageError: there is none, saying which there are.

    """
    known = LINKS.get(name.lower())
    if known is not None:
        return known
    near = difflib.get_close_matches(name.lower(), LINKS, n=1)
    raise UsageError(
        f"expected one of {', '.join(LINKS)}, got {name[:60]!r}",
        key="link",
        hint=f"did you mean `{near[0]}`?" if near else "{bandwidth=20GB/s} sets any other",
    )


def chosen_link(name: str | None, bandwidth: str | None) -> Link:
    """Return the link of `--link` or of `--bandwidth`.

    Raises:
        UsageError: both or none are given, or one of them cannot be read.

    """
    if name is not None and bandwidth is not None:
        raise UsageError("expected one of them, got both", key="link bandwidth")
    if bandwidth is not None:
        return link_of_bandwidth(bandwidth)
    if name is not None:
        return find_link(name)
    raise UsageError(
        f"expected how the GPUs are joined, one of {', '.join(LINKS)}, got nothing",
        key="link",
        hint="`nvidia-smi topo -m` shows it; {bandwidth=20GB/s} sets a measured one",
    )


def link_of_bandwidth(text: str) -> Link:
    """Return a link that carries just this, as its user measured it: `20GB/s`.

    Raises:
        UsageError: for anything else.

    """
    rate = scaled_number(text.upper(), _GIGABYTES, 1e-3, 1e6)
    if rate is None:
        raise UsageError(
            f"expected bytes per second such as 20GB/s, from 1MB/s to 1000TB/s, got {text[:60]!r}",
            key="bandwidth",
            hint="what one GPU sends to another, one way, as CUDA's p2pBandwidthLatencyTest prints it",
        )
    exact = Rate(low=rate, high=rate)
    return Link(
        name=f"{rate:g} GB/s",
        copy_rate=exact,
        ring_rate=exact,
        is_shared=True,
        hides_ring=True,
        source="as given",
    )
