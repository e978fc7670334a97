"""Rules for the line of source that is at fault, of those that lead to where numbers go wrong.

What one device runs too is right, and so is the backward that autograd makes of a right forward:
the fault lies in what called it, in what surrounds it, or in what reduces gradients afterwards. An
op that one call of a function has wrong and another right is called wrongly. A group that all its
collectives have wrong is made wrongly. Lines to look at beside it follow from the text alone.
"""

import ast
from collections.abc import Collection, Iterator
from fnmatch import fnmatch
from fractions import Fraction

from shardproof.synthesis.repair.fault import Fault
from shardproof.synthesis.repair.in_source import (
    Function,
    applied,
    base_name,
    call_name,
    group_attributes,
    is_group,
    regions,
)
from shardproof.synthesis.repair.localize import RIGHT_WITH
from shardproof.synthesis.repair.looked import Line, Looked, followed
from shardproof.synthesis.repair.plan_entries import RULES, STYLES
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import leading_to
from shardproof.verifier.kernel.program.types import Source, named_mesh_dims
from shardproof.verifier.kernel.program.where import contains
from shardproof.verifier.ops.classes import LOOKUPS

COUNTS, SETS = "counts the rows", "sets "
REDUCES, AVERAGES, RETURNED = "reduces gradients", "averages gradients", "is the module"
OUTSIDE = (AVERAGES, RETURNED)
"""What is said of what makes a module parallel from outside."""
MOST = 3
"""Entries of a plan that are looked at."""
OFFSETS = {"offset", "q_offset", "k_offset"}
WRAPPERS = ("set_gradient_divide_factor", "DistributedDataParallel", "fully_shard")


def group(looked: Looked) -> Iterator[Fault]:
    """A collective over another mesh dim: where its group comes from."""
    for edit, node in looked.changes:
        if lookup(node.op).kind != "collective" or "mesh_dim" not in dict(edit.attrs):
            continue
        held = group_attributes(looked.module.files)
        for at in looked.own(node.source):
            named = {
                n.attr
                for n in looked.on(at)
                if isinstance(n, ast.Attribute) and n.attr in held and base_name(n) == "self"
            }
            yield from looked.methods(Source(*at))
            if _chosen(looked, at):
                yield looked.fault("the group is given here", *at)
            if named:
                yield from _made(looked, named)
                yield looked.fault("the group is given here", *at)


