"""Proves that a distributed program computes what a one-device program computes.

`verify(Problem(sequential, distributed, contract))` gives a `Proof`, a `Counterexample` or
`Unknown`; `check` accepts or rejects the certificate of a proof. The other names are those of the
class interface (`shardproof.compat`). Every name is loaded when it is first asked for. In a
checkout, `import verifier` gives the same names, and the same modules.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardproof.compat import *  # noqa: F403
    from shardproof.verifier.checker import check
    from shardproof.verifier.kernel.contract import Contract
    from shardproof.verifier.problem import Problem
    from shardproof.verifier.verdict import Counterexample, Proof, Unknown
    from shardproof.verifier.verification import verify

    __all__ = ["Contract", "Counterexample", "Problem", "Proof", "Unknown", "check", "verify"]

_OWN = {
    "verify": "shardproof.verifier.verification",
    "check": "shardproof.verifier.checker",
    "Problem": "shardproof.verifier.problem",
    "Contract": "shardproof.verifier.kernel.contract",
    "Proof": "shardproof.verifier.verdict",
    "Counterexample": "shardproof.verifier.verdict",
    "Unknown": "shardproof.verifier.verdict",
}


def __getattr__(name: str) -> Any:
    classes = import_module("shardproof.compat")
    if name == "__all__":
        return [*_OWN, *classes.__all__]
    if name not in _OWN and name not in classes.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_OWN[name]) if name in _OWN else classes, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*_OWN, *sorted({*globals(), *import_module("shardproof.compat").__all__} - {*_OWN})]


if __name__ == "verifier":  # of a checkout
    import_module("shardproof.compat.one_copy").install()
