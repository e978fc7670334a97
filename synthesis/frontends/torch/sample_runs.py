"""Tries a target: captures it, or says why not and what the code does on samples.

Runs inside the worker: the user's code is imported here.
"""

# pyright: basic

import copy
import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch._functorch.aot_autograd  # the tracer looks for packages that may get stand-ins here
from torch import nn
from torch.utils import _pytree as pytree

from shardproof.synthesis.frontends.torch import partial, stubs
from shardproof.synthesis.frontends.torch.branch_coverage import Ways, watched
from shardproof.synthesis.frontends.torch.captured import Captured, ModelFacts
from shardproof.synthesis.frontends.torch.errors import OR_TRANSLATE, CaptureError
from shardproof.synthesis.frontends.torch.facts import read_facts
from shardproof.synthesis.frontends.torch.inputs import find_inputs
from shardproof.synthesis.frontends.torch.observed import Hole, Observed, Subject, Trouble
from shardproof.synthesis.frontends.torch.partial import Seen
from shardproof.synthesis.frontends.torch.provenance import Provenance, node_of
from shardproof.synthesis.frontends.torch.request import (
    CaptureRequest,
    InputSpec,
    Progress,
    split_target,
)
from shardproof.synthesis.frontends.torch.results import returned_names
from shardproof.synthesis.frontends.torch.runs import Call
from shardproof.synthesis.frontends.torch.session import prepare
from shardproof.synthesis.frontends.torch.target import Target, find
from shardproof.synthesis.frontends.torch.targets import Order, observe
from shardproof.verifier.kernel.program.program import Program

MOST_CLASSES = 6
"""Classes of modules that may be left out of one model."""


def try_here(request: CaptureRequest, progress: Progress) -> Observed:
    """Capture the target, or observe it.

    Raises:
        CaptureError: there is nothing to try: no file, no inputs.
    """
    file, _ = split_target(request.target)
    path = Path(file).resolve()
    source = path.read_text(encoding="utf-8", errors="replace")
    progress("import")
    with watched(str(path.parent)) as ways:
        target, missing, problem = _found(request, path)
    base = Observed(problem, missing, None, source=source, file=path.name)
    if target is None:
        return base
    return _Try(request, target, ways, base, progress).run()


def _found(
    request: CaptureRequest, path: Path
) -> tuple[Target | None, tuple[stubs.Missing, ...], Trouble | None]:
    """The class; with stand-ins for packages that the file imports and that are not here."""
    missing: list[stubs.Missing] = []
    for _ in range(stubs.MOST):
        try:
            with stubs.stand_ins({m.package for m in missing}):
                target = find(request)
        except ModuleNotFoundError as problem:
            found = stubs.missing_package(problem, path)
            if found is None or found.package in {m.package for m in missing}:
                return None, tuple(missing), trouble(problem, str(path.parent))
            missing.append(found)
        except CaptureError:
            raise
        except Exception as problem:  # noqa: BLE001  (the user's code)
            return None, tuple(missing), trouble(problem, str(path.parent))
        else:
            return target, tuple(missing), _absence(missing, path)
    return None, tuple(missing), _absence(missing, path)


def _absence(missing: list[stubs.Missing], path: Path) -> Trouble | None:
    if not missing:
        return None
    first = missing[0]
    names = ", ".join(m.package for m in missing)
    return Trouble(
        f"the file imports {names}, which is not installed",
        path.name,
        first.line,
        first.text,
        f"install {first.package}{OR_TRANSLATE}",
    )


def trouble(problem: BaseException, root: str) -> Trouble:
    """An exception as data, with the user's line."""
    from shardproof.synthesis.frontends.torch.worker import explain

    return Trouble(**explain(problem, root))


