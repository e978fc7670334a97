"""Writes the `parallelize(model, mesh)` function of a plan, and what that function needs."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from shardproof.runtime.source import digest
from shardproof.synthesis.emit import guarding
from shardproof.synthesis.emit.arguments import ArgumentChange
from shardproof.synthesis.emit.attributes import AttributeChange, LengthChange
from shardproof.synthesis.emit.context import context_lines
from shardproof.synthesis.emit.facts import ModelFacts, ModuleFact
from shardproof.synthesis.emit.form import PLAIN, Form, call
from shardproof.synthesis.emit.groups import group
from shardproof.synthesis.emit.methods import MethodChange
from shardproof.synthesis.emit.patch import COMMENT, EmitError
from shardproof.synthesis.emit.reads import matches
from shardproof.synthesis.emit.sequence import region
from shardproof.synthesis.emit.snippets import PARALLEL, RUNTIME, SNIPPETS, TENSOR, Snippet
from shardproof.synthesis.emit.styles import Import, placement, split_of, style_of
from shardproof.synthesis.planner.plan import ModulePlan, Plan

Change = ArgumentChange | AttributeChange | LengthChange | MethodChange
"""What makes a module local whose source stays as it is."""


@dataclass(frozen=True, slots=True)
class Code:
    """A function, the definitions it needs, and the imports of both."""

    function: str
    definitions: tuple[str, ...]
    imports: tuple[Import, ...]


def normal(m: ModulePlan, facts: ModelFacts) -> ModulePlan:
    """Placements of the last dim written as `S(-1)`."""
    fact = facts.find(m.path)
    if fact is None:
        raise EmitError(f"{m.path}: the model has no such module")
    if m.style == "product" and (len(fact.arguments), fact.positional) != (1, 1):
        raise EmitError(f"{m.path}: {m.kind} takes more than the activation that it multiplies")
    last_in = len(fact.activation.shape) - 1 if fact.activation else 2
    last_out = len(fact.output_shape) - 1 if fact.output_shape else last_in
    whole = m.style in ("sequence", "replicate") or bool(m.splits)
    source = "S(-1)" if m.input == f"S({last_in})" and not whole else m.input
    result = "S(-1)" if m.output == f"S({last_out})" and not whole else m.output
    return replace(m, input=source, output=result)


def wildcard(path: str, patterns: Collection[str]) -> str:
    """`path` with its layer index as `*`, where the plan speaks of those layers by `*`, and names
    this module in none of them by its index."""
    parts = path.split(".")
    for index, part in enumerate(parts):
        prefix = ".".join(parts[:index])
        if part.isdigit() and any(p.startswith(f"{prefix}.*.") for p in patterns):
            parts[index] = "*"
    whole = ".".join(parts)
    named = any("*" not in p and fnmatchcase(p, whole) for p in patterns)
    return path if named else whole


def placed_modules(facts: ModelFacts, plan: Plan) -> list[str]:
    """Paths of the modules whose parameters `parallelize` turns into DTensors over `tp`."""
    if not (plan.tp and plan.tp_size > 1 and plan.modules):
        return []
    outer = [m.path for m in held_outside(facts, plan).values() if not m.splits]
    styled = (m for m in plan.modules if m.style != "replicate")
    return [m.path for m in (*styled, *head_norms(facts, plan)) if m.path not in outer]


def head_norms(facts: ModelFacts, plan: Plan) -> list[ModulePlan]:
    """Modules with parameters the plan does not mention, on the head that a rank has."""
    planned = [m.path for m in plan.modules]
    covered = {wildcard(f.path, planned) for f in facts.modules} & set(planned)
    out: dict[str, ModulePlan] = {}
    for fact in facts.modules:
        path = wildcard(fact.path, planned)
        one_tensor = len(fact.arguments) == 1 and fact.positional == 1 and fact.output == "tensor"
        if fact.params and path not in covered and one_tensor and not fact.children:
            where = _head_split(fact, path, plan)
            if where:
                out[path] = ModulePlan(path, fact.kind, "sequence", where, where)
    return list(out.values())


OWN = {
    "summed": "summed_over",
    "sequence": "summed_over",
    "channels": "own_pieces",
    "pieces": "own_pieces",
}
"""What is done to the parameters that a module holds itself, by its style, where that is `summed`
or `pieces`, or its parts hold some too: a style of PyTorch's would place those as well."""


