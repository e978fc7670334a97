"""From a plan to a patch: a diff of the user's file, or a new file for a transformers model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from synthesis.emit.extents import attribute_changes, edit_extents
from synthesis.emit.facts import ModelFacts
from synthesis.emit.loss import library_loss, user_loss
from synthesis.emit.parallelize import Code, parallelize_code
from synthesis.emit.patch import EmitError, Patch, check_applies, patch
from synthesis.emit.source import Edit, SourceText
from synthesis.emit.styles import Import
from synthesis.plan import Plan

WIDTH = 100


def import_lines(imports: Iterable[Import]) -> list[str]:
    """Import statements, standard library first, sorted, one module a statement."""
    modules: dict[str, list[str]] = {}
    for module, name in imports:
        modules.setdefault(module, [])
        if name:
            modules[module].append(name)
    lines: list[tuple[int, str, str]] = []
    for module, names in modules.items():
        rank = 0 if module in ("functools", "os") else 1
        if not names:
            lines.append((rank, module, f"import {module}"))
            continue
        line = f"from {module} import {', '.join(sorted(names))}"
        if len(line) > WIDTH:
            line = f"from {module} import (\n    " + ",\n    ".join(sorted(names)) + ",\n)"
        lines.append((rank, module, line))
    lines.sort(key=lambda item: (item[0], "import " not in item[2][:7], item[1]))
    return [line for _, _, line in lines]


def obligations(plan: Plan, facts: ModelFacts) -> tuple[str, ...]:
    """What the caller of the emitted code must do."""
    out = list(plan.obligations)

    def add(text: str) -> None:
        if text not in out:
            out.append(text)

    add(f"Start {plan.mesh.size} processes, one for each rank of the mesh {plan.mesh}.")
    add("Build the model with the same weights on every rank (same seed or same checkpoint).")
    if plan.tp and plan.tp_size > 1:
        add(f"Give every rank of one {plan.tp} group the same batch.")
        if any(m.training_dropout for m in facts.modules):
            add(
                f"Set dropout to 0, or seed it alike on the ranks of one {plan.tp} group: inside "
                "sharded heads and features the masks are drawn per rank."
            )
    if plan.dp and plan.dp_size > 1:
        add(f"Give each {plan.dp} rank its own equal part of the batch.")
        add(
            f"Have the same number of unmasked labels on every {plan.dp} rank: gradients are the "
            "mean over ranks of each rank's mean loss."
        )
    if plan.sequence_parallel:
        add(f"Use a sequence length divisible by {plan.tp}={plan.tp_size}.")
        if facts.file is None:
            add(
                "Pass position_ids=torch.arange(ids.shape[1])[None]: the model counts positions "
                "on the sharded activation otherwise."
            )
    return tuple(out)


def _parallelize_name(names: set[str], class_name: str) -> str:
    if "parallelize" not in names:
        return "parallelize"
    name = "parallelize_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name).lower()
    if name in names:
        raise EmitError(f"the file defines both parallelize and {name}; rename one")
    return name


def _user_patch(facts: ModelFacts, plan: Plan, path: str, text: str, shown: str) -> Patch:
    source = SourceText(shown, text)
    own = [e for e in plan.local_extents if Path(e.file).name == Path(path).name]
    edits: list[Edit] = edit_extents(source, own)
    loss = None
    if plan.loss_parallel:
        more, loss = user_loss(source, facts.class_name)
        edits += more
    name = _parallelize_name(source.names(), facts.class_name)
    code = parallelize_code(plan, facts, (), loss, name)
    clash = {d.split("(")[0].split()[1] for d in code.definitions} & source.names()
    if clash:
        raise EmitError(f"{shown}: the patch would define {', '.join(sorted(clash))} again")
    present = set(text.replace("\r\n", "\n").split("\n"))
    imports = [line for line in import_lines(code.imports) if line not in present]
    if imports:
        edits.append(source.insertion(source.after_imports(), "\n".join(imports) + "\n"))
    added = "\n\n\n".join([*code.definitions, code.function.rstrip("\n")])
    main = source.before_main()
    if main is not None:
        edits.append(source.insertion(main, added + "\n\n\n"))
    else:
        ends = text.endswith("\n")
        edits.append(
            source.insertion(len(text), ("\n\n" if ends else "\n\n\n") + added + "\n" * ends)
        )
    new = source.apply(edits)
    module = Path(shown).stem
    entry = f"from {module} import {facts.class_name}, {name}\n\nmodel = {name}(model)\n"
    return patch({shown: (text, new)}, obligations(plan, facts), entry)


def _literal(value: object) -> str:
    return json.dumps(value).replace("true", "True").replace("false", "False").replace("null", "None")


def _library_text(facts: ModelFacts, plan: Plan, code: Code, stem: str) -> str:
    ids = next((a for m in facts.modules if m.path == "" for a in m.arguments), None)
    batch, tokens = ids.shape[:2] if ids and len(ids.shape) > 1 else (1, 8)
    imports = [
        *code.imports,
        ("os", ""),
        ("torch", ""),
        ("torch.distributed", "destroy_process_group"),
        ("torch.distributed", "init_process_group"),
        ("transformers", facts.class_name),
        ("transformers", facts.config_class),
    ]
    lines = import_lines(dict.fromkeys(imports))
    split = next((i for i, line in enumerate(lines) if "functools" not in line and "os" not in line.split()), 0)
    config = "".join(f"    {key!r}: {value!r},\n" for key, value in facts.config.items())
    config = config.replace("'", '"')
    positions = (
        f",\n        position_ids=torch.arange({tokens}, device=device)[None]"
        if plan.sequence_parallel
        else ""
    )
    seed = f'mesh["{plan.dp}"].get_local_rank()' if plan.dp and plan.dp_size > 1 else "0"
    sizes = ", ".join(str(size) for _, size in plan.mesh.dims)
    comma = "," if len(plan.mesh.dims) == 1 else ""
    names = ", ".join(f'"{n}"' for n in plan.mesh.names) + comma
    definitions = "".join(f"{text}\n\n\n" for text in code.definitions)
    del sizes, names
    return f'''"""{facts.class_name} on a mesh {plan.mesh}.

    torchrun --nproc-per-node {plan.mesh.size} {stem}.py
