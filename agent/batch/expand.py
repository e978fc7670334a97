"""From what was given, manifests, targets and patterns of config files, to jobs with names."""

import glob
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from shardproof.agent.actions.models import Constrained
from shardproof.agent.batch.jobs import NAME, NAME_FORM, Job, asked
from shardproof.agent.batch.manifest import Entry, Manifest, Options, Origin, Place, read, values
from shardproof.agent.batch.names import is_field, label, labels, slug, worded
from shardproof.agent.run.errors import InputError, ShardproofError
from shardproof.agent.run.translate import as_ours
from shardproof.synthesis import hardware as clusters
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import (
    is_library,
    library_classes,
    read_config_file,
    resolved,
)

ARGUMENT = "a manifest (.toml or .json), path/model.py:Class, hf:Class, or config files (a pattern)"
MOST = 10_000
"""Jobs of one batch."""


@dataclass(frozen=True)
class Placed:
    """A job and where it comes from, for errors."""

    job: Job
    origin: Origin
    place: Place
    longer: str = ""
    """Another name, with the path of the model; '' where its owner gave it a name."""

    @property
    def where(self) -> str:
        return self.origin.where(self.place)


def gather(arguments: Sequence[str], given: Options) -> list[Job]:
    """All jobs, each one read as far as that needs no capture. `given` is what options of the
    command line say; it takes the place of `[defaults]`, and an entry of a job comes before it.

    Raises:
        InputError: the first thing that cannot be used, with its place.
    """
    found: list[Placed] = []
    own = _from_here(given)
    for argument in arguments:
        for manifest, origin in _sources(argument):
            defaults = _said(manifest.defaults) | own
            for index, entry in enumerate(manifest.job):
                for each in _every_class(entry, origin, ("job", index)):
                    found += _expanded(each, defaults, origin, ("job", index))
    found = list({_same(p): p for p in found}.values())
    if len(found) > MOST:
        raise InputError("too many jobs", expected=f"at most {MOST:,}", got=f"{len(found):,}")
    found = _apart(found)
    _named_once(found)
    for placed in found:
        checked(placed)
    return [placed.job for placed in found]


def _every_class(entry: Entry, origin: Origin, place: Place) -> Iterator[Entry]:
    """The entry for each class of transformers that a pattern names: `hf:*ForCausalLM`.

    Raises:
        InputError: the pattern names none.
    """
    path, _, pattern = (entry.target or "").partition(":")
    if path != "hf" or not set(pattern) & set("*?["):
        yield entry
        return
    found = library_classes(pattern)
    if not found:
        where = origin.where((*place, "target"))
        hint = "a pattern of names in transformers, as *ForCausalLM"
        raise InputError("no such class", where=where, got=f"hf:{pattern}", hint=hint)
    for name in found:
        own = {"target": f"hf:{name}", "name": f"{entry.name}-{name}" if entry.name else None}
        yield entry.model_copy(update=own)


def selected(jobs: Sequence[Job], patterns: Sequence[str]) -> list[Job]:
    """The jobs whose names match one of the patterns; all where there is none."""
    if not patterns:
        return list(jobs)
    return [job for job in jobs if any(fnmatchcase(job.name, p) for p in patterns)]


def _sources(argument: str) -> Iterator[tuple[Manifest, Origin]]:
    here = Origin(Path(argument))
    path, colon, name = argument.rpartition(":")
    whole = name.isidentifier() or is_library(argument)
    module = not Path(argument).exists() and all(p.isidentifier() for p in path.split("."))
    if colon and whole and (module or path.endswith(".py")):
        yield Manifest(job=[Entry(target=argument)]), here
        return
    files = _files(argument, Path())
    configs = [f for f in files if f.suffix == ".json" and not _is_manifest(f)]
    if configs:
        yield Manifest(job=[Entry(configs=[glob.escape(str(f)) for f in configs])]), here
    for file in files:
        if file not in configs:
            if file.suffix not in (".toml", ".json"):
                raise InputError("not understood", where=str(file), expected=ARGUMENT)
            manifest, origin = read(file)
            yield manifest, origin


