"""The options of `dpdemo sweep` that are about a model: which of them go with which figure."""

from dataclasses import dataclass

from dpdemo.errors import UsageError

_OF_FIT = ("gpu_memory",)
_OF_MEMORY = ("gpu", "reserve", "optimizer", "amp", "inference", "seq_len", "image_size", "numbers")
_OF_SPEEDUP = ("link", "bandwidth", "one_gpu_step")
_OF_ALL = ("target", "input", "inputs", "loss")


@dataclass(frozen=True)
class Given:
    """The options that only what is predicted has."""

    target: str = ""
    input: tuple[str, ...] = ()
    inputs: str | None = None
    loss: str | None = None
    optimizer: str | None = None
    amp: bool = False
    inference: bool = False
    gpu_memory: str | None = None
    gpu: str | None = None
    reserve: str | None = None
    seq_len: int | None = None
    image_size: int | None = None
    numbers: bool = False
    link: str | None = None
    bandwidth: str | None = None
    one_gpu_step: tuple[str, ...] = ()


def check_unused(given: Given, of: str) -> None:
    """Check that no option was given that decides nothing here.

    Raises:
        UsageError: one was.

    """
    known = {
        "memory": (*_OF_ALL, *_OF_MEMORY),
        "fits": (*_OF_ALL, *_OF_MEMORY, *_OF_FIT),
        "speedup": (*_OF_ALL, *_OF_SPEEDUP),
    }.get(of, ())
    for name in (*_OF_ALL, *_OF_FIT, *_OF_MEMORY, *_OF_SPEEDUP):
        if getattr(given, name) and name not in known:
            where = "argument TARGET" if name == "target" else f"option `--{name.replace('_', '-')}`"
            raise UsageError(
                f"expected nothing that `--of {of}` does not ask for, got a value - at {where}",
                hint="a split is the same for every model" if not known else "leave it out",
            )
