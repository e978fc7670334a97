"""Rules for the line of a training step that is at fault, of which the model's file has another."""

import ast
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from shardproof.synthesis.repair.fault import Fault
from shardproof.synthesis.repair.in_source import Function, SourceFile, base_name, call_name
from shardproof.synthesis.repair.looked import Looked, Reached, followed, reached
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, leading_to
from shardproof.verifier.kernel.program.types import named_mesh_dims

SYNCS = {"no_sync": "DistributedDataParallel", "set_requires_gradient_sync": "fully_shard"}
"""What decides whether a wrapper reduces the gradients of a backward."""
Value = Fraction | str
Given = tuple[str, str | int]
"""A name that is called, or an operator, and the place of what it is given."""


def _of_model(looked: Looked) -> Reached:
    """What the model on one device is made of, and its step."""
    module = looked.module
    return reached(module.model_files, (module.model, module.step_of_one) if module.step else ())


def lacking(looked: Looked) -> Iterator[Fault]:
    """Where a call lacks that the model's step makes for what it does, as `optimizer.step()`; or
    comes too early, where outputs stay what they were."""
    module, none = looked.module, (None, None)
    _, theirs = _of_model(looked).get(module.step_of_one, none)
    file, ours = looked.reached.get(module.step, none)
    if file is None or not isinstance(ours, Function) or not isinstance(theirs, Function):
        return
    wanted, have = _calls(theirs), _calls(ours)
    lines = {name: call.end_lineno or call.lineno for name, call, _ in have}
    fewer = Counter(name for name, _, _ in wanted) - Counter(name for name, _, _ in have)
    verbs, inlined = _own_verbs(looked), _not_taken(looked)
    for at, (name, _, effect) in enumerate(wanted):
        plain = _word(name)
        if effect and name in fewer and _verb(plain) not in verbs and plain not in inlined:
            near = [n for n, _, _ in (*reversed(wanted[:at]), *wanted[at:]) if n in lines]
            later = [lines[n] for n, _, _ in wanted[at + 1 :] if n in lines]
            for other in near[:1]:
                line = ours.body[0].lineno
                if any(n == other for n, _, _ in wanted[:at]):
                    end = min(later, default=ours.end_lineno)
                    line = _behind_gradients(ours, lines[other], end)
                yield looked.fault(f"the model calls {plain} here", file, line)
    if not looked.place.file:  # an output is what it was before, or was never computed
        both = {name for name, _, effect in wanted if effect} & lines.keys()
        orders = ([name for name, _, _ in calls if name in both] for calls in (wanted, have))
        for right, name in zip(*orders, strict=False):
            if right != name:
                yield looked.fault(f"the model calls {_word(right)} before", file, lines[name])


def _behind_gradients(function: Function, line: int, end: int | None) -> int:
    """The last line, of those from one to another, that does something with gradients."""
    held = (n for n in ast.walk(function) if isinstance(n, ast.Attribute) and n.attr == "grad")
    return max([line, *(n.lineno for n in held if line < n.lineno < (end or 0))])


def _own_verbs(looked: Looked) -> set[str]:
    """What functions that the module has and calls are named for, as `clip_by_norm` for `clip`."""
    walked = [node for _, _, node in looked.walk()]
    called = {call_name(node) for node in walked if isinstance(node, ast.Call)}
    made = {node.name for node in walked if isinstance(node, Function)}
    return {_verb(name) for name in made & called}


def _not_taken(looked: Looked) -> set[str]:
    """Functions of the model that the module does not import: it has their lines itself."""
    nodes = (node for file in looked.module.files.values() for node in ast.walk(file.tree))
    taken = {a.name for node in nodes if isinstance(node, ast.ImportFrom) for a in node.names}
    return _of_model(looked).keys() - looked.reached.keys() - taken


def _verb(name: str) -> str:
    return name.strip("_").partition("_")[0]


def _word(name: str) -> str:
    return name.rpartition(" ")[2]


def _calls(function: Function) -> list[tuple[str, ast.Call, bool]]:
    """The calls of a function in order: the parameter that is called and the name, the call, and
    whether it is made for what it does."""
    params = [a.arg for a in function.args.args]
    calls = [n for n in ast.walk(function) if isinstance(n, ast.Call) and call_name(n)]
    calls.sort(key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0))
    done = [n.value for n in ast.walk(function) if isinstance(n, ast.Expr)]
    out: list[tuple[str, ast.Call, bool]] = []
    for call in calls:
        name, base = call_name(call), base_name(call.func)
        said = f"{params.index(base)} {name}" if base in params else name
        out.append((said, call, call in done or name.endswith("_")))
    return out


