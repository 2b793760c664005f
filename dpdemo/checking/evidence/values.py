"""A value that a program holds, as data: rules make their sentences of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Value:
    """What one attribute, argument or container held at a moment."""

    type: str
    """The name of its class; "absent" where there was nothing."""
    length: int | None = None
    """Of a container: how many elements it had."""
    shape: tuple[int, ...] | None = None
    """Of a tensor or an array."""
    number: float | None = None
    """Of a tensor with one element."""
    text: str = ""
    """Of a plain value: its repr, cut short."""
    parts: "tuple[tuple[str, Value], ...]" = ()
    """Of an object: the attributes to be named."""
    requires_grad: bool = False
    """Of a tensor: whether autograd follows it."""

    @property
    def is_absent(self) -> bool:
        """Whether there was nothing."""
        return self.type == "absent"

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return self.type != "ndarray" and (self.shape is not None or self.number is not None)


ABSENT = Value("absent")
