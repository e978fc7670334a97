"""Traces one rank, or one device: forward, backward and what follows, as one graph of aten ops.

The module is run once, as it is: its own backwards, its hooks and what it writes in place are
recorded as they happen.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

import inspect
import os
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import fx, nn
from torch.distributed.tensor import DTensor
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import disable_autocast_cache, make_fx
from torch.fx.traceback import preserve_node_meta
from torch.utils import checkpoint

from shardproof.synthesis.frontends.torch import torch_api
from shardproof.synthesis.frontends.torch.asked.watching import watching
from shardproof.synthesis.frontends.torch.aten.table import TABLE, Emit
from shardproof.synthesis.frontends.torch.chosen import called
from shardproof.synthesis.frontends.torch.decompose import decompositions
from shardproof.synthesis.frontends.torch.digest import Digest
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.provenance import Provenance
from shardproof.synthesis.frontends.torch.ranks import averaging, dtensors
from shardproof.synthesis.frontends.torch.ranks.arguments import nested
from shardproof.synthesis.frontends.torch.ranks.collectives import Seen, Watch, storage
from shardproof.synthesis.frontends.torch.ranks.draws import Draws, reaching
from shardproof.synthesis.frontends.torch.ranks.groups import noted
from shardproof.synthesis.frontends.torch.ranks.pairing import GRAD_OF_INPUT
from shardproof.synthesis.frontends.torch.ranks.pipelines import Pipeline
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.ranks.recording import Recorder, copied
from shardproof.synthesis.frontends.torch.ranks.sharded import (
    over_inputs,
    reshard,
    uneven,
    whole_of,
)
from shardproof.synthesis.frontends.torch.ranks.states import (
    KeptError,
    left_as_zeros,
    writes,
)
from shardproof.synthesis.frontends.torch.ranks.steps import Step
from shardproof.synthesis.frontends.torch.ranks.writes import without_writes
from shardproof.synthesis.frontends.torch.results import named_outputs
from shardproof.synthesis.frontends.torch.trace import (
    Traced,
    assignments_written,
    uncompared,
    ungraded,
)
from shardproof.verifier.kernel.program.types import NO_MESH, NOWHERE

COTANGENT = "shardproof_frontend::cotangent"
REPLACED = "replaced"
"""The role of what stands, after a step, where another tensor stood before it."""
LEFT = "left"
"""That of a gradient, which counts where a step reads what the step before left in it."""


@torch.library.custom_op(COTANGENT, mutates_args=())
def _cotangent(like: torch.Tensor, index: int) -> torch.Tensor:
    raise CaptureError("a cotangent holds no value")


@_cotangent.register_fake
def _(like: torch.Tensor, index: int) -> torch.Tensor:
    return torch.empty_like(like)


@dataclass
class Order:
    """What to trace."""

    model: nn.Module
    call: Callable[[dict[str, torch.Tensor]], Any]
    """Calls the module with the inputs, by the names of the one-device model."""
    inputs: dict[str, torch.Tensor]
    """Fake tensors."""
    result_names: tuple[str, ...]
    watch: Watch
    gradients: bool = True
    no_grad: tuple[str, ...] = ()
    """Inputs of which no gradient is asked."""
    after_backward: Callable[[nn.Module], Any] | None = None
    recorded: bool = True
    """Whether autograd records the forward; else it runs under `torch.no_grad()`."""
    state: bool = False
    """Whether what it changes of its buffers is an output; else it may not change them."""
    digest: Digest | None = None
    """Writes down what is run, to be compared."""
    step: Step | None = None
    """The training step that `call` runs: what it leaves in parameters is an output too."""


@dataclass
class Followed:
    """A traced module."""

    traced: Traced
    outputs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(role, name) of what `forward` returned, in order."""
    unreached: list[str] = field(default_factory=list[str])
    """Trainable parameters that the backward gives no gradient."""
    placed: list[Any] = field(default_factory=list[Any])
    """What `forward` returned, in order: tensors, of which some may be DTensors."""
    notes: list[str] = field(default_factory=list[str])
    """What is taken for granted, in sentences."""
    pieces: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    """Padded pieces of parameters, by name: a run has fewer rows."""


def cut_in(order: Order) -> dict[str, torch.Tensor]:
    """Whole tensors for parameters with uneven rows, by name. None where the owner's code follows
    the backward: it would see gradients with rows that a run has not."""
    return uneven(order.model) if order.step is None and order.after_backward is None else {}


