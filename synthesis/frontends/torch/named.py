"""Libraries whose models are asked for by name: what each calls its models, and how it builds one.

`hf:` is transformers, whose classes are built of their configs (`target.library`); what the others
have in common is declared here.
"""

# pyright: basic

import difflib
import importlib
import importlib.machinery
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import python_path


@dataclass(frozen=True)
class Library:
    """One of them."""

    package: str
    """What is installed and imported."""
    maker: str
    """What builds a model, below the package: a function that takes its name first, or with
    `{name}` the class itself."""
    names: str = ""
    """A function that lists the names, below the package; empty: they are names of the package."""
    sized: bool = False
    """Whether its models take images of a size that they tell."""

    def call(self, name: str, config: str) -> str:
        """Python that builds a model of arguments by name, the dict `config`."""
        first = "" if "{name}" in self.maker else f'"{name}", '
        return f"{self.package}.{self.maker.format(name=name)}({first}**{config})"

    def find(self) -> None:
        """Raises CaptureError where it is not installed; imports nothing."""
        paths = [*map(str, (Path.cwd(), *python_path())), *sys.path]
        if importlib.machinery.PathFinder.find_spec(self.package, paths) is None:
            hint = f"pip install {self.package}"
            raise CaptureError(f"{self.package} is not installed", hint=hint)

    def build(self, name: str, config: Mapping[str, Any]) -> Any:
        """What `call` says.

        Raises:
            CaptureError: the library is not installed, or has no such model.
            Exception: whatever the library raises at these arguments.
        """
        self.find()
        try:
            package: Any = importlib.import_module(self.package)
            importlib.import_module(f"{self.package}.{self.maker}".rpartition(".")[0])
        except ImportError as problem:
            missing = getattr(problem, "name", None) or self.package
            raise CaptureError(
                f"{missing.partition('.')[0]} is not installed", hint=f"pip install {self.package}"
            ) from None
        known = _below(package, self.names)() if self.names else dir(package)
        if name.partition(".")[0] not in known:
            near = difflib.get_close_matches(name, known, 3)
            version = getattr(package, "__version__", "")
            raise CaptureError(
                f"{self.package} {version} has no model {name}",
                hint=f"did you mean {', '.join(near)}?" if near else "",
            )
        maker = _below(package, self.maker.format(name=name))
        return maker(**config) if "{name}" in self.maker else maker(name, **config)


NAMED: Mapping[str, Library] = {
    "timm": Library("timm", "create_model", "list_models", sized=True),
    "torchvision": Library("torchvision", "models.get_model", "models.list_models", sized=True),
    "diffusers": Library("diffusers", "{name}"),
}
"""By what stands before the colon of a target."""


def _below(package: Any, path: str) -> Any:
    return reduce(getattr, path.split("."), package)


def image_of(model: Any, name: str) -> tuple[int, int, int] | None:
    """Channels, height and width of the images that a model is for; None where it tells none."""
    told: Any = getattr(model, "default_cfg", None) or {}
    channels, *size = told.get("input_size", (3,))
    own = getattr(getattr(model, "patch_embed", model), "img_size", None)
    own = own or getattr(model, "image_size", None)
    if own is not None:
        size = [own, own] if isinstance(own, int) else list(own)
    if not size:
        try:
            library: Any = importlib.import_module("torchvision")
            weights: Any = library.models.get_model_weights(name)
            size = list(next(iter(weights)).transforms().crop_size) * 2
        except (ImportError, ValueError, AttributeError, StopIteration, TypeError):
            return None
    return (channels, size[0], size[1]) if len(size) > 1 else None
