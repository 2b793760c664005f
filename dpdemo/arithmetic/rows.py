"""Find the batch size of a call among its tensors' sizes."""

from collections.abc import Sequence


def is_for_each_gpu(size: int | None, num_gpus: int, *, repeated: bool) -> bool:
    """Return whether an argument is one number for each GPU, on purpose: Trainer's num_items_in_batch."""
    return repeated and size == num_gpus


_MOST_LAYERS = 8


def sizes_along(shapes: Sequence[tuple[int, ...]], dim: int) -> list[int]:
    """List the sizes of tensors along the batch dimension; of an LSTM's states, those on dimension 1.

    They are two of shape (layers, batch, features), beside another tensor with as many rows.
    """
    sizes = [shape[dim] if -len(shape) <= dim < len(shape) else 0 for shape in shapes]
    states = {
        shape
        for shape in shapes
        if dim == 0 and len(shape) == 3 and shapes.count(shape) > 1 and shape[0] <= _MOST_LAYERS
    }
    others = {size for shape, size in zip(shapes, sizes, strict=True) if shape not in states}
    return [
        shape[1] if shape in states and shape[1] in others else size
        for shape, size in zip(shapes, sizes, strict=True)
    ]


def likely_rows(sizes: list[int], owners: Sequence[object] = ()) -> int:
    """Guess the batch size: what most tensors have, the first of them where they draw, and 1 last.

    `owners` says which argument each is of: one of several arguments, as an LSTM's state, counts once.
    """
    if len(set(owners)) > 1:
        sizes = [size for _, size in dict.fromkeys(zip(owners, sizes, strict=True))]
    known = [size for size in sizes if size > 1] or [size for size in sizes if size]
    return max(known, key=lambda size: (known.count(size), -known.index(size)), default=0)