def follow(order: Order) -> Followed:
    """Run and record. Call inside the fake mode.

    Raises:
        CaptureError: no tensor comes back, something is changed that outlives the call, a
            collective is not covered or not waited for.
        Exception: whatever the user's code raises.
    """
    torch_api.check_version()
    model = order.model
    params: dict[str, Any] = dict(model.named_parameters())
    buffers: dict[str, Any] = dict(model.named_buffers())
    kept = {} if order.step is None else order.step.kept()
    buffers |= kept
    found = Followed(Traced(fx.Graph(), None))
    roles: list[tuple[str, str]] = []

    apart = cut_in(order)
    held = [{k: dtensors.local(t) for k, t in group.items()} for group in (params, buffers)]
    held[0] |= apart
    given = (*held, dict(order.inputs))
    rooms = () if order.step is None else order.step.rooms.values()
    recorder = Recorder([t for group in given for t in group.values()], rooms)
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        stack.enter_context(preserve_node_meta())
        stack.enter_context(disable_autocast_cache())
        # Checkpointing asks by the key of the recorder, and does otherwise where it compiles.
        stack.enter_context(patch.object(checkpoint, "_is_compiling", lambda *_: False))
        with recorder:
            values = run(order, params, apart, given[-1], found, roles)
            recorder.returns([*values, *_moved(recorder, given, order, roles)])
        _none_padded(recorder, found.pieces, order.watch.places.root)
        if order.step is not None:
            _none_replaced(model, params)
        _none_kept(recorder, order.watch)
        _no_strangers(recorder)
        graph, module = without_writes(recorder.graph), recorder.held
        if graph is None:
            changing = ("buffer",) if order.state else ()
            changing += ("parameter",) if order.step is not None else ()
            places = Provenance(order.watch.places.root)
            module = _without_writes(recorder, given, changing, places)
            graph = module.graph
    found.traced = _described(graph, module, given, roles)
    if order.step is not None:
        order.step.without_logs(found.traced)
        gradients = filter(order.step.is_gradient, found.traced.state)
        left_as_zeros(found.traced, {*order.step.rooms, *gradients})
    read = {name for node, name in found.traced.buffers.items() if node.users}
    found.traced.given |= (kept.keys() & read) - found.traced.state
    if order.step is not None:
        order.step.fix(found.traced)
        _compare_every(found.traced)
    found.traced.notes = found.notes
    return found


def order_of_one(
    model: nn.Module, inputs: dict[str, Any], result_names: tuple[str, ...], root: str
) -> Order:
    """A model on one device, as it runs: backwards that are written by hand are part of that. What
    it changes of its buffers is an output."""
    taken = [*dict(model.named_parameters()), *inputs]
    files = (inspect.getsourcefile(type(m)) for m in model.modules())
    libraries = frozenset(f for f in files if f and f"{os.sep}torch{os.sep}" not in f)
    watch = Watch(0, NO_MESH, Places(root, libraries), Seen(), Draws(taken))
    return Order(
        model,
        lambda given: model(**nested(type(model).forward, given)),
        inputs,
        result_names,
        watch,
        no_grad=tuple(inputs),
        state=True,
    )


def follow_one(order: Order) -> Traced:
    """Trace a model on one device. Raises what `follow` raises."""
    followed, watch = follow(order), order.watch
    if watch.seen.doubts:
        raise watch.seen.doubts[0][0]
    traced = followed.traced
    traced.draws = reaching(watch.draws.made, traced)
    lost = {("grad", name) for name in followed.unreached}
    traced.outputs = [out for out in traced.outputs if out[:2] not in lost]
    cotangents(followed.outputs)
    return traced


