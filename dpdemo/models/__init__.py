"""The modules that are split: built-in ones, the user's own, their data, and their failures."""
