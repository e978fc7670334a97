"""Rules for the line of a training step that is at fault, of which the model's file has another."""

import ast
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from shardproof.synthesis.frontends.torch.ranks.pairing import STATE
from shardproof.synthesis.repair.culprits import talks
from shardproof.synthesis.repair.fault import Fault
from shardproof.synthesis.repair.in_source import (
    Function,
    SourceFile,
    applied,
    base_name,
    call_name,
    regions,
)
from shardproof.synthesis.repair.localize import RIGHT_WITH
from shardproof.synthesis.repair.looked import Line, Looked, Reached, followed, reached
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, leading_to
from shardproof.verifier.kernel.program.types import named_mesh_dims
from shardproof.verifier.ops.classes import CUTS

SYNCS = {"no_sync": "DistributedDataParallel", "set_requires_gradient_sync": "fully_shard"}
"""What decides whether a wrapper reduces the gradients of a backward."""
CLEARS = "zero_grad"
REPEATED = ("backward",)
"""What a step calls for each part of the batch."""
PASSED = "does not reach what is wrong"
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
    verbs, inlined = _own_verbs(looked, ours), _not_taken(looked) | _called(looked, ours)
    alike = len(theirs.args.args) == len(ours.args.args)
    known = looked.reason.startswith(RIGHT_WITH) or not alike
    for at, (name, _, effect) in enumerate(() if known else wanted):
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
    counts = Counter(n for n, _, _ in wanted), Counter(n for n, _, _ in have)
    harmless = CLEARS if looked.place.file else ""
    once = {n for n, _, effect in wanted if effect and counts[0][n] == 1 and _word(n) != harmless}
    for name, call, effect in reversed(have):
        if effect and name in once and counts[1][name] > 1 and _word(name) not in REPEATED:
            yield looked.fault(f"the model calls {_word(name)} once", file, call)
    both = {name for name in once if counts[1][name] == 1}
    orders = ([name for name, _, _ in calls if name in both] for calls in (wanted, have))
    for right, name in zip(*orders, strict=False):
        if right != name:
            yield looked.fault(f"the model calls {_word(right)} before", file, lines[name])
            break


def _behind_gradients(function: Function, line: int, end: int | None) -> int:
    """The last line, of those from one to another, that does something with gradients."""
    held = (n for n in ast.walk(function) if isinstance(n, ast.Attribute) and n.attr == "grad")
    return max([line, *(n.lineno for n in held if line < n.lineno < (end or 0))])


def _own_verbs(looked: Looked, step: Function) -> set[str]:
    """What functions that a step calls are named for, as `clip_by_norm` for `clip`; and what it
    does in other words."""
    out = {_verb(function.name) for function in _inner(looked, step)}
    for node in (n for f in (step, *_inner(looked, step)) for n in ast.walk(f)):
        if isinstance(node, ast.Assign):
            out |= {_verb(CLEARS) for t in node.targets if getattr(t, "attr", "") == "grad"}
        by_hand = isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult)
        out |= {"clip"} if by_hand or call_name(node) == "mul_" else set()
    return out


def _called(looked: Looked, step: Function) -> set[str]:
    """The names that functions call which a step calls."""
    return {call_name(n) for function in _inner(looked, step) for n in ast.walk(function)}


def _inner(looked: Looked, step: Function) -> list[Function]:
    """The functions of the module that a step calls, and those that they do."""
    made = {n.name: n for _, _, n in looked.walk() if isinstance(n, Function)}
    out, ahead = list[Function](), [step]
    while ahead:
        for node in ast.walk(ahead.pop()):
            found = made.get(call_name(node))
            if found is not None and found not in out:
                out.append(found)
                ahead.append(found)
    return out


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
    for at in looked.own(looked.place)[:1]:
        _, function = looked.function(at)
        held = {getattr(n, "attr", "") for n in ast.walk(function)} if function is not None else ()
        if "grad" in held and not looked.sound(at) and "backward" not in _calls_on(looked, at):
            return  # what ranks compute of gradients lacks the sum
    walked = list(looked.walk())
    called = {file.calls(node) for file, _, node in walked}
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
    nodes = looked.traced.nodes
    logged = leading_to([o.value for o in looked.traced.outputs if o.role == "loss"], nodes)
    kept = {n.outputs for n in logged}
    by_hand = any(lookup(n.op).kind == "collective" and n.outputs not in kept for n in nodes)
    if looked.module.step and looked.module.rows and not _reductions(looked) and not by_hand:
        walked = [(file, node) for file, _, node in looked.walk()]
        changed = [(f, n) for f, n in walked if isinstance(n, ast.Attribute) and n.attr == "grad"]
        run = [(f, n) for f, n in walked if call_name(n) == "backward"]
        for file, node in (*changed[-1:], *run[-1:]):
            yield looked.fault("gradients are not reduced", file, node)


