"""Edits the user's files: local extents, the loss, and a `parallelize` function."""

import ast
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from shardproof.synthesis.emit.arguments import argument_changes
from shardproof.synthesis.emit.attributes import (
    attribute_changes,
    calls_another,
    length_changes,
    parsed,
)
from shardproof.synthesis.emit.context import over_ranks
from shardproof.synthesis.emit.extents import IN_RATIO, edit_extents, is_inner, parting_edits
from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.form import PLAIN, Form
from shardproof.synthesis.emit.imports import import_lines
from shardproof.synthesis.emit.libraries import Sources
from shardproof.synthesis.emit.loss import loss_file, user_loss
from shardproof.synthesis.emit.methods import method_changes
from shardproof.synthesis.emit.obligations import obligations
from shardproof.synthesis.emit.parallelize import (
    Change,
    definitions,
    parallelize_code,
    placed_modules,
)
from shardproof.synthesis.emit.patch import EmitError, Patch, patch
from shardproof.synthesis.emit.reads import edit_reads
from shardproof.synthesis.emit.snippets import RUNTIME, SNIPPETS, Snippet
from shardproof.synthesis.emit.source import Edit, SourceText
from shardproof.synthesis.emit.styles import Import
from shardproof.synthesis.frontends.torch.homes import home_of, is_users
from shardproof.synthesis.planner.plan import CUT, LocalExtent, Plan


def _function_name(names: Collection[str], class_name: str) -> str:
    if "parallelize" not in names:
        return "parallelize"
    name = "parallelize_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name).lower()
    if name in names:
        raise EmitError(f"the file defines both parallelize and {name}; rename one")
    return name


def _defined(text: str) -> str:
    """The name that a definition of the patch defines."""
    first = next(line for line in text.split("\n") if line and not line.startswith("#"))
    word = re.match(r"(?:class |def )?(\w+)", first)
    return word[1] if word else ""


class _File:
    """A file that a patch changes."""

    def __init__(self, path: Path, shown: str) -> None:
        self.path = path
        self.source = SourceText(shown, path.read_bytes().decode("utf-8"))
        self.edits: list[Edit] = []
        self.used: dict[str, Snippet] = {}
        """Definitions that the edits need, by name."""

    def bind(self, imports: Iterable[Import], definitions: Iterable[str], width: int) -> None:
        """Have the file import names, and refuse where it would define one of its own again.

        Raises:
            EmitError: it has a name of a definition, or of the runtime, already.
        """
        source, names = self.source, self.source.names()
        defined = {_defined(text) for text in definitions}
        defined |= {n for m, n in imports if m == RUNTIME} - source.imported_from(RUNTIME)
        clash = defined & names
        if clash:
            again = ", ".join(sorted(clash))
            raise EmitError(f"{source.path}: the patch would define {again} again")
        standard, other = import_lines(imports, names, width)
        first = source.after_standard_imports()
        if first == source.after_imports():
            standard, other = [], standard + other
        placed: dict[int, list[str]] = {first: standard} if standard else {}
        for line in other:
            placed.setdefault(source.place_of_import(line), []).append(line)
        self.edits += [source.insertion(at, "\n".join(ls) + "\n") for at, ls in placed.items()]

    @property
    def texts(self) -> tuple[str, str]:
        """Before and after."""
        return self.source.text, self.source.apply(list(dict.fromkeys(self.edits)))


class _Files:
    """The files of a patch; the model's own comes first."""

    def __init__(self, sources: Sources, path: Path, shown: str) -> None:
        self.sources = sources
        self.main = _File(path, shown)
        self.known: dict[Path, _File] = {path: self.main}

    def at(self, name: str) -> _File | None:
        """The file that is called so; None of a library's, which stays as it is."""
        path = self.sources.place(name)
        shown = self.sources.shown(path)
        if path not in self.known and shown is not None:
            self.known[path] = _File(path, shown)
        return self.known.get(path)

    def tree(self, name: str) -> ast.Module | None:
        """What a file of a library says; None where there is none."""
        path = self.sources.place(name)
        return parsed(self.sources.read(name)) if path.is_file() else None

    def of_model(self, facts: ModelFacts) -> list[_File]:
        """Those that define what the model's modules do."""
        found = [self.at(forward.file) for forward in facts.forwards.values()]
        return list(dict.fromkeys([self.main, *(f for f in found if f is not None)]))