def held_outside(facts: ModelFacts, plan: Plan) -> dict[str, ModulePlan]:
    """Modules that work on a split activation and whose parts hold parameters, or that stay whole,
    by path."""
    found = [(m, facts.find(m.path)) for m in plan.modules if m.style in OWN]
    parts = tuple(f.path for f in facts.modules if f.params)
    return {
        m.path: m
        for m, f in found
        if f is not None
        and (
            m.style in ("summed", "pieces") or any(part.startswith(f"{f.path}.") for part in parts)
        )
    }


def _own(facts: ModelFacts, modules: Iterable[ModulePlan]) -> list[str]:
    """Lines that treat what these modules hold themselves."""
    lines: list[str] = []
    for m in modules:
        name, splits = OWN[m.style], ", ".join(f'"{own}": {dim}' for own, dim, _ in m.splits)
        given = f", tp, {{{splits}}})" if splits else ", tp)"
        head, star, rest = m.path.partition(".*")
        if "*" in rest:
            raise EmitError(f"{m.path}: nested layer lists are not emitted")
        if star:
            inner = facts.code(rest.removeprefix("."), f"{head}.*")
            lines += [facts.each_block(head), f"        {name}(block{inner}{given}"]
        else:
            lines.append(f"    {name}(model{facts.code(m.path)}{given}")
    return lines


def left_whole(facts: ModelFacts, plan: Plan) -> list[str]:
    """Paths of the parameters that no style places."""
    styled = placed_modules(facts, plan)
    held = {
        f"{m.path}.{name}": any(matches(m.path, pattern) for pattern in styled)
        for m in facts.modules
        for name in m.params
    }
    for m in held_outside(facts, plan).values():
        held |= {
            path: True
            for path in held
            for name, _, _ in m.splits
            if matches(path, f"{m.path}.{name}")
        }
    for paths in facts.tied:
        if any(held.get(path) for path in paths):
            held |= dict.fromkeys(paths, True)
    return [path for path, placed in held.items() if not placed]


def _head_split(fact: ModuleFact, path: str, plan: Plan) -> str:
    """`S(d)` for a module on [..., heads, head dim] beside projections that give a rank one head.

    A key norm then works on the head of its rank, and its gradient is a sum over the ranks.
    """
    parent, shape = path.rpartition(".")[0], fact.arguments[0].shape
    heads = {
        m.parts
        for m in plan.modules
        if m.style == "kv_column" and m.path.rpartition(".")[0] == parent
    }
    return f"S({len(shape) - 2})" if len(shape) > 3 and shape[-2] in heads else ""


def blocks_of(plan: Plan, facts: ModelFacts) -> list[str]:
    """Paths of the module lists whose members are the repeated blocks, and are called."""
    named = (*(m.path for m in plan.modules), *plan.params)
    lists = dict.fromkeys(path.split(".*.")[0] for path in named if ".*." in path)
    found = ((path, facts.find(f"{path}.*")) for path in lists)
    return [path for path, block in found if block is not None and block.output]


def ties(facts: ModelFacts, plan: Plan) -> list[str]:
    """Assignments that tie shared parameters again where modules with a style got their own shards.

    Raises:
        EmitError: two users of one parameter split it in different ways.
    """
    lines: list[str] = []
    for paths in facts.tied:
        splits: dict[str, str] = {}
        styled = [m for m in plan.modules if m.style != "replicate"]
        styled = [m for m in styled if any(p.rpartition(".")[0] == m.path for p in paths)]
        for path in paths if styled else ():
            owner, _, name = path.rpartition(".")
            fact = facts.find(owner)
            planned = next((m for m in styled if m.path == owner), None)
            if planned and fact:
                splits[path] = split_of(planned, fact.base, name)
            elif fact and not fact.children and (fact.output or not _shared(facts, paths)):
                splits[path] = "R"
        if len(set(splits.values())) > 1:
            uses = ", ".join(f"{path} {split}" for path, split in splits.items())
            raise EmitError(f"one shared parameter is split in different ways: {uses}")
        source = next((p for p in splits if splits[p] != "R"), next(iter(splits), None))
        lines += [
            f"    model{facts.code(p)} = model{facts.code(source)}"
            for p in paths
            if source and p != source
        ]
    return lines


