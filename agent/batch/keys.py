"""What the result of a job depends on, as one hash: a job is run again where it changed.

Of a model in a file these are the file and every file beside it that it imports, found without
running them; of the rest, each option as it was read, files by their content, and the versions of
this program and of the libraries that matter. Data that a model reads as it is built is not seen.
"""

import functools
import hashlib
import importlib.machinery
import json
import modulefinder
import site
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shardproof.agent.batch.jobs import Job
from shardproof.agent.pipeline import pipeline
from shardproof.agent.run.files import sha256
from shardproof.agent.run.machine import versions
from shardproof.installed import PACKAGE, ROOMS
from shardproof.synthesis.frontends.torch.homes import home_of, ways
from shardproof.synthesis.frontends.torch.request import (
    CaptureRequest,
    is_library,
    read_config_file,
    split_target,
)


def of_model(request: CaptureRequest) -> str:
    """All that a capture depends on."""
    kind, name = split_target(request.target)
    said = request.to_json()
    said["config_file"] = read_config_file(request.config_file) if request.config_file else None
    files = {} if is_library(request.target) else closure(Path(kind))
    return _hash({"request": said, "class": name, "files": files, "versions": ours()})


ELSEWHERE = {"name", "out", "timeout", "translation", "target", "config", "hardware"}
"""Of a job, what its result does not depend on, or is hashed by what it names."""


def of_job(job: Job, asked: pipeline.Job, model: str) -> str:
    """All that a result depends on, with the hash of its model; name and folder do not count."""
    translation = job.translation.read_bytes() if job.translation is not None else b""
    return _hash(
        {
            "model": model,
            "mesh": asked.mesh.dims,
            "cluster": asdict(asked.cluster),
            "constraints": asked.constraints.to_json(),
            "asked": job.model_dump(mode="json", exclude=ELSEWHERE),
            "translation": hashlib.sha256(translation).hexdigest(),
        }
    )


class _Finder(modulefinder.ModuleFinder):
    """Follows packages without an `__init__.py` too, at which the one of Python stumbles."""

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        try:
            return super().find_module(name, path, parent)
        except AttributeError:
            spec = importlib.machinery.PathFinder.find_spec(name, path or self.path)
            folders = list(spec.submodule_search_locations or ()) if spec is not None else []
            if not folders:
                raise ImportError(name) from None
            return None, folders[0], ("", "", _FOLDER)

    def load_package(self, fqname: str, pathname: str) -> Any:
        if (Path(pathname) / "__init__.py").is_file():
            return super().load_package(fqname, pathname)
        module: Any = self.add_module(fqname)
        module.__path__ = [pathname]
        return module


_FOLDER = 5
"""What `modulefinder` calls a package."""


def closure(path: Path) -> dict[str, str]:
    """SHA-256 of a file and of the files beside or below it that it imports, by path."""
    home = home_of(path)
    path, (first, last) = home.file, ways(home)
    finder = _Finder([*first, *_ways(), *last])
    try:
        if home.packaged:
            finder.import_hook(home.name)
        else:
            finder.run_script(str(path))
    except (SyntaxError, ValueError, OSError, ImportError, RecursionError):
        found = {path}
    else:
        modules: Any = finder.modules.values()
        found = {path} | {Path(m.__file__).resolve() for m in modules if m.__file__}
    return {str(p): sha256(p) for p in sorted(found)}


def _ways() -> list[str]:
    """Where else own code is imported from: folders that an editable installation names."""
    libraries = {Path(p).resolve() for p in (sys.prefix, sys.base_prefix, *site.getsitepackages())}
    ways = [Path(p).resolve() for p in sys.path if p]
    own = [p for p in ways if p.is_dir() and p.name not in ("site-packages", "dist-packages")]
    return [str(p) for p in own if not any(map(p.is_relative_to, libraries))]


@functools.cache
def ours() -> Mapping[str, str]:
    """Versions, and a hash of our own files: a checkout changes without its version."""
    digest = hashlib.sha256()
    for room in ROOMS:
        for file in sorted((PACKAGE / room).rglob("*")):
            if file.suffix in (".py", ".toml", ".j2") and file.is_file():
                content = sha256(file)
                digest.update(f"{file.relative_to(PACKAGE)} {content}\n".encode())
    return {**versions(), "files": digest.hexdigest()}


def _hash(said: Mapping[str, Any]) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
