"""`python -m benchmarks.autoparallel CHECKOUT [--model 8b] [--mesh 8x8]`: autoparallel and our
solver on one cost model, its own.

CHECKOUT is a copy of github.com/meta-pytorch/autoparallel (which needs `pulp`). It traces its
Llama 3, lists the placements of every op and prices them, and solves its integer program. From the
same tables `benchmarks.cost_tables` finds the cheapest placements and a bound on all of them.
Both are priced by autoparallel's own `_compute_solution_cost`. Seconds are of the processor: to
find repeated blocks, to write the program and to solve it; ours include reading the tables.
Tracing, the list of placements and their prices, which both use, are apart. Exits 1 where our
placements cost more than 1.001 times the bound.
"""

from __future__ import annotations

import argparse
import json
import math
import operator
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cost_tables import Link, Tables, cheapest
from benchmarks.machine import described

MICRO = 1e-6
MODELS: dict[str, dict[str, Any]] = {
    "8b": {"dim": 4096, "n_layers": 32, "n_heads": 32, "multiple_of": 1024},
    "70b": {"dim": 8192, "n_layers": 80, "n_heads": 64, "multiple_of": 4096},
}
VOCABULARY, SEQUENCE, BATCH = 128256, 8192, 2
SECONDS = 600.0
PRICED = ("fwd_param_dtype", "grad_reduce_dtype")
"""Rows of autoparallel that close the moves into a node."""


def processor() -> float:
    """Seconds of the processor so far, with those of the solver that autoparallel starts."""
    return sum(os.times()[:4])


class Stopwatch:
    """Seconds of the processor inside functions, apart from those measured within them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.inner = 0.0

    def watch(self, owner: Any, name: str, phase: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **options: Any) -> Any:
            before, self.inner, started = self.inner, 0.0, processor()
            try:
                return function(*args, **options)
            finally:
                spent = processor() - started
                self.seconds[phase] += spent - self.inner
                self.inner = before + spent

        setattr(owner, name, timed)


def optimizer(model: str, mesh: Sequence[int], sharing: bool, watch: Stopwatch) -> tuple[Any, Any]:
    """Its optimizer after a solve, and its solution. It asks for the name of a GPU, and there is
    none here; on a CPU attention would be an op that it has no rule for."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from torch.distributed.tensor.placement_types import Replicate, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    api, solver = import_module("autoparallel.api"), import_module("autoparallel.optimize_sharding")
    llama: Any = import_module("autoparallel._testing.models.llama3")
    for device in (torch.cpu, torch.cuda):
        setattr(device, "get_device_name", lambda *_: "H100")  # noqa: B010
    llama.ScaledDotProductAttention.forward = lambda _, q, k, v: (
        torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]
    )
    watch.watch(api.AutoParallel, "build_model_graph", "trace")
    its = solver.ShardingOptimizer
    watch.watch(its, "build_sharding_metadata", "placements")
    watch.watch(its, "_build_decision_vars", "prices")
    watch.watch(solver, "get_identical_regions", "repeats")
    watch.watch(its, "create_cluster_links", "repeats")
    for name in ("_create_pulp_variables", "add_default_constraints", "_set_objective"):
        watch.watch(its, name, "program")
    watch.watch(its, "_solve", "solve")
    size = math.prod(mesh)
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    names = ("dp", "tp")[: len(mesh)]
    devices = torch.distributed.device_mesh.init_device_mesh(
        "cpu", tuple(mesh), mesh_dim_names=names
    )
    config = {"n_kv_heads": 8, "ffn_dim_multiplier": 1.3, "rope_theta": 500000}
    config |= {"vocab_size": VOCABULARY, "max_seq_len": SEQUENCE}
    with torch.device("meta"):
        module = llama.Transformer(llama.TransformerModelArgs(**config, **MODELS[model]))
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    shape = (BATCH * mesh[0], SEQUENCE)
    asked = api.AutoParallel(
        module,
        lambda: torch.randint(0, VOCABULARY, shape),
        devices,
        precision,
        repeated_subgraphs=sharing,
    )
    with asked as made:
        made.add_parameter_memory_constraint()
        made.add_input_constraints([(Shard(0), *(Replicate() for _ in mesh[1:]))])
        made.add_output_constraints([(Shard(0), *(Shard(2) for _ in mesh[1:]))])
        solution = made.optimize_placement()
        return made.sharding_optimizer, solution


def placements(spec: Any) -> Any:
    """What decides the price of a move."""
    if isinstance(spec, tuple | list):
        return tuple(placements(s) for s in spec)
    return None if spec is None else spec.placements


def numbered(items: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(item, len(numbers)) for item in items])


