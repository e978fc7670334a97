"""In a checkout `verifier` is importable beside `shardproof.verifier`: its modules are the same."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

TOP = "verifier."


class _OneCopy(MetaPathFinder, Loader):
    """`verifier.NAME` is the module `shardproof.verifier.NAME`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.startswith(TOP) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        found = import_module(f"shardproof.{spec.name}")
        spec.loader_state = found.__spec__
        return found

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state  # importing it as the other replaced it


def install() -> None:
    """Have `import verifier.NAME` give the modules of `shardproof.verifier`."""
    if not any(isinstance(finder, _OneCopy) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OneCopy())