def run(
    order: Order,
    params: dict[str, Any],
    apart: dict[str, torch.Tensor],
    inputs: dict[str, torch.Tensor],
    found: Followed,
    roles: list[tuple[str, str]],
) -> list[torch.Tensor]:
    """Call the module once, and its backward; what `roles` then names."""
    watch, model = order.watch, order.model
    leaves: dict[str, Any] = {}
    passed: dict[str, Any] = {}
    held = [*model.parameters(), *model.buffers()]
    if order.step is not None:
        held += order.step.kept().values()
    watch.stepping = order.step is not None
    watch.shadows.unknown = {storage(dtensors.local(t))._cdata for t in held}
    with ExitStack() as stack:
        stack.enter_context(watching(watch.places))
        if order.digest is not None:
            stack.enter_context(order.digest)
        stack.enter_context(watch)
        stack.enter_context(noted(watch.seen.events, watch.places))
        if not order.recorded:
            stack.enter_context(torch.no_grad())
        for name, value in inputs.items():
            if order.gradients and value.is_floating_point() and name not in order.no_grad:
                leaves[name] = value.detach().requires_grad_()
                passed[name] = leaves[name].clone()
            else:
                passed[name] = value.clone()
        mine = {name: storage(t) for name, t in passed.items()}
        found.pieces = over_inputs(model, apart)
        with watch.within(model), watch.within_backwards(), assignments_written(model):
            result = called(lambda: order.call(passed))
        named, loss = named_outputs(result, order.result_names)
        if not named and not isinstance(model, Pipeline) and order.step is None:
            raise CaptureError(f"{type(model).__name__}.forward returns no tensor")
        found.placed = [v for _, v in named]
        found.notes = uncompared(result)
        named = [(n, _plain(n, v)) for n, v in named]
        for name, held in mine.items():
            if any(held._cdata == w._cdata for w in watch.seen.written):
                raise CaptureError(
                    f"forward changes its argument {name} in place, which its caller would see",
                    hint="let it work on a copy: clone()",
                )
        found.outputs = [("loss" if n == loss else "output", n) for n, _ in named]
        values = [v for _, v in named]
        roles[:] = list(found.outputs)
        out = list(values)
        if order.digest is not None:
            order.digest.log.returned = [order.digest.name(v) for v in values]
            order.digest.log.talks.append(_in_time(watch))
            order.digest.log.forward_talks = len(order.digest.log.talks)
        if order.gradients:
            found.notes += ungraded(named, loss)
            out += _gradients(order, params, leaves, named, loss, found, roles)
        if order.step is not None:
            for name, value in order.step.replaced():
                roles.append((LEFT if order.step.is_gradient(name) else REPLACED, name))
                out.append(value)
        averaging.refuse_unfinished(model)
        watch.landed()
        reshard(model)
        if order.digest is not None:
            order.digest.log.talks.append(_in_time(watch))
            held = dict(model.named_buffers())
            held |= {} if order.step is None else order.step.state()
            kept = {"parameter": params, "buffer": held, "argument": passed}
            left = {f"{kind} {n}": t for kind, group in kept.items() for n, t in group.items()}
            grads = ((n, t) for (role, n), t in zip(roles, out, strict=True) if role == "grad")
            left |= {f"gradient {n}": t for n, t in grads}
            order.digest.log.left = {
                k: order.digest.name(dtensors.local(t)) for k, t in left.items()
            }
    return out


def _in_time(watch: Watch) -> str:
    """What the rank started and waited for so far."""
    return str([(e.kind, e.ranks, e.what, e.of) for e in watch.seen.events])


def _gradients(
    order: Order,
    params: dict[str, Any],
    leaves: dict[str, Any],
    named: list[tuple[str, torch.Tensor]],
    loss: str | None,
    found: Followed,
    roles: list[tuple[str, str]],
) -> list[torch.Tensor]:
    """Run the backward, and what the user does after it; the gradients of parameters and
    inputs."""
    ops: Any = torch.ops
    roots, given = [], []
    for index, (name, value) in enumerate(named):
        if not (value.is_floating_point() and value.requires_grad):
            continue
        if loss is None or name == loss:
            roots.append(value)
            given.append(ops.shardproof_frontend.cotangent(value.detach(), index))
    order.watch.follow_back(roots)
    if roots:
        torch.autograd.backward(roots, given)
    order.watch.undone = -1
    if order.after_backward is not None:
        with torch.no_grad():
            order.after_backward(order.model)
    out: list[torch.Tensor] = []
    for name, p in params.items():
        if p.requires_grad:
            roles.append(("grad", name))
            grad = _grad(p)
            out.append(whole_of(order.model, p, grad) if order.after_backward is None else grad)
            if p.grad is None:
                found.unreached.append(name)
    for name, leaf in leaves.items():
        roles.append(("grad", GRAD_OF_INPUT + name))
        out.append(_grad(leaf))
    return out


