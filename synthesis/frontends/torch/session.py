"""Captures a model in this process. Runs inside the worker: the user's code is imported here."""

# pyright: basic

import resource
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from shardproof.synthesis.frontends.torch import compiled, depth as depths, sparse_buffers
from shardproof.synthesis.frontends.torch.asked.sources import sources_watched
from shardproof.synthesis.frontends.torch.asked.watching import watching
from shardproof.synthesis.frontends.torch.asserts import (
    decided,
    granted,
    leave_out_again,
    left_out,
)
from shardproof.synthesis.frontends.torch.aten.table import MASKS
from shardproof.synthesis.frontends.torch.buffers import filled, label, persistent
from shardproof.synthesis.frontends.torch.built_draws import BuiltDraws
from shardproof.synthesis.frontends.torch.captured import Captured, ModelFacts
from shardproof.synthesis.frontends.torch.chosen import read_whole, reads_whole
from shardproof.synthesis.frontends.torch.depth import members
from shardproof.synthesis.frontends.torch.errors import CaptureError, HandwrittenError
from shardproof.synthesis.frontends.torch.facts import read_facts, read_files
from shardproof.synthesis.frontends.torch.fused import separate_products
from shardproof.synthesis.frontends.torch.homes import root_of
from shardproof.synthesis.frontends.torch.inputs import find_inputs, from_tables, torch_types
from shardproof.synthesis.frontends.torch.lower import Lowered, Lowering
from shardproof.synthesis.frontends.torch.materialize import (
    fake_inputs,
    fake_mode,
    parameters_on_meta,
    take_buffers,
    tied_groups,
    to_fake,
)
from shardproof.synthesis.frontends.torch.modes import Modes, compare_modes, mode_of
from shardproof.synthesis.frontends.torch.opened import Opened
from shardproof.synthesis.frontends.torch.provenance import Methods, Provenance
from shardproof.synthesis.frontends.torch.prune import prune, refuse_constant
from shardproof.synthesis.frontends.torch.ranks.draws import drawn_inputs, ranges
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.request import (
    CaptureRequest,
    Progress,
    held_in_containers,
    ignored_in,
    is_library,
    split_target,
)
from shardproof.synthesis.frontends.torch.rolling.depth import Depth, choose, roll_program
from shardproof.synthesis.frontends.torch.rolling.roll import NotRolledError
from shardproof.synthesis.frontends.torch.surroundings import Surroundings
from shardproof.synthesis.frontends.torch.switching import in_mode
from shardproof.synthesis.frontends.torch.target import EXPERTS, TORCH_DTYPES, Target, find
from shardproof.synthesis.frontends.torch.torch_api import no_gradient_hooks, plain_kernels
from shardproof.synthesis.frontends.torch.trace import Traced, trace
from shardproof.synthesis.frontends.torch.uninitialized_reads import refuse_unwritten
from shardproof.verifier.kernel.program.program import Program