def given_otherwise(looked: Looked) -> Iterator[Fault]:
    """A number that a call or an operator of the model is given otherwise, as a learning rate; or a
    number or choice that a class of the model is given by name, and here is another or none. What
    is defined alike in both is right."""
    theirs: dict[Given, set[Value]] = {}
    for _, given, number, _ in _numbers(_of_model(looked)):
        theirs.setdefault(given, set()).add(number)
    apart = _without(looked.reached, _of_model(looked))
    ours = list(_numbers(apart)) if theirs else []
    for file, given, number, node in ours:
        if given in theirs and number not in theirs[given]:
            yield looked.fault(f"{given[0]} is given another number", file, node)
    named: dict[str, set[Value]] = {}
    for name, key in theirs:
        if isinstance(key, str) and name[:1].isupper():
            named.setdefault(key, set()).update(theirs[name, key])
    for file, (name, key), number, node in ours:
        if name[:1].isupper() and isinstance(key, str) and number not in named.get(key, {number}):
            yield looked.fault(f"{key} is another number", file, node)
    walked = ((f, n) for f, made in apart.values() for n in ast.walk(made))
    calls = [(f, n) for f, n in walked if isinstance(n, ast.Call)]
    held = {k.arg for _, call in calls for k in call.keywords}
    for _, (owner, key), _, _ in _numbers(_without(_of_model(looked), looked.reached)):
        if key not in named or key in held:
            continue
        known = {k for n, k in theirs if n == owner}
        for file, call in calls:
            name, own = call_name(call), {k.arg for k in call.keywords}
            if name == owner or (name[:1].isupper() and known & own):
                yield looked.fault(f"{name} is not given {key}", file, call)


def _without(definitions: Reached, others: Reached) -> Reached:
    """The definitions that are not alike in others."""
    alike = {ast.dump(made) for _, made in others.values()}
    return {n: (f, made) for n, (f, made) in definitions.items() if ast.dump(made) not in alike}


def _numbers(definitions: Reached) -> Iterator[tuple[SourceFile, Given, Value, ast.Constant]]:
    """The numbers that calls and operators are given, and what classes are told to do or not."""
    for file, made in definitions.values():
        for node in ast.walk(made):
            parts: list[tuple[Given, ast.expr]] = []
            if isinstance(node, ast.Call):
                parts += [((call_name(node), n), part) for n, part in enumerate(node.args)]
                parts += [((call_name(node), k.arg), k.value) for k in node.keywords if k.arg]
            elif isinstance(node, ast.BinOp):
                parts.append(((type(node.op).__name__, 1), node.right))
            for given, part in parts:
                for each in part.elts if isinstance(part, ast.Tuple) else [part]:
                    if not isinstance(each, ast.Constant):
                        continue
                    if type(each.value) in (int, float):
                        yield file, given, Fraction(str(each.value)), each
                    elif isinstance(each.value, bool) and given[0][:1].isupper():
                        yield file, given, str(each.value), each


def synced(looked: Looked) -> Iterator[Fault]:
    """What decides which micro-batches reduce their gradients, where a wrapper reduces them and a
    sum over ranks lacks."""
    if not looked.module.step or not looked.pending or _reduced_by_hand(looked):
        return
    walked = list(looked.walk())
    called = {call_name(node) for _, _, node in walked}
    for file, _, node in walked:
        if isinstance(node, ast.Call) and SYNCS.get(call_name(node)) in called:
            test = next((n.test for n in file.up(node) if isinstance(n, ast.IfExp | ast.If)), node)
            made, _ = followed(file.function(node), [test])
            sets = [n for n in made if not isinstance(getattr(n, "value", None), ast.Call)]
            for line in sets[:1] or [node]:
                yield looked.fault("says which micro-batches reduce gradients", file, line)


def unreduced(looked: Looked) -> Iterator[Fault]:
    """The last line that changes gradients of the rows of ranks, or the backward, where nothing
    sums them over ranks."""
    if looked.module.step and looked.module.rows and not _reductions(looked):
        walked = [(file, node) for file, _, node in looked.walk()]
        changed = [(f, n) for f, n in walked if isinstance(n, ast.Attribute) and n.attr == "grad"]
        run = [(f, n) for f, n in walked if call_name(n) == "backward"]
        for file, node in (*changed[-1:], *run[-1:]):
            yield looked.fault("gradients are not reduced", file, node)


def _reduced_by_hand(looked: Looked) -> bool:
    """Whether a line of the module reduces over mesh dims that the rows are split over."""
    at = [at for node in _reductions(looked) for at in looked.own(node.source)[:1]]
    return any("reduce" in call_name(n) for line in at for n in looked.on(line))


def _reductions(looked: Looked) -> list[Node]:
    """The collectives over mesh dims that the rows are split over, but those of parameters, and of
    a loss that is only returned."""
    weights = {i.name for i in looked.program.inputs if i.role == "param"}
    left = [o.value for o in looked.program.outputs if o.role != "loss"]
    return [
        node
        for node in leading_to(left, looked.program.nodes)
        if lookup(node.op).kind == "collective"
        and weights.isdisjoint(node.inputs)
        and looked.module.rows.intersection(
            d for k, v in node.attrs.items() for d in named_mesh_dims(k, v)
        )
    ]
