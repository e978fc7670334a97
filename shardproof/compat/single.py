"""The one-device program of a class program: communication is the identity there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from shardproof.compat.errors import ProgramError
from shardproof.compat.mesh import DeviceMesh
from shardproof.compat.program import IROp, Program
from shardproof.compat.sharding import Partial, Replicate, ShardingSpec
from shardproof.compat.tensor import FLOAT_NAMES, TensorState
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.types import TensorType


@dataclass
class Given:
    """A registered tensor and the devices that hold it."""

    state: TensorState
    devices: tuple[int, ...] | None = None


class Tensors:
    """The tensors that a program starts from."""

    def __init__(self, mesh: DeviceMesh, given: Mapping[str, Given]) -> None:
        self.mesh, self.given = mesh, dict(given)

    def type_of(self, state: TensorState) -> TensorType:
        """The type of the whole tensor in the core."""
        return TensorType(state.global_shape, dtype_of(state))

    def find(self, name: str, op: IROp, defined: Sequence[str]) -> Given:
        if name not in self.given:
            near = get_close_matches(name, [*self.given, *defined], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ProgramError(f"{op}: no tensor {name} is registered or made before{hint}{at(op)}")
        return self.given[name]


def at(op: IROp) -> str:
    return f"  ({op.source})" if str(op.source) else ""


def dtype_of(state: TensorState) -> str:
    """The core's dtype of a tensor, f32 where nothing is said."""
    if state.dtype is None:
        return "f32"
    if state.dtype not in FLOAT_NAMES:
        raise ProgramError(f"tensor {state.name}: dtype {state.dtype!r} is not known")
    return FLOAT_NAMES[state.dtype]


class Single:
    """The one-device program of a class program."""

    def __init__(self, outer: Tensors, program: Program) -> None:
        self.outer, self.b = outer, Builder(program.name or "one")
        self.names: dict[str, str] = {}
        self.read: dict[str, IROp] = {}
        self.results: list[tuple[str, ...]] = []
        written = [n for op in program.flat() for n in (*op.input_names, *op.output_names)]
        self.b.reserve([*outer.given, *written])
        ids = index_names(program)
        self.dtypes = dict.fromkeys(ids, "i64")
        self.complete(program)
        for op in program.flat():
            self.step(op)

    def finish(self) -> None:
        """Inline composites, and follow the values that take other names by it."""
        made = [v for results in self.results for v in results]
        for value in dict.fromkeys([*self.names.values(), *made]):
            self.b.output(value, path=value)
        self.built = inline(self.b.build())
        now = {o.path: o.value for o in self.built.outputs}
        self.names = {name: now[v] for name, v in self.names.items()}
        self.results = [tuple(now[v] for v in results) for results in self.results]

    def complete(self, program: Program) -> None:
        """Register what ops bring of their own: seeds, scales, weights of experts."""
        for op in program.flat():
            for attr, kind in getattr(op, "given", ()):
                name = getattr(op, attr)
                if name not in self.outer.given:
                    self._register(name, kind)

    def _register(self, name: str, kind: TensorType) -> None:
        spec = ShardingSpec(tuple(Replicate() for _ in self.outer.mesh.shape), self.outer.mesh)
        dtype = {"i64": "int64"}.get(kind.dtype)
        state = TensorState(name, kind.shape, kind.shape, spec, dtype=dtype)
        self.outer.given[name] = Given(state)

    def input(self, name: str, op: IROp | None = None) -> str:
        item = self.outer.given[name]
        state = item.state
        if name in self.dtypes and state.dtype is None:
            state = item.state = state.with_dtype("int64")
        if op is not None:
            self.read[name] = op
        spec = state.spec
        kind = self.outer.type_of(state)
        lead = shares(spec)
        if lead:
            stacked = self.b.input(f"{name}.shares", stack(kind, spec))
            value = folded(self.b, stacked, spec)
        else:
            value = self.b.input(name, kind)
        self.names.setdefault(name, value)
        return value

    def operands(self, op: IROp) -> list[str]:
        out: list[str] = []
        for name in op.input_names:
            if name not in self.names:
                if name not in self.outer.given and hasattr(op, "needs"):
                    first = self.b.types[out[0]]
                    self._register(name, TensorType((first.shape[-1], first.shape[-1])))
                self.outer.find(name, op, list(self.names))
                self.input(name, op)
            out.append(self.names[name])
        return out

    def step(self, op: IROp) -> None:
        operands = self.operands(op)
        try:
            with self.b.at(op.source):
                made = op.one_device(self.b, *operands)
        except IRError as error:
            shown = ", ".join(
                f"{n} is {list(self.b.types[v].shape)}"
                for n, v in zip(op.input_names, operands, strict=True)
            )
            raise ProgramError(f"{op} on one device: {shown}: {error}{at(op)}") from None
        results = (made,) if isinstance(made, str) else tuple(made)
        self.results.append(results)
        self.names |= dict(zip(op.output_names, results, strict=False))


def index_names(program: Program) -> set[str]:
    """Inputs that are used as indices."""
    return {
        n
        for op in program.flat()
        for n in (getattr(op, "indices", None), getattr(op, "targets", None))
        if isinstance(n, str)
    }


def shares(spec: ShardingSpec) -> list[tuple[str, int, str]]:
    """(mesh dim, size, fold) for which an input comes as shares of its whole."""
    named = zip(spec.mesh.dim_names, spec.mesh.shape, spec.placements, strict=True)
    return [(n, size, p.reduce) for n, size, p in named if isinstance(p, Partial) and size > 1]


def stack(kind: TensorType, spec: ShardingSpec) -> TensorType:
    """All shares of an input in one tensor, a leading dim for each mesh dim."""
    return TensorType((*(size for _, size, _ in shares(spec)), *kind.shape), kind.dtype)


def folded(b: Builder, stacked: str, spec: ShardingSpec) -> str:
    """The whole of an input from its shares."""
    lead = shares(spec)
    folds = {how for _, _, how in lead}
    if not folds <= {"sum"} and not folds <= {"max"}:
        raise ProgramError(f"shares to fold by {', '.join(sorted(folds))}: expected sum or max")
    core = "sum" if folds == {"sum"} else "amax"
    return b.add(core, stacked, dims=tuple(range(len(lead))))
