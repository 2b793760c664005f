"""The card that an option names, or an error that says what was expected."""

from dpdemo.arithmetic.cards import Card, find_card
from dpdemo.errors import UsageError


def card_named(text: str) -> Card:
    """Find the card that the option `--gpu` names.

    Raises:
        UsageError: if no card has the name, or several do.

    """
    try:
        return find_card(text)
    except ValueError as error:
        raise UsageError(
            f"{error} - at option `--gpu`",
            hint="any other card is named by its memory: --gpu-memory 24GiB",
        ) from None