def _files(pattern: str, folder: Path) -> list[Path]:
    """The files of a pattern, or of a folder that holds a `config.json`."""
    whole = str(folder / pattern)
    found = [Path(p) for p in sorted(glob.glob(whole, recursive=True))]  # noqa: PTH207
    found = [p / "config.json" if (p / "config.json").is_file() else p for p in found]
    found = [p for p in found if p.is_file()]
    if not found:
        raise InputError("no such file", where=pattern, expected=ARGUMENT)
    return found


def _is_manifest(path: Path) -> bool:
    try:
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and "job" in data


def _said(options: Options) -> dict[str, Any]:
    return options.model_dump(exclude_none=True)


def _from_here(given: Options) -> dict[str, Any]:
    """Options of the command line, with files as they are seen from here."""
    said = _said(given)
    if "config" in said:
        said["config"] = [_whole(item) for item in values(said["config"])]
    if "hardware" in said and said["hardware"] not in clusters.shipped():
        said["hardware"] = str(Path(said["hardware"]).absolute())
    return said


def _whole(item: str) -> str:
    named = not is_field(item) and item.endswith((".json", ".toml"))
    return str(Path(item).absolute()) if named else item


def _expanded(
    entry: Entry, defaults: Mapping[str, Any], origin: Origin, place: Place
) -> Iterator[Placed]:
    """The jobs of one entry: config files x meshes x batches x sequences x hardware."""
    folder = origin.path.parent if origin.text else Path()
    merged = {**defaults, **_said(entry)}

    def refuse(what: str, field: str, **said: str) -> InputError:
        return InputError(what, where=origin.where((*place, field)), **said)

    if "mesh" not in merged:
        hint = "mesh in the job or in [defaults], or --mesh"
        raise refuse("no mesh", "mesh", expected='"dp=2,tp=2"', hint=hint)
    files: list[Path | None] = [None]
    if entry.configs is not None:
        files = [f for pattern in values(entry.configs) for f in _files(pattern, folder)]
    elif entry.target is None:
        raise refuse("no target", "target", expected="path/model.py:Class or hf:Class")
    words = labels(files)
    axes = [values(merged.get(name)) for name in ("mesh", "batch", "seq", "hardware")]
    for name, axis in zip(("mesh", "batch", "seq", "hardware"), axes, strict=True):
        if not axis:
            raise refuse("an empty list", name, hint=f"leave {name} out, or give a value")
    listed = [isinstance(merged.get(n), list) for n in ("mesh", "batch", "seq", "hardware")]
    for file, (mesh, batch, seq, hardware) in itertools.product(files, itertools.product(*axes)):
        target = _target(entry, file, folder)
        config = _config(merged.get("config"), folder)
        config = ([_path(file)] if file is not None else []) + config
        suffix = [slug(mesh)] if listed[0] or not entry.name else []
        suffix += [f"b{batch}"] if listed[1] else []
        suffix += [f"s{seq}"] if listed[2] else []
        suffix += [Path(hardware).stem] if listed[3] else []
        word = words[file] if file is not None else label(config)
        if entry.name is None:
            own = [worded(word or target.rpartition(":")[2])]
            longer = "-".join([worded(str(file or target)), *suffix])
        else:
            own = [entry.name, worded(word)] if file is not None else [entry.name]
            longer = ""
        translation = merged.get("translation")
        taken: dict[str, Any] = {
            key: tuple(merged[key]) if isinstance(merged[key], list) else merged[key]
            for key in TAKEN
            if key in merged
        }
        job = Job(
            name="-".join([*own, *suffix]),
            target=target,
            mesh=mesh,
            config=tuple(config),
            inputs=tuple(merged.get("input", ())),
            batch=batch,
            seq=seq,
            hardware=_hardware(hardware, folder),
            translation=None if translation is None else Path(_path(folder / translation)),
            **taken,
        )
        if not NAME.fullmatch(job.name):
            raise refuse("not a name for a job", "name", expected=NAME_FORM, got=job.name)
        yield Placed(job, origin, place, longer)


