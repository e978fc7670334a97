"""The training step on one device: what every distributed step is held against.

Written from the model alone. Of the degrees it uses the number of micro-batches and, where layers
are repeated blocks, into how many groups they are stacked.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from benchmarks.steps import blocks, latent, routing
from benchmarks.steps.include import Joint, accumulated, forward_nodes, shared
from benchmarks.steps.model import Degrees, Model, table_type
from benchmarks.steps.weights import Weight, run_weights, stage_runs, weights
from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.synthesis.training import optimizer
from shardproof.synthesis.training.optimizer import Optimizer, State, adamw, clip_factor, squares
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import TensorType

F32 = "f32"


def reference(model: Model, degrees: Degrees, opt: Optimizer) -> Program:
    """Loss, gradients, clipping and AdamW on one device.

    Inputs: `ids`, `labels`, `weight` `[micro-batches, batch, seq]` (weight 0 ignores a token),
    rotary tables `cos`, `sin` `[seq, head_dim]`, parameters `NAME`, moments `NAME.first` and
    `NAME.second`, and the scalars of the step. Outputs: the loss, and `NAME.new`,
    `NAME.first.new`, `NAME.second.new`.
    """
    table = weights(model, degrees)
    count = degrees.micro_batches
    rows = model.batch // count
    b = Builder("step")
    for name, dtype in (("ids", "i64"), ("labels", "i64"), ("weight", F32)):
        b.input(name, TensorType((count, rows, model.seq), dtype))
    _tables(b, model, degrees)
    optimizer.scalars(b)
    for w in table:
        b.param(w.name, TensorType(w.shape), w.path)
    for w in table:
        for moment in ("first", "second"):
            b.input(f"{w.name}.{moment}", TensorType(w.shape), "input", f"{w.path}.{moment}")
    blocks.named(b, b.add("reciprocal", blocks.total(b, "weight")), "inverse_count")
    joint = _joint(model, degrees, rows, table)
    sums = accumulated(b, joint, count, scan=degrees.scan_micro_batches)
    b.output(sums["loss:loss"], "loss", "loss")
    grads = {w.name: sums[f"grad:{w.path}"] for w in table}
    factor = clip_factor(b, squares(b, list(grads.values())), opt)
    for w in table:
        state = State(w.name, grads[w.name], f"{w.name}.first", f"{w.name}.second")
        param, first, second = adamw(b, state, factor, opt, decay=w.decays)
        b.output(param, "output", f"{w.path}.new")
        b.output(first, "output", f"{w.path}.first.new")
        b.output(second, "output", f"{w.path}.second.new")
    return b.build()


def _tables(b: Builder, model: Model, degrees: Degrees) -> None:
    for name in degrees.tables:
        b.input(name, table_type(name, model.seq, model), "const")


def _joint(model: Model, degrees: Degrees, rows: int, table: list[Weight]) -> Joint:
    """Loss and gradients of one micro-batch."""
    b = Builder("micro_batch")
    for name, dtype in (("ids", "i64"), ("labels", "i64"), ("weight", F32)):
        b.input(name, TensorType((rows, model.seq), dtype))
    _tables(b, model, degrees)
    b.input("inverse_count", TensorType(()), "const")
    for w in table:
        b.param(w.name, TensorType(w.shape), w.path)
    table_copy = blocks.rounded(b, "embed", model.compute)
    state = _State(b.add("take", table_copy, "ids", dim=0))
    bodies: dict[bool, Program] = {}
    for stage in range(degrees.pp):
        for run in stage_runs(model, degrees, stage):
            held = run_weights(model, degrees, stage, run)
            if degrees.scan_layers:
                state = _scanned(b, state, model, held, len(run), bodies)
            else:
                state = _layer(b, state, model, {n: w.name for n, w in held.items()})
    norm = blocks.rounded(b, "norm", model.compute)
    x = b.add("rms_norm", state.x, norm, eps=model.eps)
    if model.tied:
        head = b.add("permute", table_copy, dims=(1, 0))
    else:
        head = blocks.rounded(b, "head", model.compute)
    logits = blocks.linear(b, x, head)
    top = blocks.named(b, b.add("amax", logits, dims=(2,), keepdim=True), "head.top")
    shifted = b.add("sub", logits, top)
    mass = b.add("log", b.add("sum", b.add("exp", shifted), dims=(2,), keepdim=True))
    labels = b.add("reshape", "labels", shape=(rows, model.seq, 1))
    losses = b.add("sub", mass, b.add("take_along", shifted, labels, dim=2))
    losses = b.add("mul", b.add("reshape", losses, shape=(rows, model.seq)), "weight")
    loss = b.add("mul", blocks.total(b, losses), "inverse_count")
    b.output(b.add("add", loss, state.balance) if state.balance else loss, "loss", "loss")
    program = b.build()
    return Joint(shared(grad(program, stopped=[top]), {}), forward_nodes(program))


@dataclass(frozen=True)
class _State:
    """What goes from layer to layer: the residual stream and the load-balancing loss so far."""

    x: str
    balance: str = ""


def _layer(b: Builder, state: _State, model: Model, names: dict[str, str]) -> _State:
    """Attention and feed-forward block with their residuals, `[n, t, hidden]`."""
    x, m = state.x, model
    names = {n: blocks.rounded(b, w, m.compute) for n, w in names.items()}
    seen = b.add("rms_norm", x, names["attn_norm"], eps=m.eps)
    q, k, v = _projected(b, seen, model, names)
    scale = blocks.head_scale(m.score_dim)
    if "positions" in b.types:
        mask = blocks.position_mask(b, "positions", "positions")
        o = blocks.attend(b, q, k, v, mask, scale)
    else:
        o = b.add("sdpa", q, k, v, causal=True, scale=scale)
    x = b.add("add", x, blocks.linear(b, blocks.joined(b, o), names["wo"]))
    seen = b.add("rms_norm", x, names["mlp_norm"], eps=m.eps)
    if m.moe is None or "router" not in names:
        inner = blocks.gated(b, seen, names["gate"], names["up"])
        return _State(b.add("add", x, blocks.linear(b, inner, names["down"])), state.balance)
    gates, mask, probs = routing.routed(b, seen, names["router"], m.moe)
    places = m.moe.capacity or m.seq
    dispatch, combine = b.add_node("moe_routes", [gates, mask], {"capacity": places})
    slots = b.add("moe_dispatch", seen, dispatch)
    y = b.add("expert_glu", slots, names["gate"], names["up"], names["down"])
    x = b.add("add", x, b.add("moe_combine", y, combine))
    if m.moe.shared:
        inner = blocks.gated(b, seen, names["shared_gate"], names["shared_up"])
        x = b.add("add", x, blocks.linear(b, inner, names["shared_down"]))
    if not m.moe.aux_weight:
        return _State(x)
    gain = blocks.balance(b, mask, probs, m.balance_weight)
    return _State(x, b.add("add", state.balance, gain) if state.balance else gain)


def _projected(b: Builder, seen: str, m: Model, names: dict[str, str]) -> tuple[str, str, str]:
    """Queries, keys and values, with positions."""
    if m.mla is not None:
        return latent.projected(b, seen, lambda name: names[name], m, m.heads)
    q = blocks.heads(b, blocks.linear(b, seen, names["wq"]), m.heads)
    k = blocks.heads(b, blocks.linear(b, seen, names["wk"]), m.kv_heads)
    v = blocks.heads(b, blocks.linear(b, seen, names["wv"]), m.kv_heads)
    q, k = (blocks.rotated(b, y, "cos", "sin") for y in (q, k))
    k, v = (blocks.repeated(b, y, m.heads // m.kv_heads) for y in (k, v))
    return q, k, v


def _scanned(
    b: Builder,
    state: _State,
    model: Model,
    table: dict[str, Weight],
    length: int,
    bodies: dict[bool, Program],
) -> _State:
    """A run of layers as one repeated block over stacked parameters, one body for all alike."""
    carried = [state.x]
    if model.balance_weight and "router" in table:
        carried.append(b.add("full", shape=(), value=Fraction(0), dtype=F32))
    tables = [name for name in ("cos", "sin", "positions") if name in b.types]
    sparse = "router" in table
    if sparse not in bodies:
        bodies[sparse] = _body(
            model,
            {n: b.types[v] for n, v in zip(("x", "balance"), carried, strict=False)},
            table,
            {n: b.types[n] for n in tables},
        )
    results = b.add_node(
        "scan",
        [*carried, *(w.name for w in table.values()), *tables],
        {"length": length, "carry": len(carried), "xs": len(table), "reverse": False},
        body=bodies[sparse],
    )
    if not state.balance or len(results) == 1:
        return _State(results[0], results[1] if len(results) > 1 else state.balance)
    return _State(results[0], b.add("add", state.balance, results[1]))


def _body(
    model: Model,
    carried: dict[str, TensorType],
    table: dict[str, Weight],
    tables: dict[str, TensorType],
) -> Program:
    """One layer: carries, its parameters, and the tables by position."""
    inner = Builder("layer")
    before = [inner.input(name, type, "carry") for name, type in carried.items()]
    for name, w in table.items():
        inner.input(name, TensorType(w.shape[1:]), "xs")
    for name, type in tables.items():
        inner.input(name, type, "const")
    after = _layer(inner, _State(*before), model, {n: n for n in table})
    for value in (after.x, after.balance)[: len(carried)]:
        inner.output(value, "carry")
    return inner.build()