@dataclass
class Clock:
    """Seconds by phase, told to the caller as each phase begins."""

    progress: Progress
    timings: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.progress(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - start


def capture_here(request: CaptureRequest, progress: Progress) -> Captured:
    """Capture in this process.

    Raises:
        CaptureError: the request or the model does not fit.
        Exception: whatever the user's code raises.
    """
    plain_kernels()
    split_target(request.target)
    opened = None if is_library(request.target) else Opened(root_of(request.target))
    with sources_watched():
        return _captured(request, Clock(progress), opened)


def _captured(request: CaptureRequest, clock: Clock, opened: Opened | None) -> Captured:
    read = Surroundings(Places(root_of(request.target)))
    with clock.phase("import"), read.watched():
        target = find(request)
    places = Provenance(target.root)
    with clock.phase("build"), read.watched():
        whole, options = _depths(request, target)
    captured: Captured | None = None
    for depth in options:
        try:
            session = Session(request, target, places, clock, depth, whole, opened, read)
            captured = decided(session.run)
            break
        except NotRolledError as problem:
            clock.progress(f"{problem}; tracing more layers")
    assert captured is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return replace(captured, timings=dict(clock.timings), peak_bytes=peak)


def _depths(request: CaptureRequest, target: Target) -> tuple[nn.Module | None, list[Depth | None]]:
    """The whole model without memory, and the depths to try, best first; None traces all."""
    config = target.hf_config
    layers = getattr(config, "num_hidden_layers", None)
    if request.full_depth or not request.rolled or not isinstance(layers, int):
        return None, [None]
    try:
        whole = depths.build_whole(target.build)
    except (RuntimeError, NotImplementedError):
        return None, [None]
    kinds = depths.layer_kinds(whole, layers, config)
    options: list[Depth | None] = []
    for margin in (0, 1):
        depth = choose(kinds, margin)
        if depth is None:
            continue
        override = depths.shorter_config(config, depth)
        short = depths.build_whole(partial(target.build, **override))
        short_config: Any = short.config
        if depths.same_kinds(kinds, depths.layer_kinds(short, depth.layers, short_config), depth):
            options.append(depth)
    return whole, [*options, None]


@dataclass
class Session:
    """The capture of a model at one depth; None traces all layers of `whole`, or of it built anew
    where that is None too."""

    request: CaptureRequest
    target: Target
    places: Provenance
    clock: Clock
    depth: Depth | None = None
    whole: nn.Module | None = None
    opened: Opened | None = None
    """What is read of the owner's files until now."""
    read: Surroundings = field(default_factory=lambda: Surroundings(Places("")))
    """What was read before of the surroundings, and what is read now."""

    def run(self) -> Captured:
        """Raises what `capture_here` raises, and NotRolledError: more layers are to be traced."""
        lowered, facts, model, modes = self._flat()
        with self.clock.phase("lower"):
            flat = prune(lowered.program)
            refuse_constant(flat, facts.class_name)
            unused, untrained = unreached(flat, facts)
            flat, backward = _separate(flat, lowered.backward)
        with self.clock.phase("roll"):
            lists = block_lists(model) if self.request.rolled else []
            rolled = roll_program(flat, backward, lists, self.depth)
        used = {i.name for i in rolled.program.inputs}
        untrained = untrained if self.request.gradients else ()
        asserts = tuple(dict.fromkeys((*modes.asserts, *left_out())))
        facts = replace(
            facts,
            groups=rolled.groups,
            unused=unused,
            untrained=untrained,
            asserts=asserts,
            whole=reads_whole(),
            returned=self.target.result_names,
        )
        return Captured(
            rolled.program,
            {k: v for k, v in lowered.consts.items() if k in used},
            facts,
            (
                *self._assumptions(facts, lowered, modes),
                *sparse_buffers.told(model),
                *compiled.told(),
            ),
        )

    def _flat(self) -> tuple[Lowered, ModelFacts, nn.Module, Modes]:
        """The flat program, with the facts of the whole model, the model traced and what is known
        of its modes."""
        request, target, depth, clock = self.request, self.target, self.depth, self.clock
        with clock.phase("build"):
            override = depths.shorter_config(target.hf_config, depth) if depth else {}
            places = Places(target.root)
            with ExitStack() as stack:
                stack.enter_context(parameters_on_meta())
                stack.enter_context(no_gradient_hooks())
                stack.enter_context(self.read.watched())
                stack.enter_context(BuiltDraws(places))
                stack.enter_context(watching(places, real=True, building=True))
                model = target.build(**override)
            self.places.methods = Methods.of(model)
            dtype = TORCH_DTYPES[request.dtype]
            model = prepare(model, dtype, request.gradients)
            whole = model
            if depth is not None and self.whole is not None:
                whole = prepare(self.whole, dtype, request.gradients)
            inputs = find_inputs(request, target, model)
            facts = read_facts(whole, target, request.target, inputs, self.places)
            buffers, kept = take_buffers(model), persistent(model)
            canonical = {n: g[0] for g in tied_groups(model) for n in g}
        with clock.phase("trace"):
            with fake_mode():
                to_fake(model)
                kwargs = fake_inputs(torch_types(inputs))
            modes = compare_modes(model, kwargs, request.gradients, target.module, target.root)
            leave_out_again(modes.asserts, model)
            if modes.whole:
                read_whole()
            facts = replace(facts, train=modes.train)
            with mode_of(model, facts.train, self.places.root):
                traced = self._traced(model, kwargs, modes)
            inputs = from_tables(traced, inputs)
            facts = replace(facts, inputs=inputs)
            if lost := sorted({*modes.state} - traced.state):
                raise CaptureError(f"forward changes the buffer {lost[0]}, and how is not followed")
            if modes.state:
                modes = replace(modes, state=tuple(sorted(traced.state)))
            if modes.unread:
                raise CaptureError(
                    f"the model cannot be run to compare train and eval mode: {modes.unread}"
                )
            refuse_unwritten(traced, self.places)
            files = tuple(
                read_files(whole, target, self.places, self.opened.files() if self.opened else ())
            )
            facts = replace(facts, files=files, draws=tuple(traced.draws.values()))
        with clock.phase("lower"):
            held = filled(traced, buffers, kept, alike=True)
            drawn_inputs(traced.draws)
            lowered = Lowering(
                traced,
                held.values,
                self.places,
                canonical,
                facts.class_name,
                filled=held.names,
                below={i.name: i.limit for i in inputs} | ranges(traced.draws),
                ignored=ignored_in(inputs),
            ).run()
        return lowered, facts, model, modes

    def _traced(self, model: nn.Module, kwargs: dict[str, Any], modes: Modes) -> Traced:
        """The joint graph; of a model that draws numbers, and of one in which a backward is written
        by hand, as it runs. That may count its calls, so two must be alike, and both modes."""
        from shardproof.synthesis.frontends.torch.ranks.modes import one_twice
        from shardproof.synthesis.frontends.torch.ranks.tracing import order_of_one

        def followed() -> Traced:
            with mode:
                other = None if modes.apart else mode_of(model, not modes.train, root)
                found = one_twice(lambda: order_of_one(model, kwargs, names, root), other)
                in_mode(model, modes.train)
                return found

        held = (*model.parameters(), *kwargs.values())
        mode = next(t.fake_mode for t in held if isinstance(t, FakeTensor))
        names, root = self.target.result_names, self.places.root
        if modes.draws and self.request.gradients:
            return followed()
        try:
            with watching(Places(root)):
                return trace(model, kwargs, names)
        except HandwrittenError:
            if not self.request.gradients:
                raise
        return followed()

    def _assumptions(self, facts: ModelFacts, lowered: Lowered, modes: Modes) -> Iterator[str]:
        target, request = self.target, self.request
        yield from modes.told()
        yield from dict.fromkeys((*self.read.read, *modes.read))
        if target.dropout:
            yield f"Dropout of the config is set to 0: {', '.join(target.dropout)}."
        shown = ", ".join(f"{i.name}={i.dtype}{list(i.shape)}" for i in facts.inputs)
        yield f"Shapes are those of the inputs {shown}; no other shape is covered."
        yield from held_in_containers(facts.inputs)
        if request.dtype != "f32" or target.hf_config is not None:
            yield f"Parameters are {request.dtype}; casts are the identity over the reals."
        if target.hf_config is not None:
            how = f"the {request.attention} implementation of transformers"
            yield f"Attention is {how}, without a cache."
            if getattr(target.cls, "_can_set_experts_implementation", bool)():
                yield f"Experts are the {EXPERTS['experts_implementation']} implementation."
        if lowered.buffers:
            listed = _listed(lowered.buffers)
            yield f"Buffers hold the values their constructor gives them: {listed}."
        if lowered.filled:
            yield f"Buffers hold whatever a checkpoint gives them: {_listed(lowered.filled)}."
            if len({label(name, alike=True) for name in lowered.filled}) < len(lowered.filled):
                yield "Buffers of alike layers that are filled alike hold the same."
        if lowered.infinite:
            yield MASKS
        yield from lowered.notes
        if self.depth is not None:
            yield self.depth.sentence()
        if facts.unused:
            yield f"No output depends on {', '.join(facts.unused)}: no gradient is claimed for it."
        if facts.untrained:
            yield (
                f"Read, but reached by no gradient: {', '.join(facts.untrained)}; none is claimed "
                "for it."
            )
        yield from granted(facts.asserts, facts.whole)
        if facts.frozen:
            yield f"Frozen, so without a gradient: {', '.join(facts.frozen)}."
        if len(facts.tied):
            tied = "; ".join(" = ".join(group) for group in facts.tied)
            yield f"Tied parameters are one parameter: {tied}."


def _listed(names: Collection[str]) -> str:
    """The first names, and how many more there are."""
    first, left = sorted(names)[:4], len(names) - 4
    return ", ".join(first) + (f" and {left} more" if left > 0 else "")


def prepare(model: nn.Module, dtype: Any, gradients: bool) -> nn.Module:
    """Eval mode, the dtype asked for, and no gradients where none are wanted."""
    model = in_mode(model.to(dtype), False)
    if not gradients:
        model.requires_grad_(False)
    return model


def block_lists(model: nn.Module) -> list[str]:
    """Lists of modules that have modules of their own."""
    return [
        path
        for path, module in model.named_modules()
        if len(found := members(module)) > 1
        and all(child is not None and any(True for _ in child.children()) for child in found)
    ]


def unreached(program: Program, facts: ModelFacts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Parameters that nothing reads, and trainable ones that are read and get no gradient."""
    read = {v for n in program.nodes for v in n.inputs} | {o.value for o in program.outputs}
    with_gradient = {o.path for o in program.outputs if o.role == "grad"}
    params = [i for i in program.inputs if i.role == "param"]
    unused = tuple(i.path for i in params if i.name not in read)
    given = {*unused, *with_gradient, *facts.frozen}
    return unused, tuple(i.path for i in params if i.path not in given)


def _separate(program: Program, backward: frozenset[str]) -> tuple[Program, frozenset[str]]:
    """The program with fused products apart, and its values of the backward: what comes after the
    first one. What the forward joins stays: ranks join their pieces there."""
    apart = separate_products(program, program.types.keys() - backward)
    made = [v for n in apart.nodes for v in n.outputs]
    known = backward & program.types.keys()
    first = next((i for i, v in enumerate(made) if v in known), len(made))
    return apart, backward if apart is program else frozenset(made[first:])