class Reading:
    """Its tables as ours. Only the first of nodes with one table is read."""

    def __init__(self, opt: Any) -> None:
        self.opt = opt
        self.nodes = [n for n in opt.nodes if n.op != "output"]
        self.at = {node: at for at, node in enumerate(self.nodes)}
        self.options: dict[Any, Any] = {}
        self.links: dict[Any, Link] = {}
        rows = (c for name, c in opt.prob.constraints.items() if name.startswith(PRICED))
        frozen = {id(variable) for row in rows for variable in row}
        self.frozen = {key[0] for key, v in opt.pulp_variables.items() if id(v) in frozen}
        closed = self._closed()
        self.kinds = [self._kind(node, closed.get(node, frozenset())) for node in self.nodes]
        self.edges = [edge for node in self.nodes for edge in self._edges(node)]
        self.edges += [self._pair(a, b) for a, b in self._pairs()]

    def tables(self) -> Tables:
        kinds, links = list(self.options), list(self.links)
        kind = {key: at for at, key in enumerate(kinds)}
        link = {key: at for at, key in enumerate(links)}
        edges = [(u, v, link[key]) for u, v, key in self.edges]
        nodes = [kind[key] for key in self.kinds]
        return Tables(list(self.options.values()), list(self.links.values()), nodes, edges)

    def _strategies(self, node: Any) -> Any:
        return self.opt.strats[node].strategies

    def _root(self, node: Any) -> int:
        """The node whose prices it took."""
        index = self.opt.node_map[node]
        return self.opt.cluster_links.get((index, 0, 0, 0), (index,))[0]

    def _kind(self, node: Any, closed: frozenset[int]) -> Any:
        strategies = self._strategies(node)
        if node.op == "call_function":
            key = (*((id(s.input_specs), id(s.output_specs)) for s in strategies), closed)
        else:
            key = (*(s.output_specs for s in strategies), closed)
        if key not in self.options:
            arguments, root = len(strategies[0].input_specs), self._root(node)
            made = [
                self.opt.decision_vars[root, 0, o, 0].compute_cost * arguments
                for o in range(len(strategies))
            ]
            if not self.opt._all_input_nodes(node):
                paired = zip(made, strategies, strict=True)
                made = [c + sum(map(min, s.redistribute_cost)) for c, s in paired]
            made = [math.inf if o in closed else c for o, c in enumerate(made)]
            self.options[key] = np.array(made) * MICRO
        return key

    def _edges(self, node: Any) -> list[tuple[int, int, Any]]:
        out: list[tuple[int, int, Any]] = []
        at, frozen = self.at[node], self._root(node) in self.frozen
        for argument, source in enumerate(self.opt._all_input_nodes(node)):
            item = node.args[1] if node.target is operator.getitem else None
            made = self.at[source]
            key = (self.kinds[made], self.kinds[at], argument, item, frozen)
            if key not in self.links:
                self.links[key] = self._link(node, argument, source, item, frozen)
            out.append((made, at, key))
        return out

    def _link(self, node: Any, argument: int, source: Any, item: int | None, frozen: bool) -> Link:
        strategies = self._strategies(node)
        made = [placements(s.output_specs) for s in self._strategies(source)]
        made = made if item is None else [m[item] for m in made]
        read = [placements(s.input_specs[argument]) for s in strategies]
        left, right = numbered(made), numbered(read)
        moves = np.array([s.redistribute_cost[argument] for s in strategies], dtype=float).T
        # A transition costs 1 where both are tensors of one placement each.
        plain = [m is not None and not isinstance(m[0], tuple | None) for m in made]
        differ = [
            [p and r is not None and m != r for r in read] for m, p in zip(made, plain, strict=True)
        ]
        full = moves + np.array(differ)
        if frozen:
            full[moves > 0] = math.inf
        cost = np.zeros((left.max() + 1, right.max() + 1))
        cost[left[:, None], right] = full
        if not np.array_equal(cost[left[:, None], right], full):
            raise SystemExit(f"{node}: a move is not priced by its placements")
        return Link(left, right, cost * MICRO)

    def _pairs(self) -> list[tuple[Any, Any]]:
        """Nodes that must have one placement: a parameter and its gradient, and so on."""
        functorch = import_module("torch._functorch._aot_autograd.fx_utils")
        names = ("param_and_grad", "plain_input_and_grad", "plain_output_and_tangent")
        found = (getattr(functorch, f"get_{name}_nodes")(self.opt.graph) for name in names)
        return [(a, b) for pairs in found for a, b in pairs.values() if b is not None]

    def _pair(self, one: Any, two: Any) -> tuple[int, int, Any]:
        key = (self.kinds[self.at[one]], self.kinds[self.at[two]], "pair")
        if key not in self.links:
            left, right = ([str(s.output_specs) for s in self._strategies(n)] for n in (one, two))
            cost = np.array([[0.0 if a == b else math.inf for b in right] for a in left])
            self.links[key] = Link(np.arange(len(left)), np.arange(len(right)), cost)
        return self.at[one], self.at[two], key

    def _closed(self) -> Mapping[Any, frozenset[int]]:
        """Options that its constraints on inputs, outputs and memory exclude. Its memory holds no
        more than each parameter as split as it can be."""
        functorch = import_module("torch._functorch._aot_autograd.fx_utils")
        sharded = import_module("autoparallel.cost_models.compute_estimation")
        closed: dict[Any, frozenset[int]] = {}
        names = {node.name: node for node in self.nodes}
        for kind, asked in self.opt._constraint_log:
            if kind == "add_node_constraint":
                node = names[asked["node_name"]]
                closed[node] = frozenset(
                    o
                    for o, s in enumerate(self._strategies(node))
                    if placements(s.output_specs) != asked["placement"]
                )
        for node in functorch.get_param_nodes(self.opt.graph):
            specs = [s.input_specs[0] for s in self._strategies(node)]
            sizes = [math.prod(sharded._get_sharded_shape_stride(spec)[0]) for spec in specs]
            closed[node] = frozenset(o for o, n in enumerate(sizes) if n > min(sizes))
        return closed