def _grad(leaf: Any) -> torch.Tensor:
    """The gradient; zeros where there is none, as an optimizer takes it."""
    grad = dtensors.gradient(leaf)
    return torch.zeros_like(dtensors.local(leaf)) if grad is None else grad


def _plain(name: str, value: Any) -> torch.Tensor:
    """The piece of an output. Raises CaptureError for a DTensor that is a pending sum."""
    if not isinstance(value, DTensor):
        return value
    if any(p.is_partial() for p in value.placements):
        raise CaptureError(
            f"the output {name} is a DTensor with a pending sum",
            hint="redistribute it before it is returned",
        )
    return value.to_local()


def _no_strangers(recorder: Recorder) -> None:
    """Refuse parameters that the module does not own: they would be constants."""
    for node in recorder.graph.find_nodes(op="get_attr"):
        if getattr(recorder.held, node.target).requires_grad:
            raise CaptureError(
                "forward reads a tensor that needs a gradient and is not a parameter of the module",
                hint="register it as a parameter: self.name = nn.Parameter(...)",
            )


def _gathered(flat: fx.Node) -> bool:
    """Whether a piece goes into an all-gather of fully_shard, and nowhere else."""
    sent = [n for n in flat.users if n.target is _aten.cat.default]
    return len(sent) == len(flat.users) and all(
        "all_gather" in str(n.target) for cat in sent for n in cat.users
    )


def _none_padded(recorder: Recorder, pieces: dict[str, torch.Tensor], root: str) -> None:
    """Refuse code that computes with a padded piece: its rows are not those of a run."""
    for name, piece in pieces.items():
        reading = [n for n in recorder.nodes[id(piece)][1].users if not _gathered(n)]
        if reading:
            at = Provenance(root).source(reading[0])
            raise CaptureError(
                f"the code reads this rank's rows of {name}, which fully_shard splits unevenly",
                file=at.file,
                line=at.line,
                hint="let the rows divide among the ranks",
            )


def _moved(
    recorder: Recorder,
    given: tuple[dict[str, Any], ...],
    order: Order,
    roles: list[tuple[str, str]],
) -> list[torch.Tensor]:
    """What stands where a step set the `data` of a parameter or of its state; `roles` names it.

    Raises:
        CaptureError: the call is no step; what is read lies in memory that is written for another.
    """
    names = [(kind, n) for kind, g in zip(_KINDS, given, strict=True) for n in g]
    written = {held._cdata for held in order.watch.seen.written}
    found = list[torch.Tensor]()
    for index, value in recorder.moved(written).items():
        kind, name = names[index]
        if order.step is None or kind == "argument":
            raise CaptureError(
                f"the module changes the {kind} {name} by setting its data",
                hint="write into it (copy_), or leave it as it is",
            )
        role = LEFT if order.step.is_gradient(name) else REPLACED
        if (role, name) not in roles:
            roles.append((role, name))
            found.append(value)
    shared = [" ".join(names[index]) for index in recorder.shared(written)]
    if order.step is not None and shared:
        raise CaptureError(
            f"a step reads {' and '.join(shared)}, which share memory that it writes into",
            hint="keep a copy: clone()",
        )
    return found


def _none_replaced(model: nn.Module, params: dict[str, Any]) -> None:
    """Refuse a step that puts another parameter in the place of one."""
    for name, p in model.named_parameters():
        if params.get(name) is not p:
            raise CaptureError(
                f"a step puts another parameter in the place of {name}",
                hint="write into it under torch.no_grad(), as optimizers do",
            )


def _none_kept(recorder: Recorder, watch: Watch) -> None:
    """Raises KeptError where a tensor is written that a module keeps as a plain attribute."""
    for node, held in writes(recorder.graph):
        kept = getattr(recorder.held, str(held.target), None)
        name = watch.attributes.get(storage(kept)._cdata, "") if kept is not None else ""
        if name:
            at = Provenance(watch.places.root).source(node)
            raise KeptError(name, file=at.file, line=at.line, text=at.text)


