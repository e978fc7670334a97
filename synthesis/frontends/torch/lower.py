"""Writes a joint graph of aten ops as a Program."""

# pyright: basic

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import fx
from torch.fx.node import map_arg

from shardproof.synthesis.frontends.torch.aten.complex_pairs import COMPLEX
from shardproof.synthesis.frontends.torch.aten.refused import DRAWS, PASS_IT, REFUSED
from shardproof.synthesis.frontends.torch.aten.table import TABLE, Emit
from shardproof.synthesis.frontends.torch.buffers import is_same
from shardproof.synthesis.frontends.torch.constants import (
    Constant,
    Full,
    Opaque,
    emit,
    opaque,
    recognise,
)
from shardproof.synthesis.frontends.torch.errors import OR_TRANSLATE, CaptureError
from shardproof.synthesis.frontends.torch.folding import (
    cast_lines,
    constant_nodes,
    derivations,
    evaluate_constants,
    frontier,
)
from shardproof.synthesis.frontends.torch.infinities import Infinities
from shardproof.synthesis.frontends.torch.integers import CAST, NARROW, IntegerError, Integers
from shardproof.synthesis.frontends.torch.provenance import Provenance, is_backward, layer_of
from shardproof.synthesis.frontends.torch.prune import without_empties
from shardproof.synthesis.frontends.torch.target import TORCH_DTYPES
from shardproof.synthesis.frontends.torch.trace import Traced
from shardproof.synthesis.frontends.torch.uninitialized_reads import EMPTY, needed
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import NO_MESH, Mesh, Source, TensorType

DTYPES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
_SKIP = {"_assert_tensor_metadata.default", "_assert_scalar.default", "sym_constrain_range.default"}
_SKIP |= {"_assert_async.msg", "_assert_async.default"}
RECIPE = f"add an op: see CONTRIBUTING.md{OR_TRANSLATE}"


COMPLEX_PARTS = {torch.complex64: "f32", torch.complex128: "f64"}


def type_of(value: Any) -> TensorType:
    """Type of a (fake) tensor; of complex numbers, that of their parts in a last dim.

    Raises KeyError for a dtype that the language does not have."""
    shape = tuple(int(n) for n in value.shape)
    if _paired(value):
        return TensorType((*shape, 2), COMPLEX_PARTS[value.dtype])
    return TensorType(shape, DTYPES[value.dtype])


def within(value: Any) -> TensorType:
    """Type of a (fake) tensor inside of a program: integers of a type that the language does not
    have, all of which `Integers` knows to fit, are of i32. No rank sends those to another."""
    if value.dtype in NARROW:
        return TensorType(tuple(int(n) for n in value.shape), "i32")
    return type_of(value)


def _paired(value: Any) -> bool:
    """Whether a value of a graph is of complex numbers."""
    value = value.meta.get("val") if isinstance(value, fx.Node) else value
    return isinstance(value, torch.Tensor) and value.dtype in COMPLEX_PARTS


def _memory(value: Any) -> tuple[int, tuple[int, ...]]:
    """Offset and strides of a tensor."""
    if not isinstance(value, torch.Tensor):
        return 0, ()
    return int(value.storage_offset()), tuple(map(int, value.stride()))


def _overwrites(user: fx.Node, node: fx.Node) -> bool:
    """Whether an op writes all of a tensor that it is given, and reads none of it."""
    name = getattr(user.target, "__name__", "")
    return name in ("copy.default", "copy_.default") and user.args[1] is not node


def _following(
    traced: Traced, constants: set[fx.Node], buffers: Mapping[str, str]
) -> tuple[dict[fx.Node, str], set[fx.Node]]:
    """Some of the buffers, each with what `buffers` says of it, and these integers as they are cast
    to reals, since not all of their types are the language's; and what else depends on them."""
    held = {n: buffers[name] for n, name in traced.buffers.items() if name in buffers}
    computed: set[fx.Node] = set()
    for node in traced.graph.nodes if held else ():
        if node not in constants or node in held:
            continue
        first = next((n for n in node.all_input_nodes if n in held), None)
        if first is not None and is_same(node) and not first.meta["val"].is_floating_point():
            held[node] = held[first]
        elif first is not None or not computed.isdisjoint(node.all_input_nodes):
            computed.add(node)
    return held, computed


