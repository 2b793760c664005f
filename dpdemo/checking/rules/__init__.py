"""The rules, by family; every module here is found by the registry."""
