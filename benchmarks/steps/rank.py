"""The forward program of one pipeline stage on one rank, with its collectives, and its gradients.

Tensor and sequence parallelism as in Megatron-LM (Shoeybi et al. 2019, Korthikanti et al. 2022),
vocabulary-parallel embedding and loss, fully sharded parameters as in FSDP, context parallelism.
The gradients are those of this local program: each collective is pulled back to its dual.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from benchmarks.steps import blocks, context, latent, routing
from benchmarks.steps.include import Joint, forward_nodes
from benchmarks.steps.model import Degrees, Model, local_batch, table_type
from benchmarks.steps.weights import Weight, layout, run_weights, stage_runs, weights
from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Affine, Attr, TensorType


class Rank:
    """A builder that knows the degrees. Collectives over a mesh dim of size 1 are left out."""

    def __init__(self, name: str, model: Model, degrees: Degrees) -> None:
        self.b = Builder(name, degrees.mesh)
        self.model, self.degrees = model, degrees
        self.stopped: list[str] = []
        self.reduced: dict[str, list[tuple[str, str]]] = {}
        self.table: dict[str, Weight] = {}
        self.in_block = False

    def collective(self, op: str, x: str, over: str | tuple[str, ...], **attrs: Attr) -> str:
        names = (over,) if isinstance(over, str) else over
        live = tuple(n for n in names if self.degrees.size(n) > 1)
        if not live:
            return x
        return self.b.add(op, x, mesh_dim=live[0] if len(live) == 1 else live, **attrs)

    def weight(self, name: str) -> str:
        """A parameter as the layer needs it: whole but for the part of this tensor rank."""
        w, value = self.table[name], blocks.rounded(self.b, name, self.model.compute)
        data = w.data(self.degrees)
        if self.degrees.zero < 3 or not data:
            return value
        dim = w.zero_dim(self.degrees) - self.in_block
        return self.collective("all_gather", value, data, dim=dim)

    def enter(self, x: str, label: str) -> str:
        """Into a block whose weights are split by columns."""
        if self.degrees.sequence_parallel:
            return self.collective("all_gather", x, "tp", dim=1)
        if self.degrees.tp == 1:
            return x
        name = blocks.named(self.b, x, f"entered.{label}")
        self.reduced[name] = [("tp", "sum")]
        return name

    def leave(self, x: str) -> str:
        """Out of a block whose last weight is split by rows."""
        if self.degrees.sequence_parallel:
            return self.collective("reduce_scatter", x, "tp", dim=1, reduce="sum")
        return self.collective("all_reduce", x, "tp", reduce="sum")

    def start(self, extent: int, name: str = "tp") -> int | Affine:
        """Where the part of a rank starts, `extent` being what a rank holds."""
        return Affine.of(0, {name: extent}) if self.degrees.size(name) > 1 else 0


def hidden_type(model: Model, degrees: Degrees) -> TensorType:
    """The residual stream of one micro-batch between blocks."""
    rows, seq = local_batch(model, degrees)
    if degrees.sequence_parallel:
        seq //= degrees.tp
    return TensorType((rows, seq, model.hidden))


def stage_weights(model: Model, degrees: Degrees, stage: int) -> list[Weight]:
    """The parameters that a stage holds."""
    return [w for w in weights(model, degrees) if stage in w.stages]


def local_type(weight: Weight, degrees: Degrees) -> TensorType:
    """The piece of a parameter on one rank between steps."""
    return TensorType(layout(weight, degrees, split=degrees.zero == 3).local_shape)


def batch_types(model: Model, degrees: Degrees) -> dict[str, TensorType]:
    """The inputs of one micro-batch."""
    shape = local_batch(model, degrees)
    kinds = {"ids": "i64", "labels": "i64", "weight": "f32"}
    return {name: TensorType(shape, dtype) for name, dtype in kinds.items()}


def stage_program(model: Model, degrees: Degrees, stage: int) -> Joint:
    """Forward and backward of one micro-batch on one stage.

    The first stage takes `ids`, others `x`; the last takes `labels`, `weight` and `inverse_count`
    and gives the loss, the share of this rank; others give `x` and take its cotangent `ct.x`.
    """
    r = Rank(f"stage{stage}", model, degrees)
    b, first, last = r.b, stage == 0, stage == degrees.pp - 1
    given = batch_types(model, degrees)
    if first:
        b.input("ids", given["ids"])
    else:
        b.input("x", hidden_type(model, degrees))
    if last:
        b.input("labels", given["labels"])
        b.input("weight", given["weight"])
        b.input("inverse_count", TensorType(()), "const")
    for name in degrees.tables:
        b.input(name, table_type(name, model.seq // degrees.cp, model), "const")
    for w in stage_weights(model, degrees, stage):
        r.table[w.name] = w
        b.param(w.name, local_type(w, degrees), w.path)
    state = State(_embedded(r) if first else "x")
    for run in stage_runs(model, degrees, stage):
        table = run_weights(model, degrees, stage, run)
        if degrees.scan_layers:
            state = _scanned(r, state, table, len(run))
        else:
            state = _layer(r, state, {n: w.name for n, w in table.items()}, str(run.start))
    along: dict[str, str] = {}
    if last:
        loss = _loss(r, state.x)
        b.output(b.add("add", loss, state.balance) if state.balance else loss, "loss", "loss")
    else:
        b.output(state.x, "output", "x")
        if state.balance:
            along[state.x] = b.input("ct.x", b.types[state.x], "cotangent", "x")
            b.output(state.balance, "loss", "loss")
    program = b.build()
    wrt = [*([] if first else ["x"]), *r.table]
    joint = grad(program, wrt=wrt, stopped=r.stopped, reduced=r.reduced, along=along)
    return Joint(joint, forward_nodes(program))


def _embedded(r: Rank) -> str:
    table = r.weight("embed")
    rows = r.b.add("take", table, "ids", dim=0, offset=r.start(r.b.types[table].shape[0]))
    return r.leave(rows)


@dataclass(frozen=True)
class State:
    """What goes from layer to layer: the residual stream and the load-balancing loss so far."""

    x: str
    balance: str = ""


def _layer(r: Rank, state: State, names: dict[str, str], label: str) -> State:
    """Attention and feed-forward block with their residuals, `[n, t, hidden]`."""
    x, b, m, d = state.x, r.b, r.model, r.degrees
    seen = b.add("rms_norm", x, r.weight(names["attn_norm"]), eps=m.eps)
    q, k, v = _projected(r, seen, names, f"{label}.attention")
    o, stopped = context.attention(b, q, k, v, m, d, f"{label}.attention")
    r.stopped += stopped
    o = blocks.linear(b, blocks.joined(b, o), r.weight(names["wo"]))
    x = b.add("add", x, r.leave(o))
    seen = b.add("rms_norm", x, r.weight(names["mlp_norm"]), eps=m.eps)
    if "router" in names:
        return _experts(r, State(x, state.balance), seen, names, label)
    y = _feed_forward(r, seen, names, f"{label}.mlp")
    return State(b.add("add", x, y), state.balance)


def _projected(r: Rank, seen: str, names: dict[str, str], label: str) -> tuple[str, str, str]:
    """Queries, keys and values of the heads of this rank, with positions."""
    b, m, tp = r.b, r.model, r.degrees.tp
    if m.mla is not None:
        return latent.projected(
            b,
            seen,
            lambda name: r.weight(names[name]),
            m,
            m.heads // tp,
            lambda x, what: r.enter(x, f"{label}.{what}"),
        )
    seen = r.enter(seen, label)
    q = blocks.heads(b, blocks.linear(b, seen, r.weight(names["wq"])), m.heads // tp)
    k = blocks.heads(b, blocks.linear(b, seen, r.weight(names["wk"])), m.kv_heads // tp)
    v = blocks.heads(b, blocks.linear(b, seen, r.weight(names["wv"])), m.kv_heads // tp)
    return blocks.rotated(b, q, "cos", "sin"), blocks.rotated(b, k, "cos", "sin"), v


def _feed_forward(r: Rank, seen: str, names: dict[str, str], label: str, prefix: str = "") -> str:
    """SwiGLU, its inner values split by columns."""
    gate, up, down = (r.weight(names[f"{prefix}{n}"]) for n in ("gate", "up", "down"))
    inner = blocks.gated(r.b, r.enter(seen, label), gate, up)
    return r.leave(blocks.linear(r.b, inner, down))


def _experts(r: Rank, state: State, seen: str, names: dict[str, str], label: str) -> State:
    """Experts held by the ranks of ep: tokens go to them and come back by all_to_all."""
    b, moe, parallel = r.b, r.model.moe, r.degrees.ep > 1
    assert moe is not None
    gates, mask, probs = routing.routed(b, seen, r.weight(names["router"]), moe)
    places = moe.capacity or r.model.seq
    dispatch, combine = b.add_node("moe_routes", [gates, mask], {"capacity": places})
    slots = r.enter(b.add("moe_dispatch", seen, dispatch), f"{label}.experts")
    if parallel:
        slots = b.add("all_to_all", slots, mesh_dim="ep", split_dim=1, concat_dim=0)
    gate, up, down = (r.weight(names[n]) for n in ("gate", "up", "down"))
    y = r.leave(b.add("expert_glu", slots, gate, up, down))
    if parallel:
        y = b.add("all_to_all", y, mesh_dim="ep", split_dim=0, concat_dim=1)
    x = b.add("add", state.x, b.add("moe_combine", y, combine))
    if moe.shared:
        x = b.add("add", x, _feed_forward(r, seen, names, f"{label}.shared", "shared_"))
    if not moe.aux_weight:
        return State(x)
    gain = blocks.balance(b, mask, probs, r.model.balance_weight)
    return State(x, b.add("add", state.balance, gain) if state.balance else gain)


def _scanned(r: Rank, state: State, table: dict[str, Weight], length: int) -> State:
    """A run of layers as one repeated block over stacked parameters.

    Names inside do not tell the stage, so that equal blocks of all stages are the same program.
    """
    inner = Rank("layer", r.model, r.degrees)
    inner.in_block = True
    inner.table = table
    carried = [state.x]
    if r.model.balance_weight and "router" in table:
        carried.append(r.b.add("full", shape=(), value=Fraction(0), dtype="f32"))
    kinds = zip(("x", "balance"), carried, strict=False)
    before = [inner.b.input(n, r.b.types[v], "carry") for n, v in kinds]
    for name, w in inner.table.items():
        inner.b.input(name, TensorType(local_type(w, r.degrees).shape[1:]), "xs")
    for name in r.degrees.tables:
        inner.b.input(name, r.b.types[name], "const")
    after = _layer(inner, State(*before), {n: n for n in inner.table}, "layer")
    for value in (after.x, after.balance)[: len(carried)]:
        inner.b.output(value, "carry")
    results = r.b.add_node(
        "scan",
        [*carried, *(w.name for w in table.values()), *r.degrees.tables],
        {"length": length, "carry": len(carried), "xs": len(table), "reverse": False},
        body=inner.b.build(),
    )
    r.reduced.update(inner.reduced)
    r.stopped += inner.stopped
    return State(*results)


def _loss(r: Rank, x: str) -> str:
    """Cross entropy of the tokens of this rank, over the count of all tokens."""
    b, m = r.b, r.model
    x = r.enter(b.add("rms_norm", x, r.weight("norm"), eps=m.eps), "head")
    head = b.add("permute", r.weight("embed"), dims=(1, 0)) if m.tied else r.weight("head")
    logits = blocks.linear(b, x, head)
    own = b.types[head].shape[1]
    top = b.add("amax", logits, dims=(2,), keepdim=True)
    top = blocks.named(b, r.collective("all_reduce", top, "tp", reduce="max"), "head.top")
    r.stopped.append(top)
    shifted = b.add("sub", logits, top)
    norm = b.add("sum", b.add("exp", shifted), dims=(2,), keepdim=True)
    norm = b.add("log", r.collective("all_reduce", norm, "tp", reduce="sum"))
    rows, seq = b.types["labels"].shape
    labels = b.add("reshape", "labels", shape=(rows, seq, 1))
    mine = b.add("take_along", shifted, labels, dim=2, offset=r.start(own))
    losses = b.add("sub", norm, r.collective("all_reduce", mine, "tp", reduce="sum"))
    losses = b.add("mul", b.add("reshape", losses, shape=(rows, seq)), "weight")
    return b.add("mul", blocks.total(b, losses), "inverse_count")