def _without_writes(
    recorder: Recorder,
    given: tuple[dict[str, Any], ...],
    changing: Collection[str],
    places: Provenance,
) -> Any:
    """The same graph, traced again, with writes into tensors made new tensors. One last write may
    stay into each that is changed, of the kinds that may be.

    Raises:
        CaptureError: another is changed.
    """
    flat = [value for group in given for value in group.values()]
    names = [(kind, n) for kind, g in zip(_KINDS, given, strict=True) for n in g]

    def run(*args: Any) -> Any:
        again = fx.Interpreter(recorder.held, graph=recorder.graph)
        return again.run(*args, enable_io_processing=False)

    with torch.no_grad():
        # Writes are made other ops here, of which some are to be opened.
        whole = functionalize(run, remove="mutations")
        plain = make_fx(whole, decomposition_table=decompositions())(*flat)
    placeholders = [n for n in plain.graph.nodes if n.op == "placeholder"]
    owner = dict(zip(placeholders, names, strict=True))
    for node in plain.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None or not schema.is_mutable:
            continue
        kind, name = owner.get(node.args[0] if node.args else None, ("", ""))
        if kind in changing and node.target is _aten.copy_.default and not node.users:
            continue
        what = f"the {kind} {name}" if kind else "a tensor that outlives the call"
        number = names.index((kind, name)) if kind else -1
        wrote = (n for n, base in writes(recorder.graph) if base.name == f"given_{number}")
        at = next(map(places.source, wrote), NOWHERE)
        raise CaptureError(
            f"the module changes {what} in place",
            file=at.file,
            line=at.line,
            text=at.text,
            hint="return the new value, or give what must not be changed as a copy",
        )
    return plain


_aten: Any = torch.ops.aten
_KINDS = ("parameter", "buffer", "argument")


def _described(
    graph: fx.Graph, module: Any, given: tuple[dict[str, Any], ...], roles: list[tuple[str, str]]
) -> Traced:
    traced = Traced(graph, module)
    tables = (traced.params, traced.buffers, traced.inputs)
    keys = [(table, name) for table, group in zip(tables, given, strict=True) for name in group]
    nodes = list(graph.nodes)
    for node, (table, name) in zip((n for n in nodes if n.op == "placeholder"), keys, strict=True):
        table[node] = name
    returned: Any = nodes[-1].args[0]
    traced.outputs = [(role, name, v) for (role, name), v in zip(roles, returned, strict=True)]
    traced.outputs, replaced = (
        [o for o in traced.outputs if (o[0] in (REPLACED, LEFT)) == new] for new in (False, True)
    )
    held = {**traced.params, **traced.buffers}
    stand = {name for _, name, _ in replaced}
    for node in nodes:
        if node.op == "call_function" and node.target is _aten.copy_.default:
            name = held[node.args[0]]
            if name not in stand and copied(node.args[1]) is not node.args[0]:
                traced.state.add(name)
                traced.outputs.append(("output", name, node.args[1]))
            graph.erase_node(node)
    read = {name for node, name in held.items() if node.users}
    for role, name, value in replaced:
        if role == REPLACED or name in read:
            traced.state.add(name)
            traced.outputs.append(("output", name, value))
    return traced


def _compare_every(traced: Traced) -> None:
    """What a step leaves in a parameter is an output, also of one that it leaves as it is."""
    for node, name in traced.params.items():
        if name not in traced.state:
            traced.state.add(name)
            traced.outputs.append(("output", name, node))


def known_groups(graph: fx.Graph, watch: Watch, places: Provenance) -> None:
    """Every group of a collective in the graph, those of ops inside of tensors' own code too."""
    for node in graph.nodes:
        space = getattr(node.target, "namespace", "")
        if node.op != "call_function" or space not in ("_c10d_functional", "_dtensor"):
            continue
        group = node.args[-1]
        if isinstance(group, str):
            try:
                watch.along(group)
            except CaptureError as problem:
                at = places.source(node)
                raise CaptureError(
                    problem.message, file=at.file, line=at.line, text=at.text, hint=problem.hint
                ) from None


def cotangents(outputs: Sequence[tuple[str, str]]) -> None:
    """From now on, the op that stands for a cotangent is an input named after its output; that of
    a loss is 1."""

    def rule(e: Emit, like: str, index: int) -> str:
        role, path = outputs[index]
        if role == "loss":
            return e.full(1, e.shape(like), e.type(like).dtype)
        return e.b.input(f"cotangent.{path}", e.type(like), "cotangent", path)

    TABLE[f"{COTANGENT}.default"] = rule
