"""The rates of links between GPUs, the least and the most measured; docs/speed-up.md has the sources."""

import difflib

from dpdemo.config.numbers import scaled_number
from dpdemo.errors import UsageError
from dpdemo.results.speedup import Ends, Link

DEFAULT_LINK = "pcie4"
_RATES = {
    "pcie3": ((10, 12.5), (5, 10)),
    "pcie4": ((20, 25), (10, 20)),
    "pcie5": ((40, 50), (20, 40)),
    "nvlink2": ((22, 47), (40, 130)),
    "nvlink3": ((215, 260), (200, 233)),
    "nvlink4": ((300, 380), (370, 480)),
    "nvlink-3090": ((45, 51), (38, 51)),
    "no-p2p": ((6, 12), (4, 10)),
}
"""In GB/s: of a copy between two GPUs, and of NCCL's ring, which may use more links than a copy."""
LINKS = {
    name: Link(name, Ends(*copy), Ends(*ring), hides_ring=name != "no-p2p")
    for name, (copy, ring) in _RATES.items()
}
_UNITS = {f"{unit}B{per}": rate for unit, rate in (("M", 1e-3), ("G", 1), ("T", 1e3)) for per in ("/S", "PS")}


def find_link(name: str) -> Link:
    """Return the link of this name.

    Raises:
        UsageError: for any other name.

    """
    known = LINKS.get(name.lower())
    if known is not None:
        return known
    near = difflib.get_close_matches(name.lower(), LINKS, n=1)
    hint = f"did you mean `{near[0]}`?" if near else "{bandwidth=20GB/s} sets any other"
    raise UsageError(f"expected one of {', '.join(LINKS)}, got {name[:60]!r}", key="link", hint=hint)


def link_of_bandwidth(text: str) -> Link:
    """Return a link that carries exactly a measured bandwidth: `20GB/s`.

    Raises:
        UsageError: for anything else.

    """
    rate = scaled_number(text.upper(), _UNITS, 1e-3, 1e6)
    if rate is None:
        expected = "bytes per second such as 20GB/s, from 1MB/s to 1000TB/s"
        hint = "what one GPU sends to another, one way, as CUDA's p2pBandwidthLatencyTest prints it"
        raise UsageError(f"expected {expected}, got {text[:60]!r}", key="bandwidth", hint=hint)
    return Link(f"{rate:g} GB/s", Ends(rate, rate), Ends(rate, rate), hides_ring=True)
