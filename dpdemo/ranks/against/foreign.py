"""Libraries that insist on the number of ranks which the program names."""

from __future__ import annotations

from typing import Any

from dpdemo.ranks.observe.notes import never_raises
from dpdemo.startup.hook import when_imported

_LIGHTNING = ("lightning.fabric", "lightning_fabric")


def let_run_alone() -> None:
    """Let Lightning run on one rank whatever `devices=` says; the rows come from the ranks' notes anyway."""
    for package in _LIGHTNING:
        when_imported(f"{package}.plugins.environments.torchelastic", _without_validation)


@never_raises
def _without_validation(module: Any) -> None:
    module.TorchElasticEnvironment.validate_settings = lambda *_, **__: None
