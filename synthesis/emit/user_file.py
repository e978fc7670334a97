"""Edits the user's file: local extents, the loss, and a `parallelize` function."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from shardproof.synthesis.emit.attributes import AttributeChange, attribute_changes, calls_another
from shardproof.synthesis.emit.extents import edit_extents
from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.form import PLAIN, Form
from shardproof.synthesis.emit.imports import import_lines
from shardproof.synthesis.emit.libraries import in_library, read
from shardproof.synthesis.emit.loss import user_loss
from shardproof.synthesis.emit.methods import MethodChange, method_changes
from shardproof.synthesis.emit.obligations import obligations
from shardproof.synthesis.emit.parallelize import parallelize_code, placed_modules
from shardproof.synthesis.emit.patch import EmitError, Patch, patch
from shardproof.synthesis.emit.reads import edit_reads
from shardproof.synthesis.emit.snippets import RUNTIME, SNIPPETS
from shardproof.synthesis.emit.source import Edit, SourceText
from shardproof.synthesis.planner.plan import LocalExtent, Plan


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


def _same_file(name: str, path: Path) -> bool:
    return Path(name).name == path.name and (Path(name) == path or path.match(name))


def _local_extents(
    source: SourceText, path: Path, facts: ModelFacts, plan: Plan
) -> tuple[list[Edit], list[AttributeChange | MethodChange]]:
    """Edits that make extents local; where a line leaves no room for one, is a library's, or calls
    the function that writes it, the attribute that it reads is changed instead. Where others of
    that line are those it writes, one that it has no room for comes from inside an operation.

    Raises:
        EmitError: an extent that can be made local in neither way.
    """
    edits: list[Edit] = []
    changes: list[AttributeChange | MethodChange] = []
    written = set[tuple[int, int]]()
    others: list[LocalExtent] = []
    refused: list[tuple[LocalExtent, EmitError]] = []
    for extent in plan.local_extents:
        if not _same_file(extent.file, path):
            others.append(extent)
            continue
        if calls_another(source.tree, extent.line):
            changes += attribute_changes(facts, [extent], plan.tp_size, lambda _: source.text)
        try:
            edits += edit_extents(source, [extent])
            written.add((extent.line, len(extent.whole)))
        except EmitError as error:
            refused.append((extent, error))
    changes += attribute_changes(facts, others, plan.tp_size, read)
    changes += method_changes(facts, others, read)
    for extent, error in refused:
        if (extent.line, len(extent.whole)) not in written:
            found = attribute_changes(facts, [extent], plan.tp_size, lambda _: source.text)
            if not found:
                raise error
            changes += found
    return list(dict.fromkeys(edits)), list(dict.fromkeys(changes))


def user_patch(
    facts: ModelFacts,
    plan: Plan,
    path: Path,
    shown: str,
    layouts: Mapping[str, str] | None = None,
    form: Form = PLAIN,
) -> Patch:
    """A diff of the user's file at `path`, named `shown` in the diff.

    Raises:
        EmitError: a style, an extent or a loss that cannot be written, with file and line.
    """
    text = path.read_bytes().decode("utf-8")
    source = SourceText(shown, text)
    edits: list[Edit] = []
    for extent in plan.local_extents:
        if not _same_file(extent.file, path) and not in_library(extent.file):
            raise EmitError(
                f"{extent.file}:{extent.line}: {extent.op} needs local extents, and only {shown} "
                "is patched; move the module into it"
            )
    local, changes = _local_extents(source, path, facts, plan)
    edits += local
    for m in plan.modules:
        if m.style == "kv_column":
            raise EmitError(
                f"{shown}: {m.path} has {m.parts} heads for {plan.tp}={plan.tp_size} ranks; how "
                f"often the code repeats a head is not made local, take {plan.tp}={m.parts} or less"
            )
    loss = None
    if plan.loss_parallel:
        more, loss = user_loss(source, facts.class_name)
        edits += more
    reads = edit_reads(source, facts, placed_modules(facts, plan))
    edits += reads
    names = source.names()
    name = _function_name(names, facts.class_name)
    used = (SNIPPETS["whole_param"],) if reads else ()
    code = parallelize_code(plan, facts, changes, loss, name, layouts, used, form)
    defined = {_defined(text) for text in code.definitions}
    taken = {name for module, name in code.imports if module == RUNTIME}
    defined |= taken - source.imported_from(RUNTIME)
    clash = defined & names
    if clash:
        raise EmitError(f"{shown}: the patch would define {', '.join(sorted(clash))} again")
    standard, other = import_lines(code.imports, names, form.width)
    first = source.after_standard_imports()
    if first == source.after_imports():
        standard, other = [], standard + other
    placed: dict[int, list[str]] = {first: standard} if standard else {}
    for line in other:
        placed.setdefault(source.place_of_import(line), []).append(line)
    edits += [source.insertion(at, "\n".join(lines) + "\n") for at, lines in placed.items()]
    added = "\n\n\n".join([*code.definitions, code.function.rstrip("\n")])
    main = source.before_main()
    if main is not None:
        edits.append(source.insertion(main, added + "\n\n\n"))
    elif text.endswith("\n"):
        edits.append(source.insertion(len(text), "\n\n" + added + "\n"))
    else:
        edits.append(source.insertion(len(text), "\n\n\n" + added))
    module = Path(shown).stem
    entry = f"from {module} import {facts.class_name}, {name}\n\nmodel = {name}(model)\n"
    return patch({shown: (text, source.apply(edits))}, obligations(plan, facts), entry, name)