@dataclass
class Lowered:
    """A flat program and the values of its opaque constants."""

    program: Program
    consts: dict[str, Any] = field(default_factory=dict[str, Any])
    backward: frozenset[str] = frozenset()
    """Values that the backward makes."""
    buffers: frozenset[str] = frozenset()
    """Buffers whose values went into the program."""
    infinite: bool = False
    """Whether a constant was infinite."""
    notes: tuple[str, ...] = ()
    """Sentences for the report."""
    filled: frozenset[str] = frozenset()
    """Buffers that are read and may hold any value."""


class Lowering:
    """One pass over the graph. `values` maps each node to its value name (or a tuple of them).

    `canonical` maps the second names of tied parameters to their first. A graph of one rank of a
    `mesh` has collectives; `groups` maps process groups to the mesh dims that they run along.
    """

    emit: type[Emit] = Emit
    recognise: Callable[[Any, str], Constant] = staticmethod(recognise)

    def __init__(
        self,
        traced: Traced,
        buffers: Mapping[str, torch.Tensor],
        provenance: Provenance,
        canonical: Mapping[str, str],
        name: str,
        mesh: Mesh = NO_MESH,
        groups: Mapping[str, tuple[str, ...]] | None = None,
        known: dict[str, Constant] | None = None,
        filled: Mapping[str, str] | None = None,
        below: Mapping[str, int] | None = None,
        ignored: Mapping[str, int] | None = None,
    ) -> None:
        """`known`: constants of other graphs by how they are derived; those of this one are added
        to them. `filled`: buffers of any value, of which no structure is read off and nothing is
        evaluated, each with what tells its table from others. `below`: integers of an input are
        from 0 to that less one. `ignored`: an integer that entries of an input may be besides."""
        self.traced = traced
        self.provenance = provenance
        self.canonical = canonical
        self.b = Builder(name, mesh)
        self.e = self.emit(self.b)
        self.e.groups, self.e.ignored = dict(groups or {}), dict(ignored or {})
        self.values: dict[fx.Node, Any] = {}
        self.constants: dict[fx.Node, Constant] = {}
        self.consts: dict[str, Any] = {}
        self.state: dict[str, Any] = {}
        self.buffers = buffers
        self.e.consts = self.consts
        self.backward: set[str] = set()
        constants = constant_nodes(traced)
        self.filled = filled or {}
        self.unread, computed = _following(traced, constants, self.filled)
        self.unfolded = self._unfolded(constants) | computed
        self.folded = constants - self.unfolded
        derived = derivations(traced, self.folded, buffers) if known is not None else {}
        derived = {n: d for n, d in derived.items() if n not in self.unread}
        known = known if known is not None else {}
        self.needed = needed(traced)
        read = frontier(traced, self.folded, self.needed)
        for node in read:
            if derived.get(node) in known:
                self.constants[node] = known[derived[node]]
        wanted = set(read) - self.constants.keys()
        evaluate_constants(traced, self.folded, buffers, self._keep, wanted)
        known |= {derived[n]: c for n, c in self.constants.items() if n in derived}
        self.infinities = Infinities(self.constants, self._place)
        self.integers = Integers(
            below or {}, traced.inputs, self.constants, self._place, frozenset(self.unread)
        )

    def _unfolded(self, constants: set[fx.Node]) -> set[fx.Node]:
        """Constants that are not evaluated, but written as ops, on operands of full extents."""
        del constants
        return set()

    def _keep(self, node: fx.Node, value: torch.Tensor) -> None:
        if _paired(value):
            value = torch.view_as_real(value.resolve_conj())
        if value.dtype in NARROW:
            value = cast_lines(value, torch.int32)
        if value.dtype not in DTYPES:
            raise self._error(
                node, f"a constant of dtype {value.dtype} has no type in the language"
            )
        plain = value.detach()
        if plain.dtype in (torch.bfloat16, torch.float16):
            plain = cast_lines(plain, torch.float32)
        try:
            array, dtype = plain.numpy(force=True), DTYPES[value.dtype]
            if node in self.unread:
                self.constants[node] = opaque(array, dtype, self.unread[node])
            else:
                self.constants[node] = self.recognise(array, dtype)
        except ValueError as problem:
            raise self._error(node, f"a constant holds {problem}") from None

    def _place(self, node: fx.Node) -> str:
        s = self.provenance.source(node)
        return f"{s.file}:{s.line}" if s.file else str(node.target)

    def _error(self, node: fx.Node, message: str, hint: str = "") -> CaptureError:
        s = self.provenance.source(node)
        where = f" (in module {s.module})" if s.module else ""
        return CaptureError(
            message + where, file=s.file, line=s.line, text=s.text, hint=hint, module=s.module
        )

    def run(self) -> Lowered:
        """The program.

        Raises:
            CaptureError: an op that has no meaning in the language, with its source line.
        """
        read = self.needed - self.folded
        for node in self.traced.graph.nodes:
            if node.op == "placeholder":
                self._input(node)
            elif node.op == "call_function" and node in read:
                self._call(node)
        for role, path, node in self.traced.outputs:
            if role == "grad":
                path = self.canonical.get(path, path)
            value = self._operand(node, False)
            if not isinstance(value, str):
                raise self._error(node, f"the {role} {path} holds what no rule gives a value to")
            if node.meta["val"].dtype in NARROW:
                raise self._error(node, f"the {role} {path} is of dtype {node.meta['val'].dtype}")
            self.b.output(value, role, path)
        program = without_empties(self.b.build())
        folded = [n for n in self.constants if n in self.traced.buffers]
        reach = set(folded)
        stack: list[fx.Node] = list(self.constants)
        while stack:
            for n in stack.pop().all_input_nodes:
                if n not in reach:
                    reach.add(n)
                    stack.append(n)
        held = {n: t for n, t in self.traced.buffers.items() if t not in self.traced.taken}
        used = frozenset(t for n, t in held.items() if n in reach)
        return Lowered(
            program,
            self.consts | self.state,
            frozenset(self.backward),
            used - self.filled.keys(),
            self.e.infinite,
            (*sorted(self.e.notes), *self._told()),
            used & self.filled.keys(),
        )

    def _told(self) -> list[str]:
        """What is taken for granted, in sentences."""
        parts = (self.integers.notes(), self.infinities.notes(), self.traced.notes)
        return [sentence for part in parts for sentence in part]

    def _input(self, node: fx.Node) -> None:
        t = self.traced
        if node in t.buffers:
            if t.buffers[node] in t.taken:
                self._state(node, t.buffers[node])
            return
        kind = type_of(node.meta["val"])
        if node in t.params:
            path = self.canonical.get(t.params[node], t.params[node])
            if path not in self.b.types:
                self.b.param(path, kind, path)
            self.values[node] = path
        elif node in t.inputs:
            name = t.inputs[node]
            self.values[node] = self.b.input(name, kind, "input", name)
        elif any(role == "loss" and n == t.tangents[node] for role, n, _ in t.outputs):
            with self.b.at(Source(text="gradient of the loss with respect to itself")):
                self.values[node] = self.e.full(1, kind.shape, kind.dtype)
        else:
            path = t.tangents[node]
            self.values[node] = self.b.input(f"cotangent.{path}", kind, "cotangent", path)

    def _state(self, node: fx.Node, name: str) -> None:
        """A buffer that the forward changes is a table of any value; the one that it has at first
        is kept for runs on numbers."""
        self.values[node] = self.b.input(name, type_of(node.meta["val"]), "const", name)
        self.state[name] = self.buffers[name].detach().numpy()

    def _operand(self, node: fx.Node, broadcasts: bool) -> Any:
        """Value name of an operand. Where the reader broadcasts, a constant stays narrow."""
        constant = self.constants.get(node)
        if constant is None:
            return self.values[node]
        if isinstance(constant.structure, Full):
            value = emit(self.e, constant)
            return value if broadcasts else self.e.expand(value, constant.shape)
        before, self.e.scope = self.e.scope, ("", "forward")
        source = self.provenance.source(node)
        layer = layer_of(source.module)
        module = layer.rpartition(".")[0] if layer else source.module
        with self.b.at(replace(source, module=module)):
            value = emit(self.e, constant)
            if not broadcasts:
                value = self.e.expand(value, constant.shape)
        if isinstance(constant.structure, Opaque):
            self.consts[constant.structure.name] = np.asarray(constant.structure.value)
        self.e.scope = before
        return value

    def _call(self, node: fx.Node) -> None:
        target: Any = node.target
        if target is operator.getitem:
            source, index = cast(tuple[fx.Node, int], node.args)
            self.integers.follow(node)
            self.values[node] = self.values[source][index]
            return
        name = getattr(target, "__name__", str(target))
        if name in _SKIP:
            return
        if name.partition(".")[0] in EMPTY and all(_overwrites(user, node) for user in node.users):
            self.values[node] = None
            return
        space = getattr(target, "namespace", "?")
        val = node.meta.get("val")
        results = list(val) if isinstance(val, (tuple, list)) else [val]
        rule = TABLE.get(name if space == "aten" else f"{space}::{name}")
        complex_ = any(map(_paired, (*results, *node.all_input_nodes)))
        self.e.paired = [_paired(a) for a in node.args]
        for read in node.all_input_nodes[:1]:
            self.e.memory = _memory(read.meta.get("val"))
        if complex_:
            rule = COMPLEX.get(name)
        if rule is None:
            why = REFUSED.get(name.partition(".")[0], "")
            raise self._error(
                node,
                f"{space}.{name} has no meaning in the language" + (f": {why}" if why else ""),
                PASS_IT if why == DRAWS else RECIPE,
            )
        self.e.op = name.partition(".")[0]
        try:
            typed = within if space == "aten" else type_of
            self.e.result = [typed(v) for v in results if isinstance(v, torch.Tensor)]
        except KeyError as dtype:
            raise self._error(
                node, f"aten.{name} makes a tensor of dtype {dtype}", RECIPE
            ) from None
        try:
            self.integers.follow(node)
        except IntegerError as problem:
            raise self._error(node, str(problem), problem.hint) from None
        args = node.args
        if name == CAST:
            args = (self.integers.original(node), *args[1:])
        source = self.provenance.source(node)
        direction = "backward" if is_backward(node) else "forward"
        self.e.scope = (layer_of(source.module), direction)
        self.e.written = direction == "forward" and not node.meta.get("in_hook")
        if direction == "forward":
            self.infinities.follow(node)
        first = len(self.b.nodes)
        broadcasts = torch.Tag.pointwise in target.tags and not complex_
        broadcasts = broadcasts and node not in self.unfolded
        try:
            with self.b.at(source):
                args = map_arg(args, lambda n: self._operand(n, broadcasts))
                kwargs = map_arg(node.kwargs, lambda n: self._operand(n, broadcasts))
                made = rule(self.e, *args, **kwargs)
                pointwise = torch.Tag.pointwise in target.tags
                self.values[node] = self._checked(made, results, pointwise)
        except (IRError, NotImplementedError, TypeError) as problem:
            raise self._error(node, f"aten.{name}: {problem}", RECIPE) from problem
        except (LookupError, ValueError, ZeroDivisionError) as problem:
            read = [list(v.meta["val"].shape) for v in node.all_input_nodes]
            message = f"aten.{name} of shapes {read} is not covered"
            raise self._error(node, message, RECIPE) from problem
        if direction == "backward":
            self.backward.update(v for n in self.b.nodes[first:] for v in n.outputs)

    def _checked(self, made: Any, results: list[Any], pointwise: bool) -> Any:
        """The values a rule made, cast and broadcast to what PyTorch says they are."""
        if isinstance(made, str):
            return self._fit(made, results[0], pointwise)
        return tuple(
            None if m is None or not isinstance(r, torch.Tensor) else self._fit(m, r, pointwise)
            for m, r in zip(made, results, strict=True)
        )

    def _fit(self, value: str, like: Any, pointwise: bool) -> str:
        """Only what is computed entry by entry, or one number everywhere, is broadcast."""
        want, shape = within(like), self.e.shape(value)
        value = self.e.cast(value, want.dtype)
        if shape == want.shape:
            return value
        if not pointwise and self.e.constant(value) is None:
            raise NotImplementedError(f"its rule makes {list(shape)}, not {list(want.shape)}")
        return self.e.expand(value, want.shape)