def _shared(facts: ModelFacts, paths: Sequence[str]) -> bool:
    """Whether a module that is called has one of these parameters: only such get a style."""
    owners = [facts.find(path.rpartition(".")[0]) for path in paths]
    return any(fact is not None and fact.output for fact in owners)


def entries_of(
    plan: Plan, facts: ModelFacts, width: int
) -> tuple[list[str], list[tuple[str, Snippet]], list[Import]]:
    """Lines of the plan dict, and what they need: by module, what PyTorch has no style for."""
    outer = held_outside(facts, plan)
    styled = [m for m in plan.modules if m.path not in outer]
    modules = in_order(facts, plan, (*styled, *head_norms(facts, plan)))
    modules = [normal(m, facts) for m in modules]
    starts, modules = region(plan, facts, modules)
    prepared, modules = group(facts, modules)
    written = [fact.path for fact in facts.modules if fact.written]
    lines: list[str] = []
    needs: list[tuple[str, Snippet]] = []
    imports: list[Import] = []
    for m in modules:
        for p in [p for p in prepared if m.path.rpartition(".")[0] == p.path]:
            lines.append(call(f'"{p.path}": PrepareModuleInput', p.arguments, 8, ",", width))
            prepared.remove(p)
        for p in [p for p in starts if m.path.startswith(p.path.removesuffix("0") + "*.")]:
            lines.append(call(f'"{p.path}": PrepareModuleInput', p.arguments, 8, ",", width))
            starts.remove(p)
        fact = facts.find(m.path)
        style = None if m.style == "replicate" else style_of(m, fact.base if fact else m.kind)
        name, arguments = (style.name, style.arguments) if style else ("", ())
        around = {
            "SharedInput": m.leaves_shares,
            "SharedOutput": m.shared,
            "OwnOutput": any(matches(path, m.path) for path in written),
        }
        for wrapper in (w for w, needed in around.items() if needed):
            name, arguments = wrapper, (f"{name}({', '.join(arguments)})",) if name else ()
            needs.append((m.path, SNIPPETS[wrapper]))
        lines += [call(f'"{m.path}": {name}', arguments, 8, ",", width)] if name else []
        imports += style.imports if style else ()
        needs += [(m.path, style.snippet)] if style and style.snippet else []
    if plan.output != "R":
        given = _gathers(plan, facts)
        lines.append(call('"": PrepareModuleOutput', given, 8, ",", width))
        imports.append((PARALLEL, "PrepareModuleOutput"))
    text = "\n".join(lines)
    imports += [(PARALLEL, "PrepareModuleInput")] if "PrepareModuleInput(" in text else []
    imports += [(TENSOR, name) for name in ("Replicate", "Shard") if f"{name}(" in text]
    return lines, needs, imports


def _gathers(plan: Plan, facts: ModelFacts) -> list[str]:
    """Arguments of a style that gathers what the model returns.

    Raises:
        EmitError: it returns something else than one tensor.
    """
    root = facts.find("")
    if root is None or root.output != "tensor":
        what = root.output if root else "nothing"
        raise EmitError(f"{facts.class_name} returns a {what}, of which tensors are not gathered")
    return [f"output_layouts={placement(plan.output)}", "desired_output_layouts=Replicate()"]


def in_order(facts: ModelFacts, plan: Plan, modules: Iterable[ModulePlan]) -> list[ModulePlan]:
    """These in the order in which the model registers its modules."""
    planned = [m.path for m in plan.modules]
    paths = list(dict.fromkeys(wildcard(f.path, planned) for f in facts.modules))
    order = {path: i for i, path in enumerate(paths)}
    return sorted(modules, key=lambda m: order.get(m.path, len(order)))