"""

{chr(10).join(lines[:split])}

{chr(10).join(lines[split:])}

CONFIG = {{
{config}}}


{definitions}def build_model(**changes) -> {facts.class_name}:
    """The model with random weights; `changes` are config entries."""
    return {facts.class_name}({facts.config_class}(**{{**CONFIG, **changes}}))


{code.function}

def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    init_process_group("nccl" if device == "cuda" else "gloo")
    torch.manual_seed(0)
    model = parallelize(build_model().to(device))
    torch.manual_seed({"0" if seed == "0" else "int(os.environ['RANK']) // " + str(plan.tp_size)})
    ids = torch.randint(0, model.config.vocab_size, ({batch}, {tokens}), device=device)
    loss = model(ids, labels=ids{positions}).loss
    loss.backward()
    print(f"rank {{os.environ['RANK']}}: loss {{loss.item():.6f}}")
    destroy_process_group()


if __name__ == "__main__":
    main()
'''


def _library_patch(facts: ModelFacts, plan: Plan) -> Patch:
    stem = "parallel_" + facts.class_name.lower()
    for suffix in ("forcausallm", "lmheadmodel", "formaskedlm", "model"):
        stem = stem.removesuffix(suffix)
    def read(path: str) -> str:
        return Path(path).read_text(encoding="utf-8")

    changes = attribute_changes(facts, plan.local_extents, plan.tp_size, read)
    loss = library_loss(facts) if plan.loss_parallel else None
    code = parallelize_code(plan, facts, changes, loss)
    text = _library_text(facts, plan, code, stem)
    SourceText(f"{stem}.py", text)
    entry = f"from {stem} import build_model, parallelize\n\nmodel = parallelize(build_model())\n"
    return patch({f"{stem}.py": (None, text)}, obligations(plan, facts), entry)


def emit(facts: ModelFacts, plan: Plan, root: Path | None = None) -> Patch:
    """The patch that carries out `plan`.

    Args:
        root: folder that the diff's paths are relative to; the working directory if None.

    Raises:
        EmitError: a style or an extent that cannot be written; git refuses the result.
    """
    if facts.file is None:
        out = _library_patch(facts, plan)
    else:
        path = Path(facts.file).resolve()
        base = (root or Path.cwd()).resolve()
        shown = path.relative_to(base).as_posix() if path.is_relative_to(base) else path.name
        text = path.read_bytes().decode("utf-8")
        out = _user_patch(facts, plan, str(path), text, shown)
    check_applies(out)
    return out


__all__: Sequence[str] = ("emit", "import_lines", "obligations")