def _local_extents(files: _Files, facts: ModelFacts, plan: Plan) -> list[Change]:
    """Edit the files so that extents are local; where a line leaves no room for that, is a
    library's, or calls the function that writes it, the attribute that it reads is changed instead.
    Where others of that line are those it writes, one that it has no room for comes from inside an
    operation.

    Raises:
        EmitError: an extent that can be made local in neither way.
    """
    changes: list[Change] = []
    written = set[tuple[_File, int, int]]()
    others: list[LocalExtent] = []
    refused: list[tuple[_File, LocalExtent, EmitError]] = []
    read = files.sources.read
    attributes = partial(_attributes, facts, plan, read)
    for number, extent in enumerate(plan.local_extents):
        file = files.at(extent.file)
        tree = file.source.tree if file is not None else files.tree(extent.file)
        if tree is not None and is_inner(tree, extent, plan.local_extents[number + 1 :]):
            continue
        if file is None:
            others.append(extent)
            continue
        if calls_another(file.source.tree, extent.line):
            changes += attributes([extent])
        try:
            file.edits += edit_extents(file.source, [extent])
            file.used |= {IN_RATIO: SNIPPETS[IN_RATIO]} if extent.op == CUT else {}
            written.add((file, extent.line, len(extent.whole)))
        except EmitError as error:
            refused.append((file, extent, error))
    for extent in others:
        path = files.sources.place(extent.file)
        found = _changes(facts, extent, plan, read) if path.is_file() else []
        if not found and is_users(str(path)):
            raise EmitError(
                f"{extent.file}:{extent.line}: {extent.op} needs local extents, and only files in "
                f"{files.sources.root} are patched"
            )
    changes += attributes(others)
    changes += _lengths(facts, plan.local_extents, plan)
    changes += method_changes(facts, others, read)
    own = [e for e in plan.local_extents if e not in others]
    changes += method_changes(facts, own, read, made_only=True)
    for file, extent, error in refused:
        if (file, extent.line, len(extent.whole)) not in written:
            parted = parting_edits(file.source, extent)
            found = [] if parted else attributes([extent])
            if not found and not parted:
                raise error
            changes += found
            file.edits += parted
    return list(dict.fromkeys(changes))


def _changes(
    facts: ModelFacts, extent: LocalExtent, plan: Plan, read: Callable[[str], str]
) -> list[Change]:
    """What makes an extent of a file local that stays as it is."""
    attributes = _attributes(facts, plan, read, [extent])
    return [
        *attributes,
        *_lengths(facts, [extent], plan),
        *method_changes(facts, [extent], read),
    ]


def _attributes(
    facts: ModelFacts, plan: Plan, read: Callable[[str], str], extents: Sequence[LocalExtent]
) -> list[Change]:
    return [*over_ranks(plan, extents, lambda e, n: attribute_changes(facts, e, n, read))]


def _lengths(facts: ModelFacts, extents: Sequence[LocalExtent], plan: Plan) -> list[Change]:
    return [*over_ranks(plan, extents, lambda e, n: length_changes(facts, e, n))]


def user_patch(
    facts: ModelFacts,
    plan: Plan,
    path: Path,
    sources: Sources,
    layouts: Mapping[str, str] | None = None,
    form: Form = PLAIN,
) -> Patch:
    """A diff of the user's file at `path`, and of the others of theirs that the plan touches.

    Raises:
        EmitError: a style, an extent or a loss that cannot be written, with file and line.
    """
    shown = path.relative_to(sources.root).as_posix()
    files = _Files(sources, path, shown)
    main, source = files.main, files.main.source
    changes = [*_local_extents(files, facts, plan), *argument_changes(facts, plan)]
    for m in plan.modules:
        if m.style == "kv_column":
            raise EmitError(
                f"{shown}: {m.path} has {m.parts} heads for {plan.tp}={plan.tp_size} ranks; how "
                f"often the code repeats a head is not made local, take {plan.tp}={m.parts} or less"
            )
    loss = None
    if plan.loss_parallel or plan.context:
        owner = loss_file(facts)
        file = (files.at(owner) if owner else None) or main
        more, loss = user_loss(
            file.source, facts.class_name, plan.loss_parallel, bool(plan.context)
        )
        file.edits += more
    for file in files.of_model(facts):
        reads = edit_reads(file.source, facts, placed_modules(facts, plan))
        file.edits += reads
        if reads:
            file.used["whole_param"] = SNIPPETS["whole_param"]
    name = _function_name(source.names(), facts.class_name)
    used = tuple(main.used.values())
    known = facts.class_name in source.names()
    typed = facts if known else replace(facts, class_name="nn.Module")
    code = parallelize_code(plan, typed, changes, loss, name, layouts, used, form)
    imports = code.imports if known else (*code.imports, ("torch", "nn"))
    main.bind(imports, code.definitions, form.width)
    added = "\n\n\n".join([*code.definitions, code.function.rstrip("\n")])
    _add(main, added, before=source.before_main())
    for file in files.known.values():
        if file is not main and file.used:
            texts, imports = definitions(file.used.values(), form.inline)
            file.bind(imports, texts, form.width)
            if texts:
                _add(file, "\n\n\n".join(texts), before=file.source.before_main())
    built = facts.target.rpartition(":")[2]
    entry = f"from {home_of(path).name} import {built}, {name}\n\nmodel = {name}(model)\n"
    changed = {f.source.path: f.texts for f in files.known.values() if f.edits}
    return patch(changed, obligations(plan, facts), entry, name)


def _add(file: _File, code: str, before: int | None) -> None:
    """Put code at the end of a file, or before what it does as a script."""
    source, text = file.source, file.source.text
    if before is not None:
        file.edits.append(source.insertion(before, code + "\n\n\n"))
    elif text.endswith("\n"):
        file.edits.append(source.insertion(len(text), "\n\n" + code + "\n"))
    else:
        file.edits.append(source.insertion(len(text), "\n\n\n" + code))