def held_whole(plan: Plan, facts: ModelFacts) -> bool:
    """Whether ranks of `dp` hold a parameter in full. The bias of a fused linear is written whole
    over `tp`, so that it divides over `dp` where its length does."""
    fused = (m for m in plan.modules if m.style == "fused_column" and not m.splits)
    biases = {f"{m.path}.bias" for m in fused}
    for path, placed in plan.params.items():
        owner = facts.find(path.rpartition(".")[0]) if path in biases else None
        divides = owner is not None and owner.params["bias"][0] % plan.shard_size == 0
        if all(placed.get(name, "R") == "R" for name in plan.data_dims) and not divides:
            return True
    return False


def _recomputed(plan: Plan, facts: ModelFacts, width: int) -> tuple[list[str], list[Import]]:
    """Calls for the blocks whose activations are computed again; with `selective`, all but what
    weights and collectives give. Parameters and modules keep their names. They come before the
    styles: backward calls the block again, with the hooks of styles, on what it was given.

    Raises:
        EmitError: no blocks are repeated.
    """
    if plan.recompute == "none":
        return [], []
    blocks = blocks_of(plan, facts)
    if not blocks:
        raise EmitError(f"recompute {plan.recompute}: the model has no list of blocks")
    imports = [("torch.distributed", "_composable")]
    lines: list[str] = []
    given = ["block"]
    if plan.recompute == "selective":
        moved = KEPT_MOVES if plan.tp_size > 1 else ()
        lines = [
            "    kept = [",
            *(f"        torch.ops.{name}.default," for name in (*KEPT_PRODUCTS, *moved)),
            "    ]",
        ]
        given.append("context_fn=partial(create_selective_checkpoint_contexts, kept)")
        imports += [
            ("functools", "partial"),
            ("torch", ""),
            ("torch.utils.checkpoint", "create_selective_checkpoint_contexts"),
        ]
    for path in blocks:
        lines.append(facts.each_block(path))
        lines.append(call("_composable.checkpoint", given, 8, width=width))
    return lines, imports


KEPT_PRODUCTS = ("aten.mm", "aten.addmm", "aten._grouped_mm")
KEPT_MOVES = ("_c10d_functional.all_reduce", "_c10d_functional.reduce_scatter_tensor")
"""Ops whose results `selective` keeps: products, and what takes an exchange to compute again."""


def batch_mesh(plan: Plan) -> str:
    """An expression for the ranks that share the batch, as a mesh of one dim."""
    named = ", ".join(f'"{name}"' for name in plan.batch_dims)
    return f"one_dim(mesh, {named})" if plan.replicate else f"mesh[{named}]"


def _data_parallel(
    plan: Plan, facts: ModelFacts, fused_linear: bool, originals: bool, width: int
) -> tuple[list[str], list[Snippet], list[Import]]:
    if plan.data_size == 1:
        return [], [], []
    if plan.data != "fsdp":
        raise EmitError(f"data parallelism {plan.data!r} on {plan.mesh}; only fsdp is emitted")
    needs, lines = list[Snippet](), list[str]()
    named = ", ".join(f'"{dim}"' for dim in plan.data_dims)
    over, given = named, [f"mesh=mesh[{named}]"]
    if len(plan.shard_dims) > 1:
        over, given = f'"{"_".join(plan.data_dims)}"', ["mesh=data"]
        lines.append(f"    data = one_dim(mesh, {named})")
        needs.append(SNIPPETS["one_dim"])
    if plan.zero == 2:  # parameters stay gathered from forward to backward
        given.append("reshard_after_forward=False")
    imports = [("torch.distributed.fsdp", "fully_shard")]
    along = next(iter(plan.shard_dims))
    splits = {placed.get(along, "R") for placed in plan.params.values()}
    if fused_linear or not splits <= {"R", "S(0)"}:
        given.append(f"shard_placement_fn=dp_shard({plan.shard_size})")
        needs.append(SNIPPETS["dp_shard"])
    if held_whole(plan, facts):
        reduce = "sum" if plan.loss == "sum" else "avg"
        over = f"({over})" if plan.replicate else over
        names = ["model", "mesh", over, f'"{reduce}"', *["originals"] * originals]
        lines.append(call("whole = whole_over", names, 4, width=width))
        given.append("ignored_params=whole")
        needs.append(SNIPPETS["whole_over"])
    for path in blocks_of(plan, facts):
        lines.append(facts.each_block(path))
        lines.append(call("fully_shard", ["block", *given], 8, width=width))
    lines.append(call("fully_shard", ["model", *given], 4, width=width))
    if plan.loss == "sum":
        lines += _ADDED_UP
        imports.append(("torch.distributed.fsdp", "FSDPModule"))
    return lines, needs, imports


