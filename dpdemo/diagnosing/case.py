"""A model to diagnose, and the commands that tell more about it."""

from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.timing.links import DEFAULT_LINK

DEFAULT_GPUS = 4
DEFAULT_BATCH_SIZE = 32


@dataclass(frozen=True)
class Case:
    """A model to diagnose: a target, the number of GPUs, the batch and the inputs.

    `gpu` is the name of the GPUs' card, `gpu_memory` what each can hold (`24GiB`, or a list with commas);
    `link` joins them.
    """

    target: str
    num_gpus: int = DEFAULT_GPUS
    batch_size: int | None = None
    inputs: tuple[str, ...] = ()
    gpu_memory: str | None = None
    gpu: str | None = None
    link: str = DEFAULT_LINK

    @property
    def config(self) -> Config:
        """One batch of it as a config."""
        size = self.batch_size or DEFAULT_BATCH_SIZE
        return make_config(
            {"model": self.target, "gpus": self.num_gpus, "batch_size": size, "data_size": size},
        )

    @property
    def sizes(self) -> list[str] | str | None:
        """The capacity of the GPUs: one size for all, or one for each."""
        return self.gpu_memory.split(",") if self.gpu_memory and "," in self.gpu_memory else self.gpu_memory

    def hardware(self) -> Iterator[str]:
        """Write the options of `dpdemo memory` that name the GPUs."""
        if self.gpu is not None:
            yield f"--gpu {quote(self.gpu)}"
        if self.gpu_memory is not None:
            yield f"--gpu-memory {quote(self.gpu_memory)}"

    def command(self, name: str, *more: str) -> str:
        """Write the command that tells more."""
        target = quote(self.target)
        model = [target] if name in {"check", "speedup"} else ["--model", target]
        inputs = [] if name == "simulate" else [f"--input {quote(text)}" for text in self.inputs]
        return " ".join(["dpdemo", name, *model, f"--gpus {self.num_gpus}", *inputs, *more])
