"""Writes the file that builds and parallelizes a transformers model whose source stays as it is."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from jinja2 import Template

from shardproof.synthesis.emit.arguments import argument_changes
from shardproof.synthesis.emit.attributes import (
    attribute_changes,
    group_changes,
    length_changes,
)
from shardproof.synthesis.emit.context import over_ranks
from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.form import PLAIN, Form, literal
from shardproof.synthesis.emit.imports import import_lines
from shardproof.synthesis.emit.libraries import read
from shardproof.synthesis.emit.loss import library_loss
from shardproof.synthesis.emit.methods import method_changes
from shardproof.synthesis.emit.obligations import obligations
from shardproof.synthesis.emit.parallelize import Change, Code, parallelize_code
from shardproof.synthesis.emit.patch import Patch, patch
from shardproof.synthesis.emit.source import SourceText
from shardproof.synthesis.emit.tp_plan import tp_plan_code
from shardproof.synthesis.frontends.torch.named import NAMED
from shardproof.synthesis.planner.dialects import TRANSFORMERS
from shardproof.synthesis.planner.plan import Plan

HEADS = ("forcausallm", "lmheadmodel", "formaskedlm", "model")

TEMPLATE = Path(__file__).with_name("library_file.py.j2")
NAMED_TEMPLATE = Path(__file__).with_name("named_file.py.j2")


def keywords(values: Mapping[str, object]) -> str:
    """Keyword arguments of a call, on one line."""
    return ", ".join(f"{name}={on_line(value)}" for name, value in values.items())


def on_line(value: object) -> str:
    if isinstance(value, Mapping):
        entries = cast(Mapping[object, object], value).items()
        return "{" + ", ".join(f"{literal(k)}: {on_line(v)}" for k, v in entries) + "}"
    return literal(value)


def file_stem(class_name: str) -> str:
    """`LlamaForCausalLM` gives `parallel_llama`."""
    stem = class_name.lower()
    for head in HEADS:
        stem = stem.removesuffix(head)
    return "parallel_" + (stem or class_name.lower())


def _named_text(facts: ModelFacts, plan: Plan, code: Code, stem: str, width: int) -> str:
    """The file of a model that its library builds by name."""
    kind, _, name = facts.target.partition(":")
    root = facts.find("")
    package, _, _ = NAMED[kind].call(name, "").partition("(")
    imports = [
        *code.imports,
        (package.rpartition(".")[0], ""),
        ("os", ""),
        ("torch", ""),
        ("torch", "nn"),
        ("torch", "distributed as dist"),
    ]
    groups = ["\n".join(lines) for lines in import_lines(imports, width=width) if lines]
    given = {
        a.name: (a.shape[0] // plan.batch_ranks or 1, *a.shape[1:])
        for a in (root.arguments if root else ())
        if a.is_float and a.shape
    }
    tensor = root is not None and root.output == "tensor" and len(given) == len(root.arguments)
    template = Template(NAMED_TEMPLATE.read_text(encoding="utf-8"), keep_trailing_newline=True)
    return template.render(
        target=facts.target,
        mesh=plan.mesh,
        ranks=plan.mesh.size,
        stem=stem,
        imports="\n\n".join(groups),
        config=literal(facts.config),
        call=NAMED[kind].call(name, "{**CONFIG, **changes}"),
        definitions="".join(f"{text}\n\n\n" for text in code.definitions),
        function=code.function,
        inputs={name: list(shape) for name, shape in given.items()} if tensor else {},
    )


def _text(facts: ModelFacts, plan: Plan, code: Code, stem: str, width: int) -> str:
    root = facts.find("")
    ids = next((a for a in root.arguments), None) if root else None
    batch, tokens = ids.shape[:2] if ids and len(ids.shape) > 1 else (1, 8)
    vocab = "model.config.vocab_size"
    imports = [
        *code.imports,
        ("os", ""),
        ("torch", ""),
        ("torch", "distributed as dist"),
        ("transformers", facts.class_name),
        ("transformers", facts.config_class),
    ]
    groups = ["\n".join(lines) for lines in import_lines(imports, width=width) if lines]
    parallel_data = plan.batch_ranks > 1
    template = Template(TEMPLATE.read_text(encoding="utf-8"), keep_trailing_newline=True)
    return template.render(
        name=facts.class_name,
        mesh=plan.mesh,
        ranks=plan.mesh.size,
        stem=stem,
        imports="\n\n".join(groups),
        config=literal(facts.config),
        config_class=facts.config_class,
        definitions="".join(f"{text}\n\n\n" for text in code.definitions),
        function=code.function,
        seed=f"dist.get_rank() // {plan.mesh.size // plan.batch_ranks}" if parallel_data else "0",
        vocab=vocab,
        batch=batch // plan.batch_ranks or 1,
        tokens=tokens,
    )


def changes_of(facts: ModelFacts, plan: Plan, read: Callable[[str], str]) -> list[Change]:
    """What makes modules local whose files, of which `read` gives the text, stay as they are."""
    extents = plan.local_extents
    return [
        *over_ranks(plan, extents, lambda e, n: attribute_changes(facts, e, n, read)),
        *group_changes(facts, plan.modules, plan.tp_size, read),
        *over_ranks(plan, extents, lambda e, n: length_changes(facts, e, n)),
        *method_changes(facts, extents, read),
        *argument_changes(facts, plan),
    ]


def library_patch(
    facts: ModelFacts,
    plan: Plan,
    layouts: Mapping[str, str] | None = None,
    form: Form = PLAIN,
) -> Patch:
    """A new file `parallel_<model>.py`, for a class of transformers or a model of another library.

    Raises:
        EmitError: a style, an extent or a loss that cannot be written.
    """
    kind, _, name = facts.target.partition(":")
    named = kind in NAMED
    stem = f"parallel_{re.sub(r'[^a-z0-9]+', '_', name.lower())}" if named else ""
    stem = stem or file_stem(facts.class_name)
    facts = replace(facts, class_name="nn.Module") if named else facts
    changes = changes_of(facts, plan, read)
    if plan.dialect == TRANSFORMERS.name:
        code = tp_plan_code(plan, facts, changes, form)
        text = _text(facts, plan, code, stem, form.width)
        entry = f"from {stem} import from_pretrained\n\nmodel = from_pretrained(FOLDER)\n"
        return _patch(facts, plan, stem, text, entry)
    split = plan.loss_parallel or plan.context
    loss = library_loss(facts, plan.loss_parallel, bool(plan.context)) if split else None
    code = parallelize_code(plan, facts, changes, loss, layouts=layouts, form=form)
    text = (_named_text if named else _text)(facts, plan, code, stem, form.width)
    entry = f"from {stem} import build_model, parallelize\n\nmodel = parallelize(build_model())\n"
    return _patch(facts, plan, stem, text, entry)


def _patch(facts: ModelFacts, plan: Plan, stem: str, text: str, entry: str) -> Patch:
    SourceText(f"{stem}.py", text)
    return patch({f"{stem}.py": (None, text)}, obligations(plan, facts), entry)
