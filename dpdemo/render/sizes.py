"""Amounts in a reader's words: bytes in units, and things that are counted."""

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def size(num_bytes: int) -> str:
    """Write `600 B`, `1.17 KiB` or `24 GiB`: three digits, and a point only where one is needed."""
    if num_bytes < 1024:
        return f"{num_bytes} B"
    amount = float(num_bytes)
    for unit in _UNITS:
        amount /= 1024
        if round(amount, 1) < 1000 or unit == _UNITS[-1]:
            break
    digits = 2 if amount < 9.995 else 1 if amount < 99.95 else 0
    text = f"{amount:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text} {unit}"


def counted(number: int, noun: str) -> str:
    """Write `1 call` or `3 calls`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