_ADDED_UP = (
    "    for module in model.modules():",
    "        if isinstance(module, FSDPModule):  # the loss is a sum: add gradients up",
    "            module.set_gradient_divide_factor(1.0)",
    "            module.set_force_sum_reduction_for_comms(True)",
)


def changed(facts: ModelFacts, changes: Sequence[Change], width: int) -> list[str]:
    """Lines that make integer attributes and methods of library modules local."""
    lines: list[str] = []
    for change in dict.fromkeys(changes):
        if "*" not in change.path:
            owner = f"model{facts.code(change.path)}"
            lines.append(_change(change, owner, 4, width))
            continue
        head, _, rest = change.path.partition(".*")
        if "*" in rest:
            raise EmitError(f"{change.path}: nested layer lists are not emitted")
        loop = facts.each_block(head)
        if loop not in lines:
            lines.append(loop)
        inner = facts.code(rest.removeprefix("."), f"{head}.*")
        line = _change(change, f"block{inner}", 8, width)
        lines.insert(lines.index(loop) + 1, line)
    return lines


def _change(change: Change, owner: str, indent: int, width: int) -> str:
    if isinstance(change, MethodChange):
        given = [owner, *(json.dumps(t, ensure_ascii=False) for t in (change.name, *change.texts))]
        return call("edited_method", given, indent, width=width)
    if isinstance(change, ArgumentChange):
        at = json.dumps(change.at)
        given = [owner, "tp", at, str(change.dim), *[str(change.group)] * bool(change.group)]
        return call("own_argument", given, indent, width=width)
    if isinstance(change, LengthChange):
        given = [owner, *(f"{name}={change.divisor}" for name in change.names)]
        return call("divide_axes", given, indent, width=width)
    if change.replaced and change.divisor:
        holder, _, place = owner.rpartition(".")
        given = [holder, f'"{place}"', f'"{change.name}"', change.divisor]
        return call("divide_held", given, indent, width=width)
    value = f"//= {change.divisor}" if change.divisor else f"= {change.value}"
    return f"{' ' * indent}{owner}.{change.name} {value}"


def definitions(
    needs: Iterable[Snippet], inline: bool
) -> tuple[tuple[str, ...], tuple[Import, ...]]:
    """What stands in the file, and what it imports, so that these are defined."""
    found = {s.name: s for s in needs}
    if not inline:
        return (), tuple((RUNTIME, name) for name in found)
    wanted, left = set[str](), list(found)
    while left:
        wanted.add(name := left.pop())
        left += set(SNIPPETS[name].needs) - wanted
    pasted = [s for s in SNIPPETS.values() if s.name in wanted]
    return tuple(s.text.strip("\n") for s in pasted), tuple(i for s in pasted for i in s.imports)


def on_mesh(plan: Plan, form: Form) -> tuple[str, list[Snippet], list[Import]]:
    """The line that takes or makes the mesh, and what it needs."""
    sizes = ", ".join(f'"{dim}": {size}' for dim, size in plan.mesh.dims)
    given = ["model", "mesh", f"{{{sizes}}}"]
    if form.inline:
        line = call("mesh = checked_mesh", given, 4, width=form.width)
        return line, [SNIPPETS["checked_mesh"]], []
    line = call("mesh = proved_mesh", [*given, f'"{digest()}"'], 4, width=form.width)
    return line, [], [(RUNTIME, "proved_mesh")]