@dataclass
class _Try:
    request: CaptureRequest
    target: Target
    ways: Ways
    base: Observed
    progress: Progress

    def __post_init__(self) -> None:
        self.root = self.target.root
        self.places = Provenance(self.root)

    def run(self) -> Observed:
        self.progress("build")
        try:
            model = self.target.build()
        except Exception as problem:  # noqa: BLE001
            return replace(self.base, problem=self.base.problem or self._why(problem))
        specs = find_inputs(self.request, self.target, model)
        facts = read_facts(
            prepare(copy.deepcopy(model), torch.float32, True),
            self.target,
            self.request.target,
            specs,
            self.places,
        )
        self.progress("trace")
        problem, module = self._capture()
        found = self.base.problem or problem
        base = replace(self.base, problem=found)
        if found is None:
            return base
        self.progress("run")
        calls = self._calls(model, specs)
        whole = observe(self._order(model, specs))
        base = replace(
            base,
            whole=whole,
            captured=Captured(Program(facts.class_name, (), (), (), {}), {}, facts),
        )
        if not module or whole.problem is not None:
            return base
        self.progress("parts")
        return self._parts(base, facts, specs, calls, module, model)

    def _why(self, problem: BaseException) -> Trouble:
        return trouble(problem, self.root)

    def _capture(self) -> tuple[Trouble | None, str]:
        """Why capture refuses the whole model, and the module in which it does."""
        from shardproof.synthesis.frontends.torch.session import Clock, Session

        clock = Clock(lambda _: None)
        made: list[nn.Module] = []
        build = self.target.build

        def noted(**options: Any) -> nn.Module:
            made.append(build(**options))
            return made[-1]

        try:
            target = replace(self.target, build=noted)
            Session(self.request, target, self.places, clock).run()
        except Exception as problem:  # noqa: BLE001
            return self._why(problem), _module(problem, made[-1]) if made else ""
        return None, ""

    def _order(self, model: nn.Module, specs: tuple[InputSpec, ...]) -> Order:
        names = [s.name for s in specs]
        return Order(
            type(model).__name__,
            "",
            lambda: copy.deepcopy(model),
            specs,
            Call(names, lambda given: ((), given)),
            self.target.result_names,
            self.root,
            self.ways,
            self._why,
            dtype=self.request.dtype,
        )

    def _calls(self, model: nn.Module, specs: tuple[InputSpec, ...]) -> dict[str, Seen]:
        """How each module is called, over a few samples."""
        from shardproof.synthesis.frontends.torch import runs

        copied = copy.deepcopy(model).eval()
        seen = partial.watch_calls(copied)
        for seed, label in enumerate(("random", "random", "negative", "positive")):
            try:
                with torch.no_grad():
                    copied(**runs.draw(specs, label, seed, torch.float32))
            except Exception:  # noqa: BLE001  (told where the whole model is run)
                break
        for note in seen.values():
            note.calls = min(note.calls, 4) if note.calls <= 4 else note.calls
        return seen

    def _parts(
        self,
        base: Observed,
        facts: ModelFacts,
        specs: tuple[InputSpec, ...],
        calls: dict[str, Seen],
        module: str,
        real: nn.Module,
    ) -> Observed:
        """Leave out what capture refuses, class by class, until it takes the rest."""
        kinds: list[type] = []
        for _ in range(MOST_CLASSES):
            if not module or module not in calls:
                return base
            kinds.append(type(calls[module].module))
            chosen = _outermost([s for s in calls.values() if type(s.module) in kinds])
            if not all(_fits(seen) for seen in chosen):
                return base
            model = partial.build(self.request, self.target)
            try:
                around = partial.capture_around(
                    self.request, self.target, facts, specs, model, chosen, self.places
                )
            except Exception as problem:  # noqa: BLE001
                module = _module(problem, model)
                if module and module in calls and type(calls[module].module) in kinds:
                    return base
                continue
            return self._observed(base, around, chosen, real)
        return base

    def _observed(
        self, base: Observed, around: partial.Around, chosen: list[Seen], model: nn.Module
    ) -> Observed:
        groups: dict[Any, list[Seen]] = {}
        for seen in chosen:
            groups.setdefault(seen.key(), []).append(seen)
        assert base.whole is not None
        loss = next((o.path for o in base.whole.outputs if o.role == "loss"), None)
        captured = around.captured
        captured = replace(captured, program=partial.with_loss(captured.program, loss))
        parts = tuple(self._part(group, model) for group in groups.values())
        holes: tuple[Hole, ...] = around.holes
        return replace(base, parts=parts, around=captured, holes=holes)

    def _part(self, group: list[Seen], model: nn.Module) -> Subject:
        first = group[0]
        fresh = model.get_submodule(first.path)
        names, call = _call(first)
        kind = type(first.module)
        order = Order(
            kind.__name__,
            first.path,
            lambda: copy.deepcopy(fresh),
            partial.specs_of(first, names, self.request.dtype),
            call,
            returned_names(kind.forward),
            self.root,
            self.ways,
            self._why,
            tuple(seen.path for seen in group),
            self.request.dtype,
            losses=False,
        )
        for way in self.ways.seen.values():
            way.true = way.false = 0
        return observe(order)


def _fits(seen: Seen) -> bool:
    """Whether a module can be one op: called once, tensors in, tensors out."""
    if seen.args is None or seen.calls != 4 or seen.low < 0:
        return False
    results = pytree.tree_leaves(seen.result)
    return bool(results) and all(isinstance(x, torch.Tensor) for x in results)


def _outermost(seen: list[Seen]) -> list[Seen]:
    paths = [s.path for s in seen]
    return [s for s in seen if not any(s.path.startswith(p + ".") for p in paths)]


def _call(seen: Seen) -> tuple[list[str], Call]:
    """Names of the tensor arguments, and how to call the module with others in their place."""
    leaves, form = pytree.tree_flatten(seen.args)
    args, kwargs = seen.args
    parameters = list(inspect.signature(type(seen.module).forward).parameters)[1:]
    labels: list[str] = []
    for i, value in enumerate(args):
        name = parameters[i] if i < len(parameters) else f"argument{i}"
        labels += _labels(name, value)
    for name, value in kwargs.items():
        labels += _labels(name, value)
    at = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
    names = [labels[i] for i in at]

    def build(given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        filled = list(leaves)
        for i, name in zip(at, names, strict=True):
            filled[i] = given[name]
        return pytree.tree_unflatten(filled, form)

    return names, Call(names, build)


def _labels(name: str, value: Any) -> list[str]:
    count = len(pytree.tree_leaves(value))
    return [name] if count == 1 else [f"{name}.{i}" for i in range(count)]


def _module(problem: BaseException, model: nn.Module) -> str:
    """The innermost module of the user's in whose forward this was raised; '' for the model."""
    if isinstance(problem, CaptureError) and problem.module:
        return problem.module
    paths = {id(m): path for path, m in model.named_modules()}
    found = ""
    current: BaseException | None = problem
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        trace = current.__traceback__
        while trace is not None:
            path = paths.get(id(trace.tb_frame.f_locals.get("self")))
            if path:
                found = path if len(path) >= len(found) else found
            trace = trace.tb_next
        current = current.__cause__ or current.__context__
    node = None if found else node_of(problem)
    return Provenance().source(node).module if node is not None else found
