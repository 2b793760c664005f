"""Which of a call's sizes is its batch size."""


def is_for_each_gpu(size: int | None, num_gpus: int, *, repeated: bool) -> bool:
    """Return whether an argument is one number for each GPU, on purpose: Trainer's num_items_in_batch."""
    return repeated and size == num_gpus


def likely_rows(sizes: list[int]) -> int:
    """Guess the batch size: what most tensors have, the first of them where they draw, and 1 last."""
    known = [size for size in sizes if size > 1] or [size for size in sizes if size]
    return max(known, key=lambda size: (known.count(size), -known.index(size)), default=0)