def parallelize_code(
    plan: Plan,
    facts: ModelFacts,
    changes: Sequence[Change],
    loss: tuple[str, Snippet] | None,
    name: str = "parallelize",
    layouts: Mapping[str, str] | None = None,
    used: Sequence[Snippet] = (),
    form: Form = PLAIN,
) -> Code:
    """The function `name(model, mesh)` for `plan`.

    Args:
        changes: attributes and methods of library modules that become local.
        loss: of one on split logits, the line that installs it and the definition it needs.
        layouts: of every parameter, where the patch is to start the guard.
        used: definitions that edits of the file need.
        form: how wide lines may be, and whether definitions are pasted.

    Raises:
        EmitError: a style that cannot be written; a pasted patch that is to start the guard.
    """
    if layouts and plan.context:
        raise EmitError("a patch that splits the sequence does not start the guard")
    if layouts and form.inline:
        raise EmitError("a patch that starts the guard imports it; leave out --inline")
    line, needs, imports = on_mesh(plan, form)
    imports.append(("torch.distributed.device_mesh", "DeviceMesh"))
    body = [line]
    needs += used
    norms = any(fact.base == "BatchNorm" for fact in facts.modules)
    if norms and plan.batch_ranks > 1:
        body.append(f"    synced_norms(model, {batch_mesh(plan)})")
        needs += [SNIPPETS["synced_norms"], *[SNIPPETS["one_dim"]] * bool(plan.replicate)]
    again, checkpointing = _recomputed(plan, facts, form.width)
    body += again
    imports += checkpointing
    split = bool(plan.tp and plan.tp_size > 1 and plan.modules)
    originals = split and plan.data_size > 1 and held_whole(plan, facts)
    if split:
        if originals:
            body.append("    originals = whole_params(model, mesh)")
            needs.append(SNIPPETS["whole_params"])
        entries, styles, more = entries_of(plan, facts, form.width)
        body.append(f'    tp = mesh["{plan.tp}"]')
        if entries:
            body += ["    plan = {", *entries, "    }", "    parallelize_module(model, tp, plan)"]
            more.append((PARALLEL, "parallelize_module"))
        outer = held_outside(facts, plan).values()
        body += [*ties(facts, plan), *_own(facts, outer)]
        if left_whole(facts, plan):
            body.append("    replicate_rest(model, tp)")
            needs.append(SNIPPETS["replicate_rest"])
        imports += more
        needs += [*(style for _, style in styles), *(SNIPPETS[OWN[m.style]] for m in outer)]
    if plan.context:
        body.append(f'    cp = mesh["{plan.cp}"]')
    if split or plan.context:
        body += changed(facts, changes, form.width)
        needs += [
            SNIPPETS[n]
            for n in ("edited_method", "divide_axes", "divide_held", "own_argument")
            if f" {n}(" in "".join(body)
        ]
    if plan.context:
        body += context_lines(plan, facts, form.width)
        needs.append(SNIPPETS["ContextParallel"])
    if loss:
        body.append(loss[0])
        needs.append(loss[1])
    fused = [s for s in needs if s.name == "FusedColwiseParallel"]
    lines, more_needs, more = _data_parallel(plan, facts, bool(fused), originals, form.width)
    body += lines
    needs += more_needs
    imports += more
    if layouts:
        body.append(f"    watch(model, mesh, {guarding.CONSTANT})")
        imports.append(guarding.IMPORT)
    typed = ["model: " + facts.class_name, "mesh: DeviceMesh | None = None"]
    function = "\n".join(
        [
            COMMENT,
            call(f"def {name}", typed, 0, f" -> {facts.class_name}:", form.width),
            f'    """Parallelize `model` in place on a mesh {plan.mesh}."""',
            *body,
            "    return model",
        ]
    )
    texts, more = definitions(needs, form.inline)
    if layouts:
        texts = (guarding.constant(layouts), *texts)
    return Code(function + "\n", texts, tuple(dict.fromkeys((*imports, *more))))