def accepted(opt: Any, reading: Reading, chosen: Sequence[int]) -> bool:
    """Whether its own program accepts a choice, where no variable stands for two nodes."""
    sources = [[reading.at[s] for s in opt._all_input_nodes(n)] for n in reading.nodes]
    where = {opt.node_map[n]: at for at, n in enumerate(reading.nodes)}
    for (node, argument, out, given), variable in opt.pulp_variables.items():
        at = where[node]
        taken = chosen[sources[at][argument]] if sources[at] else 0
        variable.varValue = float(chosen[at] == out and taken == given)
    return all(row.valid(1e-6) for row in opt.prob.constraints.values())


def compare(model: str, mesh: Sequence[int], sharing: bool) -> dict[str, Any]:
    """Both solutions; costs in milliseconds."""
    watch = Stopwatch()
    opt, solution = optimizer(model, mesh, sharing, watch)
    reported = import_module("pulp").value(opt.prob.objective)
    theirs = opt._compute_solution_cost(opt._to_concrete_solution(solution))["total"]
    started = processor()
    reading = Reading(opt)
    tables = reading.tables()
    read = processor()
    found = cheapest(tables, SECONDS)
    solved = processor()
    if found is None:
        raise SystemExit("no solution was found in time")
    picked = zip(reading.nodes, found.options, strict=True)
    ours = opt._compute_solution_cost({n: opt.strats[n].strategies[o] for n, o in picked})["total"]
    if not math.isclose(found.cost, ours * MICRO, rel_tol=1e-9):
        raise SystemExit(f"its price of our placements is {ours}, ours {found.cost / MICRO}")
    own = {phase: watch.seconds[phase] for phase in ("repeats", "program", "solve")}
    return {
        "model": model,
        "mesh": "x".join(map(str, mesh)),
        "blocks shared": sharing,
        "nodes": len(reading.nodes),
        "reported ms": reported / 1e3,
        "its cost ms": theirs / 1e3,
        "our cost ms": ours / 1e3,
        "bound ms": found.bound * 1e3,
        "its cost / bound": theirs * MICRO / found.bound,
        "our cost / bound": ours * MICRO / found.bound,
        "accepted by its program": None if sharing else accepted(opt, reading, found.options),
        **{f"its {phase} s": watch.seconds[phase] for phase in ("trace", "placements", "prices")},
        **{f"its {phase} s": seconds for phase, seconds in own.items()},
        "our reading s": read - started,
        "our solve s": solved - read,
        "our seconds / its": (solved - started) / sum(own.values()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--model", choices=sorted(MODELS), default="8b")
    parser.add_argument("--mesh", default="8x8", help="8, 64, 8x8")
    parser.add_argument("--layers", type=int, help="other than the model's")
    parser.add_argument("--unshared", action="store_true", help="its exact program, slow in 2-D")
    asked = parser.parse_args()
    if not (asked.checkout / "autoparallel" / "optimize_sharding.py").is_file():
        parser.error(f"{asked.checkout} is not a checkout of meta-pytorch/autoparallel")
    sys.path.insert(0, str(asked.checkout))
    try:
        import_module("pulp")
    except ImportError:
        parser.error("autoparallel needs pulp (pip install pulp)")
    try:
        mesh = [int(n) for n in asked.mesh.split("x")]
    except ValueError:
        mesh = []
    if len(mesh) not in (1, 2) or min(mesh) < 2:
        parser.error(f"--mesh {asked.mesh}: one or two sizes, as 8 or 8x8")
    if asked.layers is not None:
        MODELS[asked.model]["n_layers"] = asked.layers
    row = compare(asked.model, mesh, not asked.unshared)
    print(json.dumps(described() | row, indent=1))
    return 0 if row["our cost / bound"] <= 1.001 else 1


if __name__ == "__main__":
    sys.exit(main())