def behind(looked: Looked) -> Iterator[Fault]:
    """The lines that lead to what is returned, where it is wrong and all that the step trains is
    right."""
    states = [o for o in looked.program.outputs if o.path.startswith(STATE)]
    if not states or any(output_key(o) in looked.wrong for o in states):
        return
    ends = [o.value for o in looked.program.outputs if output_key(o) in looked.wrong]
    for node in leading_to(ends, looked.program.nodes):
        for at in looked.own(node.source)[:1]:
            if not looked.sound(at):
                yield looked.fault("leads to what is wrong alone", *at)


def shared(looked: Looked) -> Iterator[Fault]:
    """The line where the shares begin of which a sum lacks: what computes outputs; of gradients,
    where ranks split more than rows, also the backward of the function that it applies, and what it
    calls that lays gradients out as values."""
    if looked.begins is None:
        return
    led = looked.own(looked.begins.source)
    forward = not any("backward" in _calls_on(looked, at) for at in led)
    if looked.by_rows and not forward:
        return
    known = regions(looked.module.files)
    for at in led[:1]:
        called = {name for n in looked.on(at) if (name := applied(n) or call_name(n))}
        for file, made, node in looked.walk() if not forward else ():
            if not isinstance(node, Function):
                continue
            name = getattr(made, "name", "")
            silent = name in known and not talks(known[name].backward)
            if node.name == "backward" and name in called and silent:
                yield looked.fault("does not sum gradients", file, node.body[-1])
            for call in (n for n in ast.walk(node) if node.name in called):
                plain = isinstance(call, ast.Call) and not call.keywords
                if plain and call_name(call) == "to_local":
                    yield looked.fault("lays its gradient out as its value", file, call)
        yield looked.fault("a sum over ranks lacks after this", *at)


def untouched(looked: Looked) -> Iterator[Fault]:
    """Lines on the way to most parameters that are right and to none that is wrong."""
    right, wrong = list[set[Line]](), list[set[Line]]()
    nodes = looked.program.nodes
    returned = [o.value for o in looked.program.outputs if not o.path.startswith(STATE)]
    ahead = {n.outputs for n in leading_to(returned, nodes)}
    every = {at for n in nodes for at in looked.own(n.source)}
    by_autograd = {at for at in every if "backward" in _calls_on(looked, at)}
    for out in looked.program.outputs:
        if out.path.startswith(STATE) and out.path.removeprefix(STATE) in looked.module.params:
            after = (n for n in leading_to([out.value], nodes) if n.outputs not in ahead)
            led = [looked.own(n.source) for n in after]
            lines = {own[0] for own in led if own and by_autograd.isdisjoint(own)}
            (wrong if output_key(out) in looked.wrong else right).append(lines)
    if not right or not wrong:
        return
    counts = Counter(at for lines in right for at in lines)
    most = {at for at, count in counts.items() if 2 * count > len(right)}
    for at in sorted(most.difference(*wrong)):
        if not looked.sound(at):
            yield from _chosen(looked, at)
            yield looked.fault(PASSED, *at)


def _chosen(looked: Looked, at: Line) -> Iterator[Fault]:
    """Where what the function of a line does is asked for, if it does that to all that it is given:
    its calls, or those that register it as a hook, out to a function that chooses."""
    ahead, seen = [looked.function(at)[1]], set[str]()
    for function in ahead:
        if function is None or function.name in seen or any(map(_chooses, ast.walk(function))):
            continue
        seen.add(function.name)
        for file, _, node in looked.walk():
            hooks = isinstance(node, ast.Call) and call_name(node).startswith("register_")
            if call_name(node) != function.name and not (hooks and function.name in _names(node)):
                continue
            around = file.function(node)
            ends = (looked.module.step, looked.module.target)
            if around is None or around.name in ends or any(map(_chooses, ast.walk(around))):
                yield looked.fault(PASSED, file, node)
            ahead.append(around)


