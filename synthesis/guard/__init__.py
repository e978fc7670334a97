"""A guard on real `torch.distributed`: what ranks exchange is fingerprinted and compared.

from shardproof.synthesis.guard import Guard

with Guard(every=100):  # on every rank, after init_process_group
    train()
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardproof.synthesis.guard.alarm import Alarm
    from shardproof.synthesis.guard.errors import FaultError, GuardError
    from shardproof.synthesis.guard.guard import Guard, active
    from shardproof.synthesis.guard.layouts import watch

HOME = {
    "Alarm": "alarm",
    "FaultError": "errors",
    "Guard": "guard",
    "GuardError": "errors",
    "active": "guard",
    "watch": "layouts",
}
__all__ = ["Alarm", "FaultError", "Guard", "GuardError", "active", "watch"]


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{HOME[name]}"), name)
