"""A plan that was made: its patch, its report, and a model of yours parallelized by it."""

import hashlib
import html
import importlib.util
import inspect
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from shardproof.agent.patching import record, tree
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.emit.patch import COMMENT


@dataclass(frozen=True)
class Plan:
    """What `parallelize` found.

    The files of the run (patch.diff, report.html, plan.json, certificate.json ...) lie in
    `directory`; without `out=` that is a temporary folder, which goes when the process ends.
    """

    verdict: str
    """`proved`, or why there is no patch: `refuted` or `unknown`."""
    message: str
    """The verdict in words."""
    scope: tuple[str, ...]
    """What a proof covers: mesh, shapes, inputs."""
    assumptions: tuple[str, ...]
    """What a proof rests on."""
    directory: Path
    root: Path
    """Folder that the paths of the diff are relative to."""

    @property
    def proved(self) -> bool:
        return self.verdict == "proved"

    @property
    def diff(self) -> str:
        """The patch as a unified diff; empty where there is none."""
        place = self.directory / record.NAME
        return place.read_bytes().decode("utf-8") if place.is_file() else ""

    @property
    def report(self) -> str:
        """The report as Markdown."""
        return (self.directory / "report.md").read_text(encoding="utf-8")

    def _repr_html_(self) -> str:
        """The report, in a frame of its own, as notebooks show it."""
        page = (self.directory / "report.html").read_text(encoding="utf-8")
        style = "width:100%;height:640px;border:0"
        return f'<iframe style="{style}" sandbox srcdoc="{html.escape(page)}"></iframe>'

    def apply(self, model: Any, mesh: Any = None) -> Any:
        """Parallelize a model by the patch, without changing a file.

        Run it on every rank, after `init_process_group`. The classes of the patched file take the
        place of those of its modules, in place; weights stay. The model must be built with the
        arguments that were planned for, and with the same weights on every rank.

        Args:
            model: an instance of the class that was planned.
            mesh: a `DeviceMesh` of the planned sizes; one is made where it is None.

        Raises:
            ShardproofError: the plan is not proved, or your file changed since.
            ValueError: another mesh than was planned.
        """
        if not self.proved:
            raise InputError("the plan is not proved", where="Plan.apply", got=self.message)
        ((name, (old, new)),) = tree.texts(self.directory, self.root).items()
        module = _imported(self.root / name, new)
        if old is not None:
            _take_classes(model, self.root / name, module)
        return getattr(module, record.read(self.directory).function)(model, mesh)


def _imported(path: Path, text: str) -> ModuleType:
    """The patched file as a module of its own."""
    assert COMMENT not in text, "a proved patch names its certificate"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    name = f"{path.stem}_parallel_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    folder = Path(tempfile.mkdtemp(prefix="shardproof-patched-"))
    (folder / f"{name}.py").write_text(text, encoding="utf-8", newline="")
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _take_classes(model: Any, path: Path, module: ModuleType) -> None:
    """Have the modules of `model` whose class stands in the file run what the patched file says.

    Raises:
        InputError: the model is not of a class of that file.
    """
    modules: list[Any] = list(model.modules())
    changed = [m for m in modules if _of(m.__class__, path)]
    if model not in changed:
        raise InputError(
            "the model is not what was planned",
            where="Plan.apply",
            expected=f"an instance of a class of {path}",
            got=type(model).__name__,
        )
    for each in changed:
        each.__class__ = getattr(module, type(each).__name__)


def _of(kind: type, path: Path) -> bool:
    try:
        file = inspect.getsourcefile(kind)
    except TypeError:
        return False
    return file is not None and Path(file).resolve() == path.resolve()
