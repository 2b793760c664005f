"""The user's code written anew: what a repair prints, in the user's own names and at its own lines."""
