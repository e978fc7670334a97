"""How a one-device program uses its parameters: in products, as tables, for how many heads."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from verifier.kernel.program.program import Node, Program

PASSES = frozenset({"reshape", "permute", "cast", "add", "neg", "mul_scalar"})


@dataclass
class Use:
    kind: str
    out_dim: int
    parts: int
    order: int
    heads: int = 0
    module: str = ""
    follows: frozenset[str] = frozenset()
    own_index: bool = False


def uses(program: Program) -> tuple[dict[str, list[Use]], dict[str, str]]:
    """Uses of each parameter, and the weight that each bias goes with."""
    biases: dict[str, str] = {}
    out: dict[str, list[Use]] = {}
    counter = [0]
    params = {i.name: i.name for i in program.inputs if i.role == "param"}
    _visit(program, params, out, counter, biases)
    return out, biases


def _bias_heads(program: Program, node: Node, readers: dict[str, list[Node]]) -> int:
    """Columns of a table of which each is for one head (Raffel et al. 2020): the last dim of what
    is looked up becomes a dim of whole matrices. 0 where it does not."""
    value = node.outputs[0]
    columns = program.types[value].shape[-1]
    for _ in range(4):
        moved = next((n for n in readers.get(value, []) if n.op in PASSES), None)
        if moved is None:
            return 0
        if moved.op == "permute":
            last = len(program.types[value].shape) - 1
            dims = moved.numbers("dims")
            return columns if dims[-1] != last and dims.index(last) == len(dims) - 3 else 0
        value = moved.outputs[0]
    return 0


def _deep(program: Program, node: Node) -> bool:
    """Whether a lookup takes whole matrices, one for each entry of its index."""
    if node.op != "take":
        return False
    table, index = (program.types[v].shape for v in node.inputs)
    return len(table) == 3 and len(index) == 1


def _stacked_parts(program: Program, node: Node, readers: dict[str, list[Node]]) -> int:
    """Into how many equal pieces the rows of a batched product with vectors are cut at once."""
    rows = [n for n in readers.get(node.outputs[0], []) if n.op == "reshape"]
    flat = next((n for n in rows if len(program.types[n.outputs[0]].shape) == 2), None)
    return _pieces(program, flat, readers) if flat is not None else 1


def _own_index(node: Node, producers: Mapping[str, Node]) -> bool:
    """Whether the rows that a lookup takes are worked out in its module, or are constants."""
    made = producers.get(node.inputs[1])
    if made is None:
        return False
    todo, constant = [made], True
    while todo and constant:
        inputs = todo.pop().inputs
        constant = all(v in producers for v in inputs)
        todo += [producers[v] for v in inputs if v in producers]
    return constant or made.source.module == node.source.module


def _visit(
    program: Program,
    params: dict[str, str],
    out: dict[str, list[Use]],
    counter: list[int],
    biases: dict[str, str],
) -> None:
    readers: dict[str, list[Node]] = {}
    for node in program.nodes:
        for v in node.inputs:
            readers.setdefault(v, []).append(node)
    producers = program.producers()
    origin: dict[str, tuple[str, tuple[int, ...]]] = {
        v: (p, tuple(range(len(program.types[v].shape)))) for v, p in params.items()
    }
    for node in program.nodes:
        counter[0] += 1
        if node.body is not None:
            inner = {
                i.name: params[v]
                for i, v in zip(node.body.inputs, node.inputs, strict=True)
                if v in params
            }
            if not node.attrs.get("reverse"):
                _visit(node.body, inner, out, counter, biases)
            continue
        if node.op == "permute" and node.inputs[0] in origin:
            name, dims = origin[node.inputs[0]]
            order = node.numbers("dims")
            origin[node.outputs[0]] = (name, tuple(dims[int(d)] for d in order))
        elif (node.op == "cast" or _deep(program, node)) and node.inputs[0] in origin:
            origin[node.outputs[0]] = origin[node.inputs[0]]
        elif node.op == "bmm" and any(v in origin for v in node.inputs):
            at = 0 if node.inputs[0] in origin else 1
            name, dims = origin[node.inputs[at]]
            parts = _stacked_parts(program, node, readers)
            out.setdefault(name, []).append(Use("expert", dims[1 + at], parts, counter[0]))
        elif node.op == "take" and node.inputs[0] in origin:
            name, _ = origin[node.inputs[0]]
            own = _own_index(node, producers)
            biases_of = _bias_heads(program, node, readers)
            use = Use("embedding", 1, 1, counter[0], biases_of, own_index=own)
            out.setdefault(name, []).append(use)
        elif node.op == "mm" and node.inputs[1] in origin:
            name, dims = origin[node.inputs[1]]
            if any(u.kind == "linear" for u in out.get(name, ())):
                continue
            parts, heads = _fused(program, node, readers) or (
                _pieces(program, node, readers),
                _heads(program, node, readers),
            )
            follows = _follows(program, node, origin, producers, readers)
            use = Use("linear", dims[1], parts, counter[0], heads, node.source.module, follows)
            out.setdefault(name, []).append(use)
        elif node.inputs and _parameter_of(origin, node):
            name = _parameter_of(origin, node)
            assert name is not None
            weight = _product_before(node, producers, origin)
            if weight is not None and len(program.types[node.inputs[0]].shape) > 1:
                biases[name] = weight
            out.setdefault(name, []).append(Use("other", 0, 1, counter[0]))


def _parameter_of(origin: dict[str, tuple[str, tuple[int, ...]]], node: Node) -> str | None:
    """The parameter that some operand of a node is, if any."""
    return next((origin[v][0] for v in node.inputs if v in origin), None)


def _pieces(program: Program, node: Node, readers: dict[str, list[Node]]) -> int:
    """Into how many equal pieces the last dim of a product is cut at once; 1 where it is not."""
    value = node.outputs[0]
    width = program.types[value].shape[-1]
    for _ in range(4):
        users = readers.get(value, [])
        slices = [u for u in users if u.op == "slice"]
        if len(slices) > 1 and len(slices) == len(users):
            last = len(program.types[value].shape) - 1
            spans = [(u.attrs["start"], u.attrs["stop"]) for u in slices if u.attrs["dim"] == last]
            k = len(spans)
            even = [(i * width // k, (i + 1) * width // k) for i in range(k)]
            return k if sorted(map(str, spans)) == sorted(map(str, even)) else 1
        onward = [
            u
            for u in users
            if u.op in PASSES and program.types[u.outputs[0]].shape[-1:] == (width,)
        ]
        if not onward:
            return 1
        value = onward[0].outputs[0]
    return 1


def _fused(program: Program, node: Node, readers: dict[str, list[Node]]) -> tuple[int, int] | None:
    """(parts, heads) of a product reshaped to (parts, heads, d) or (heads, parts, d) and selected
    from; None where it is not. Parts inside heads are no obstacle to dealing out heads: 1."""
    value = node.outputs[0]
    width = program.types[value].shape[-1]
    for _ in range(4):
        users = readers.get(value, [])
        for user in users:
            shape = program.types[user.outputs[0]].shape
            inner = next((j for j in range(len(shape)) if math.prod(shape[j:]) == width), None)
            if user.op == "reshape" and inner is not None and len(shape) - inner >= 3:
                dim = _selected(program, user, readers)
                if dim == inner:
                    return shape[inner], shape[inner + 1]
                if dim is not None and dim > inner:
                    return 1, shape[inner]
        onward = [u for u in users if u.op in PASSES]
        if not onward:
            return None
        value = onward[0].outputs[0]
    return None


def _selected(program: Program, node: Node, readers: dict[str, list[Node]]) -> int | None:
    """The dim of a value (read through permutes) whose entries are taken out one by one."""
    value = node.outputs[0]
    order = tuple(range(len(program.types[value].shape)))
    for _ in range(3):
        users = readers.get(value, [])
        dims = {u.attrs["dim"] for u in users if u.op == "slice"}
        if len(dims) == 1 and len([u for u in users if u.op == "slice"]) > 1:
            (dim,) = dims
            assert isinstance(dim, int)
            return order[dim]
        moved = next((u for u in users if u.op == "permute"), None)
        if moved is None:
            return None
        dims_moved = moved.numbers("dims")
        order = tuple(order[int(d)] for d in dims_moved)
        value = moved.outputs[0]
    return None


def _heads(program: Program, node: Node, readers: dict[str, list[Node]]) -> int:
    """Heads that the last dim of a product (or of its first piece) is reshaped into."""
    value = node.outputs[0]
    width = program.types[value].shape[-1]
    for _ in range(6):
        onward: list[str] = []
        for user in readers.get(value, []):
            shape = program.types[user.outputs[0]].shape
            if user.op == "reshape" and len(shape) >= 3 and shape[-2] * shape[-1] == width:
                rest = program.types[value].shape[:-1]
                if shape[:-2] == rest and len(shape) > 3:
                    return shape[-2]
            if (
                user.op == "slice"
                and user.attrs["dim"] == len(shape) - 1
                and user.attrs["start"] == 0
            ) or (user.op in PASSES and shape[-1:] == (width,)):
                onward.append(user.outputs[0])
        if not onward:
            return 0
        value = onward[0]
        width = program.types[value].shape[-1]
    return 0


def _follows(
    program: Program,
    node: Node,
    origin: Mapping[str, tuple[str, tuple[int, ...]]],
    producers: Mapping[str, Node],
    readers: dict[str, list[Node]],
) -> frozenset[str]:
    """The weights of the products that the activation of a product depends on, where it depends on
    nothing else but biases that each head looks up.

    A norm's own parameter on the way, a carry or an input of the program ends the walk: none.
    """
    weights = {p for p, dims in origin.values() if len(dims) > 1}
    width = program.types[node.inputs[0]].shape[-1]
    todo, seen, found = [node.inputs[0]], set[str](), set[str]()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        made = producers.get(value)
        if made is None:
            item = next((i for i in program.inputs if i.name == value), None)
            if item is None or item.role in ("carry", "input", "cotangent") or value in origin:
                return frozenset()
            continue
        if made.op == "take" and made.inputs[0] in origin and _bias_heads(program, made, readers):
            continue
        if made.op in ("scan", "take"):
            return frozenset()
        if made.op == "mm" and made.inputs[1] in origin:
            found.add(origin[made.inputs[1]][0])
            continue
        vectors = [v for v in made.inputs if v in origin and origin[v][0] not in weights]
        wide = any(program.types[v].shape[-1:] == (width,) for v in vectors)
        if wide and _product_before(made, producers, origin) is None:
            return frozenset()
        todo += [v for v in made.inputs if v not in vectors]
    return frozenset(found)


def _product_before(
    node: Node,
    producers: Mapping[str, Node],
    origin: Mapping[str, tuple[str, tuple[int, ...]]],
) -> str | None:
    """The weight of the product that an `add` comes right after."""
    if node.op != "add":
        return None
    for value in node.inputs:
        made = producers.get(value)
        while made is not None and made.op == "reshape":
            made = producers.get(made.inputs[0])
        if made is not None and made.op == "mm" and made.inputs[1] in origin:
            return origin[made.inputs[1]][0]
    return None