def _chosen(looked: Looked, at: Line) -> bool:
    """Whether a call on a line is given a group that comes from nothing that its function has."""
    _, function = looked.function(at)
    given = {"self", "ctx"}
    for node in ast.walk(function) if function is not None else ():
        given |= {node.arg} if isinstance(node, ast.arg) else set()
        given |= (
            {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()
        )
    for call in (n for n in looked.on(at) if isinstance(n, ast.Call)):
        groups = [k.value for k in call.keywords if k.arg == "group"]
        for chosen in (*groups, *filter(is_group, call.args)):
            if not given & {n.id for n in ast.walk(chosen) if isinstance(n, ast.Name)}:
                return True
    return False


def _made(looked: Looked, attributes: Collection[str]) -> Iterator[Fault]:
    """Where attributes of modules are set."""
    for file, _, node, own in looked.assigned(attributes):
        yield looked.fault(f"{SETS}{own}", file, node)


def numbers(looked: Looked) -> Iterator[Fault]:
    """Rows that a rank looks up in a table of which it has some: where they are counted."""
    reason, sources = looked.reason, list[Source]()
    forward = looked.module.only_gradients and not looked.behind(looked.place)
    window = any(f" {o}=" in reason for o in OFFSETS) or "the index is" in reason
    window = window or ("index window" in reason and not forward)
    sources += [looked.place] if window else []
    sources += [n.source for e, n in looked.changes if OFFSETS & dict(e.attrs).keys()]
    for at in (at for source in sources for at in looked.own(source)[:1]):
        counted, read = _counted(looked, at)
        sizes, held = _bounds(looked, counted)
        odd = held - {0, *sizes} if sizes else set[int]()
        file = at[0]
        literal = [line for line in sorted(counted) if odd & _literals(looked, (file, line))]
        ends = held - {0} if len(held) > 2 else held
        bounded = not (sizes and held) or max(ends) - min(ends) in sizes
        if window and not literal and not (" index " in reason and bounded):
            yield from _made(looked, read)
        for line in (literal or sorted(counted))[:1]:
            yield looked.fault(COUNTS, file, line)


def _literals(looked: Looked, at: Line) -> set[object]:
    """The constants that are written on a line."""
    return {n.value for n in looked.on(at) if isinstance(n, ast.Constant)}


def _counted(looked: Looked, at: Line) -> tuple[set[int], set[str]]:
    """Lines of a function that make the integers that a line reads, and the attributes of the
    module that they read."""
    _, function = looked.function(at)
    floats = {
        n.source.line
        for n in looked.program.nodes
        if n.source.file == at[0] and looked.program.types[n.outputs[0]].is_float
    }
    made, read = followed(function, looked.on(at))
    return {n.lineno for n in made} - floats, read - group_attributes(looked.module.files)


def _bounds(looked: Looked, lines: Collection[int]) -> tuple[set[int], set[int]]:
    """How many rows a rank has of a table, and the numbers that lines compare with."""
    program, place = looked.program, looked.place
    first = program.mesh.coords()[0]
    sizes: set[int] = {
        program.types[n.inputs[0]].shape[lookup(n.op).with_defaults(n.attrs)["dim"]]
        for n in program.nodes
        if n.source == place and n.op in LOOKUPS
    }
    held = {
        int(_number(n.attrs["value"]) or 0)
        for n in program.nodes
        if n.op == "full" and (n.source.file, contains(n.where, first)) == (place.file, True)
        if n.source.line in lines
    }
    return sizes, held


def constants(looked: Looked) -> Iterator[Fault]:
    """A number that the model has otherwise, in a line that it runs too: where it is set."""
    for edit, node in looked.changes:
        if (node.source.file, node.source.line) not in looked.module.shared:
            continue
        ours = {_number(node.attrs.get(name)) for name, _ in edit.attrs} - {None}
        for file, _, at in looked.walk():
            if isinstance(at, ast.Assign) and isinstance(at.value, ast.Constant):
                held = _number(at.value.value)
                if held is not None and ours & {held, 1 - held}:
                    yield looked.fault(f"{SETS}{ast.unparse(at.targets[0])}", file, at)


def _number(value: object) -> Fraction | None:
    if isinstance(value, int | float | Fraction) and not isinstance(value, bool):
        return Fraction(value)
    return None


def levelled(looked: Looked) -> Iterator[Fault]:
    """A number by which ranks should differ, read where they go wrong: where it is set to one."""
    for at in [] if looked.changes else looked.own(looked.place)[:1]:
        for name in sorted(_counted(looked, at)[1]):
            found = [(file, n) for file, _, n, _ in looked.assigned({name})]
            if any("rank" in ast.unparse(n.value) for _, n in found):
                for file, node in found:
                    if isinstance(node.value, ast.Constant):
                        yield looked.fault(f"{SETS}{name} on all ranks alike", file, node)


def parted(looked: Looked) -> Iterator[Fault]:
    """Where ranks part, of which some go wrong with a line that others have right."""
    mesh = looked.program.mesh
    here = [n for n in looked.program.nodes if n.source == looked.place]
    coords = [mesh.coords()[r] for r in looked.spared]
    if looked.changes or not any(contains(n.where, at) for n in here for at in coords):
        return
    for file, line in looked.own(looked.place):
        inside, function = looked.function((file, line))
        for node in ast.walk(function) if function is not None else ():
            if not isinstance(node, ast.If) or inside.function(node) is not function:
                continue
            if node.lineno < line <= (node.end_lineno or 0) and "rank" in ast.unparse(node.test):
                yield looked.fault("ranks part here", file, node)


def called(looked: Looked) -> Iterator[Fault]:
    """A function that does nothing with its group, called in the one that goes wrong."""
    for at in [] if looked.changes else looked.own(looked.place)[:1]:
        _, around = looked.function(at)
        names = {call_name(n) for n in ast.walk(around)} if around is not None else set[str]()
        names -= {"forward", "backward"}  # of modules and tensors
        yield from (fault for function, fault in _idle(looked) if function.name in names)


def ahead(looked: Looked) -> Iterator[Fault]:
    """What computes outputs."""
    if looked.module.only_gradients:
        return
    yield from _silent(looked, "forward")
    if looked.ends and not looked.changes:
        lines = looked.own(looked.place)
        for at in lines[:1] if looked.module.step else lines[-1:]:
            yield looked.fault("something lacks behind this", *at)
    lines = [looked.surfaced(node) for node in (*looked.nodes, *looked.strays[:1])]
    lines += looked.own(looked.place)[:1]
    for at in reversed(lines) if looked.module.step else lines:
        if at is not None:
            yield looked.fault("numbers go wrong here", *at)


def _silent(looked: Looked, method: str) -> Iterator[Fault]:
    """A function that is given a group and does nothing with it, where a sum lacks."""
    other = {"forward": "backward", "backward": "forward"}[method]
    for function, fault in _idle(looked) if looked.pending else ():
        if function.name != other:
            yield fault


def _idle(looked: Looked) -> Iterator[tuple[Function, Fault]]:
    """Functions that do nothing with a group that they are given, or that their forward keeps."""
    for file, _, function in looked.walk():
        if not isinstance(function, Function) or function.name == "__init__":
            continue
        names = {a.arg for a in function.args.args if "group" in a.arg}
        unread = sorted(n for n in names if not _read(function, n))
        owner = file.owner(function)
        if function.name == "backward" and owner is not None:
            unread = [n for n in _kept(owner) if not _taken(function, n)]
        if unread:
            yield function, looked.fault(f"does nothing with {unread[0]}", file, function.body[-1])


def _kept(owner: ast.ClassDef) -> list[str]:
    """Groups that a forward hands to its backward."""
    return [
        n.attr
        for n in ast.walk(owner)
        if isinstance(n, ast.Attribute)
        and isinstance(n.ctx, ast.Store)
        and base_name(n) == "ctx"
        and "group" in n.attr
    ]


def _taken(backward: Function, name: str) -> bool:
    """Whether a backward reads what its forward kept, or hands all of it on."""
    bases = [n.value for n in ast.walk(backward) if isinstance(n, ast.Attribute)]
    whole = [n for n in ast.walk(backward) if isinstance(n, ast.Name) and n not in bases]
    read = (n.attr for n in ast.walk(backward) if isinstance(n, ast.Attribute))
    return name in read or any(n.id == "ctx" for n in whole)


def _read(node: ast.AST, name: str) -> bool:
    return any(
        name == (n.id if isinstance(n, ast.Name) else n.attr) and isinstance(n.ctx, ast.Load)
        for n in ast.walk(node)
        if isinstance(n, ast.Name | ast.Attribute)
    )


def back(looked: Looked) -> Iterator[Fault]:
    """What computes gradients, where outputs are right."""
    if not looked.module.only_gradients:
        return
    if looked.behind(looked.place) and not looked.changes:
        yield looked.fault("gradients go wrong here", *looked.own(looked.place)[0])
    here = [n for n in looked.program.nodes if n.source == looked.place]
    for node in (*looked.nodes, *(here if looked.reason.startswith(RIGHT_WITH) else ())):
        by_autograd = lookup(node.op).kind == "collective" and not looked.behind(node.source)
        for at in looked.own(node.source)[:1] if by_autograd else ():
            yield looked.fault("gradients go wrong here", *at)
    for node in (*looked.nodes, *(() if looked.changes else looked.strays)):
        at = looked.surfaced(node) if looked.behind(node.source) else None
        if at is not None:
            yield looked.fault("gradients go wrong here", *at)
    yield from _silent(looked, "backward")
    lacking = [n for e, n in looked.changes if e.kind == "after"]
    if not looked.changes and looked.pending:
        lacking = list(looked.strays[:1])
    returned = {o.value for o in looked.program.outputs}
    for node in lacking:
        at = looked.surfaced(node)
        if node.outputs[0] not in returned and at is not None:
            yield looked.fault("the gradient of this is not summed", *at)
    for node in looked.program.nodes:
        over = {d for k, v in node.attrs.items() for d in named_mesh_dims(k, v)}
        if over & looked.module.rows and looked.afterward(node.source) and not lacking:
            yield looked.fault(REDUCES, *looked.own(node.source)[0])
    for _, file, node in looked.afterwards():
        yield looked.fault(REDUCES, file, _body(node) if isinstance(node, Function) else node)
    for file, _, node in looked.walk() if looked.pending else ():
        if isinstance(node, ast.Call) and call_name(node) == "to_local" and not node.keywords:
            yield looked.fault("lays its gradient out as its value: no grad_placements", file, node)
    for node in looked.strays if looked.changes else ():
        if looked.behind(node.source):
            yield looked.fault("gradients go wrong here", *looked.own(node.source)[0])


def _body(function: Function) -> ast.stmt:
    """The first statement of a function that is no text."""
    text = ast.get_docstring(function) is not None and len(function.body) > 1
    return function.body[1 if text else 0]


def lost_result(looked: Looked) -> Iterator[Fault]:
    """A collective of which one result is read, and of another time that it is called none; in a
    step one that is written there. What is left in a gradient is there for whoever reads it."""
    nodes = looked.traced.nodes
    read = {n.outputs for n in leading_to({o.value for o in looked.traced.outputs}, nodes)}
    used = {(n.op, n.source) for n in nodes if n.outputs in read}
    for node in nodes:
        lost = node.outputs not in read and (node.op, node.source) in used
        if lost and lookup(node.op).kind == "collective" and not looked.behind(node.source):
            for at in looked.own(node.source)[:1]:
                named = {n.attr for n in looked.on(at) if isinstance(n, ast.Attribute)}
                by_hand = talks(frozenset(map(call_name, looked.on(at))))
                if "grad" not in named and (by_hand or not looked.module.step):
                    yield looked.fault("some results of this are not used", *at)


def within(looked: Looked) -> Iterator[Fault]:
    """What the module has in the place of a method that a line of the model calls."""
    for node in (*looked.nodes, *looked.strays[:1]):
        yield from looked.methods(node.source)


def around(looked: Looked) -> Iterator[Fault]:
    """What makes a module parallel from outside: what averages gradients, a plan, what wraps it."""
    wrapped = list(_wrappers(looked))
    if looked.module.only_gradients:
        yield from (fault for fault in wrapped if fault.why == AVERAGES)
    yield from in_plans(looked)
    yield from wrapped


def _wrappers(looked: Looked) -> Iterator[Fault]:
    """What makes a module average its gradients; else what the function of the target returns."""
    calls = [(f, n) for f, _, n in looked.walk() if isinstance(n, ast.Call) and call_name(n)]
    for name in WRAPPERS:
        yield from (looked.fault(AVERAGES, f, n) for f, n in calls if f.calls(n) == name)
    for file, node in calls:
        if any(k.arg == "scale_grads" for k in node.keywords):
            yield looked.fault(AVERAGES, file, node)
    file, made = looked.reached.get(looked.module.target, (None, None))
    if file is not None and isinstance(made, Function):
        yield looked.fault(RETURNED, file, made.body[-1])
    elif file is not None and made is not None and looked.place.file not in looked.module.files:
        yield looked.fault(RETURNED, file, made)


def in_plans(looked: Looked) -> Iterator[Fault]:
    """The entries of plans for the modules whose numbers are wrong; else the plan."""
    wrong = [p.rpartition(".")[0] for p in looked.module.wrong] or [looked.place.module]
    for file, _, plan in looked.walk():
        if not isinstance(plan, ast.Dict):
            continue
        if not any(call_name(v) in STYLES or _word(v) in RULES for v in plan.values):
            continue
        keys = [k for k in plan.keys if k is not None and any(_names(k, m) for m in wrong)]
        for key in keys[:MOST]:
            yield looked.fault("is its entry in the plan", file, key)
        if not keys:
            yield looked.fault("is the plan", file, plan)


def _word(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _names(key: ast.expr, module: str) -> bool:
    """Whether a key of a plan is a module, or a pattern of it."""
    pattern = str(_word(key))
    return fnmatch(module, pattern) or fnmatch(module, f"*.{pattern}")


def callers(looked: Looked) -> Iterator[Fault]:
    """Calls of the function, or of the autograd function, that the place is in."""
    file, here = looked.here()
    inside = {
        n.name
        for node in here[:1]
        for n in (file.up(node) if file is not None else ())
        if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name in looked.reached
    }
    for other, _, node in looked.walk():
        name = applied(node) or call_name(node)
        if isinstance(node, ast.Call) and name in inside:
            yield looked.fault(f"calls {name}", other, node)


def inside(looked: Looked) -> Iterator[Fault]:
    """Autograd functions that the place applies, and those that call no collective at all."""
    file, here = looked.here()
    known = regions(looked.module.files).values() if file is not None else ()
    silent = [r.name for r in known if not talks(r.forward | r.backward)]
    method = "backward" if looked.module.only_gradients else "forward"
    for name in (n for n in [*silent, *filter(None, map(applied, here))] if n in looked.reached):
        other, made = looked.reached[name]
        for node in ast.walk(made):
            if isinstance(node, ast.FunctionDef) and node.name == method:
                yield looked.fault(f"{name}.{method}", other, node.body[0])


def talks(names: frozenset[str]) -> bool:
    """Whether names of calls are of collectives."""
    words = ("reduce", "gather", "scatter", "all_to_all", "send", "recv", "broadcast", "exchange")
    return any(word in name for name in names for word in words)


def methods(looked: Looked) -> Iterator[Fault]:
    """Methods of the module that the place calls."""
    yield from looked.methods(looked.place)


def after(looked: Looked) -> Iterator[Fault]:
    """What changes gradients after they were computed."""
    if looked.module.wrong and looked.module.only_gradients:
        yield from (looked.fault(why, file, node) for why, file, node in looked.afterwards())


def set_at(looked: Looked) -> Iterator[Fault]:
    """Where attributes that the place reads, or local values that it reads are made of, are set to
    what is no module."""
    file, here = looked.here()
    function = file.function(here[0]) if file is not None and here else None
    for other, made, node, own in looked.assigned(followed(function, here)[1]):
        if isinstance(made, ast.ClassDef) and not _builds(node.value):
            yield looked.fault(f"{SETS}{own}", other, node)


def _builds(value: ast.expr) -> bool:
    """Whether a value is a module, or several."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(call_name(p)[:1].isupper() for p in parts)