def _chooses(node: ast.AST) -> bool:
    return isinstance(node, ast.If) or bool(isinstance(node, ast.comprehension) and node.ifs)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def early(looked: Looked) -> Iterator[Fault]:
    """The place, where it reads gradients of the rows of ranks that are reduced after it alone."""
    start = looked.program.producers().get(looked.value)
    if not looked.by_rows or not looked.pending or start is None or start.op in CUTS:
        return
    for node in _reductions(looked):
        if any(n.outputs == start.outputs for n in leading_to(node.inputs, looked.program.nodes)):
            for at in looked.own(looked.place)[:1]:
                yield looked.fault("gradients are reduced after this", *at)


def rated(looked: Looked) -> Iterator[Fault]:
    """Where an optimizer gets numbers that the model's has not for the same parameters: what
    chooses the parameters where only these differ, what names the number, what makes it; where
    both begin alike, a scheduler that steps in a loop."""
    kinds = {rate.kind for rate in looked.rates}
    if not kinds:
        return
    lines: list[tuple[SourceFile, ast.AST]] = []
    groups: list[tuple[SourceFile, ast.AST]] = []
    every = [(file, made, node) for file, made, node in looked.walk()]
    for file, made, node in every:
        named = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
        if isinstance(node, ast.Dict):
            keys = zip(node.keys, node.values, strict=True)
            named = {k.value: v for k, v in keys if isinstance(k, ast.Constant)}
        values = [v for k, v in named.items() if k in kinds]
        groups += [(file, node)] if isinstance(node, ast.Dict) and "params" in named else []
        chosen = [n for n in ast.walk(made) if isinstance(n, ast.If)]
        if values and all(rate.elsewhere for rate in looked.rates):
            lines += ((file, n.test) for n in chosen)
        lines += (part for v in values if isinstance(v, ast.Name) for part in _named(looked, v))
        lines += ((file, value) for value in values)
        lines += (part for value in values for part in _named(looked, value))
    theirs = {ast.unparse(n) for _, made in _of_model(looked).values() for n in ast.walk(made)}
    for file, _, node in every:
        if _of_optim(file, node):
            lines += _named(looked, node)
            lines += [(file, node)] if ast.unparse(node) not in theirs else []
    making = [made for file, made, n in every if _of_optim(file, n)]
    inside = {made.name for made in making if isinstance(made, Function)}
    if not all(rate.later for rate in looked.rates):
        lines += groups + [(file, n) for file, _, n in every if call_name(n) in inside]
    else:
        steps = [(f, n) for f, _, n in every if call_name(n) == "step"]
        looped = [(f, n) for f, n in steps if any(isinstance(up, ast.For) for up in f.up(n))]
        lines = looped + lines
    for file, node in lines:
        if not looked.of_model(file, getattr(node, "lineno", 0)):
            yield looked.fault("the optimizer has other numbers for some parameters", file, node)


def _of_optim(file: SourceFile, node: ast.AST) -> bool:
    """Whether something makes an optimizer or a scheduler of PyTorch."""
    if not isinstance(node, ast.Call):
        return False
    word = ast.unparse(node.func)
    taken = (n for n in ast.walk(file.tree) if isinstance(n, ast.ImportFrom))
    rooms = [n.names for n in taken if (n.module or "").startswith("torch.optim")]
    return "optim." in word or word in {a.asname or a.name for names in rooms for a in names}


def _named(looked: Looked, node: ast.AST) -> list[tuple[SourceFile, ast.AST]]:
    """Where values and functions of the module are made that something names, and the model has
    otherwise."""
    apart = _without(looked.reached, _of_model(looked))
    made = (apart[n] for n in sorted(_names(node) & apart.keys()))
    return [(f, n.body[-1] if isinstance(n, Function) else n) for f, n in made]


def _calls_on(looked: Looked, at: Line) -> set[str]:
    return {call_name(node) for node in looked.on(at)}


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