TAKEN = set(Options.model_fields) - {"mesh", "config", "input", "batch", "seq", "hardware"}
"""Entries that are of a job as they stand."""


def _target(entry: Entry, file: Path | None, folder: Path) -> str:
    if entry.target is not None:
        target = resolved(entry.target)
        path, colon, name = target.rpartition(":")
        return target if is_library(target) or not colon else f"{_path(folder / path)}:{name}"
    assert file is not None
    try:
        named: Any = read_config_file(str(file)).get("architectures")
    except CaptureError as error:
        raise InputError("the config cannot be read", where=str(file), got=str(error)) from None
    if not isinstance(named, list) or not named or not isinstance(named[0], str):
        raise InputError(
            "the config names no class",
            where=str(file),
            expected='"architectures": ["LlamaForCausalLM"]',
            hint='or give the class: a job with target = "hf:Class" and configs',
        )
    return f"hf:{named[0]}"


def _config(given: object, folder: Path) -> list[str]:
    """The entries of a config in the words of the command line."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [f"{key}={json.dumps(value, default=str)}" for key, value in given.items()]  # pyright: ignore[reportUnknownVariableType]
    return [
        _path(folder / item) if not is_field(item) and item.endswith((".json", ".toml")) else item
        for item in values(given)
    ]


def _hardware(name: str | None, folder: Path) -> str:
    name = name or clusters.DEFAULT
    return name if name in clusters.shipped() else _path(folder / name)


def _path(path: Path) -> str:
    """As it is written from here: relative below this folder, else absolute."""
    whole, here = Path(os.path.abspath(path)), Path.cwd()  # noqa: PTH100  (links stay as they are)
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)


def _same(placed: Placed) -> tuple[object, ...]:
    """What a job that was given twice has in common: a file in two patterns, or one manifest."""
    origin = placed.origin
    entry = (str(origin.path), placed.place) if origin.text else ()
    return (placed.job.model_dump_json(), *entry)


def _apart(found: Sequence[Placed]) -> list[Placed]:
    """Where two names that were made here are one, the longer ones."""
    counts = Counter(p.job.name.lower() for p in found)
    return [
        replace(p, job=p.job.model_copy(update={"name": p.longer}))
        if p.longer and counts[p.job.name.lower()] > 1
        else p
        for p in found
    ]


def _named_once(found: Iterable[Placed]) -> None:
    seen: dict[str, Placed] = {}
    for placed in found:
        before = seen.setdefault(placed.job.name.lower(), placed)
        if before is not placed:
            raise InputError(
                f"two jobs are called {placed.job.name}",
                where=placed.where,
                got=f"the first is at {before.where}",
                hint="give one of them another name: name = ...",
            )


FIELDS = {f"--{name}": name for name in Options.model_fields} | {
    n: n for n in Constrained.parameters()
}
"""Which entry of a manifest an error of the command line is about, by how its place begins."""


def checked(placed: Placed) -> None:
    """Read everything of a job that can be read without its model.

    Raises:
        InputError: what cannot be used, and where it stands.
    """
    try:
        asked(placed.job, Path(placed.job.name))
        if placed.job.translation is not None and not placed.job.translation.is_file():
            raise InputError("no such file", where="translation", got=str(placed.job.translation))
    except Exception as error:
        ours: ShardproofError | None = as_ours(error)
        if ours is None:
            raise
        name = next((f for start, f in FIELDS.items() if ours.where.startswith(start)), "")
        place = placed.place if not name else (*placed.place, name)
        if name and place not in placed.origin.lines and ("defaults", name) in placed.origin.lines:
            place = ("defaults", name)
        at = placed.origin.where(place)
        raise InputError(
            f"job {placed.job.name}: {ours.what}",
            where="   ".join(filter(None, [at, ours.where])),
            expected=ours.expected,
            got=ours.got,
            hint=ours.hint,
        ) from None
