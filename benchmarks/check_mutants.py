"""`python -m benchmarks.check_mutants`: faults put into the source of parallel modules.

Each mutant is checked as `shardproof check` does, a refuted one is repaired in its source, and what
is true of it is found by running it: on gloo processes in float64, forward and all gradients,
against one process. Rows are kept as they come; a run that was stopped goes on.
"""

# pyright: basic

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

from benchmarks.gloo_truth import truth
from shardproof.agent.check import in_source, judging, loads
from shardproof.agent.check.contract import Placed, Statements
from shardproof.agent.check.judging import Checked, Compared
from shardproof.agent.run.run import within
from shardproof.agent.run.translate import as_ours
from shardproof.synthesis.emit import source
from shardproof.synthesis.frontends.torch.ranks.request import MADE_UP, TRAIN, RanksRequest
from shardproof.synthesis.frontends.torch.ranks.result import RanksCaptured, load, read_loads
from shardproof.synthesis.frontends.torch.ranks.stated import read_lines
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.synthesis.repair.edits import Edit
from shardproof.synthesis.repair.in_source import SourceFile, base_name, call_name
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Proof

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    *(ROOT / "examples" / "check", ROOT / "tests" / "check"),
    *(ROOT / "benchmarks" / "published", ROOT / "benchmarks" / "parallel_modules"),
)
RESULTS = Path(__file__).parent / "results" / "check_mutants.jsonl"
RULES = ("colwise", "rowwise", "colwise_gather_output")
"""Of plans of transformers."""
TRIES = 10
"""Changes of source that are tried at most, each traced and judged: the clock of a busy machine
says nothing. A module that does not run on gloo is not repaired."""
LONGEST = 120.0
"""Seconds for them at most."""
TALKS = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")


@dataclass(frozen=True)
class Base:
    """A right module, as it is checked."""

    file: str
    name: str
    against: str
    mesh: Mesh
    files: tuple[str, ...] = ()
    """Those that are mutated, the module's own by default."""
    inputs: tuple[str, ...] = ("x=f32[4,8]",)
    rows: tuple[str, ...] = ()
    out: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    after: str = ""
    no_grad: tuple[str, ...] = ()
    load: str = ""
    """The function that loads a rank: it alone is mutated, and its load is looked at."""
    names: tuple[tuple[str, str], ...] = ()
    most: int = 18
    """Mutants that are run at most; fewer of what takes a minute each."""

    @property
    def label(self) -> str:
        return f"{self.name} {','.join(f'{n}={s}' for n, s in self.mesh.dims)}"

    def request(self, folder: Path) -> RanksRequest:
        return RanksRequest(
            f"{folder}/{self.file}:{self.name}",
            f"{folder}/{self.against}",
            self.mesh,
            inputs=tuple(map(InputSpec.parse, self.inputs)),
            names=self.names,
            input_layouts=read_lines(self.rows, "--input-layout"),
            no_grad=self.no_grad,
            after_backward=self.after,
            modes=(TRAIN,),
            load=MADE_UP if self.load else "",
            load_with=self.load,
        )

    def stated(self) -> Statements:
        return Statements(
            read_lines(self.layouts, "--layout"),
            read_lines(self.rows, "--input-layout"),
            read_lines(self.out, "--output-layout"),
        )


TP, DP, CP, EP, PP = (Mesh(((name, 2),)) for name in ("tp", "dp", "cp", "ep", "pp"))
BOTH = Mesh.of(dp=2, tp=2)
REGIONS = ("parallel.py", "regions.py")
ROWS = ("x=S(0)@dp",)
IDS = ("ids=i64[3,5]<12",)
BASES = (
    Base("parallel.py", "ParallelMLP", "model.py:MLP", TP, REGIONS),
    Base("parallel.py", "ParallelMLP", "model.py:MLP", BOTH, REGIONS, layouts=("*=@tp",)),
    Base(
        *("parallel.py", "SequenceParallelMLP", "model.py:MLP", TP, REGIONS),
        rows=("x=S(0)@tp",),
        after="finish",
    ),
    Base("parallel.py", "ParallelEmbedding", "model.py:Embedding", TP, REGIONS, inputs=IDS),
    Base(
        *("parallel.py", "ParallelEmbedding", "model.py:Embedding", BOTH, REGIONS),
        inputs=IDS,
        layouts=("*=@tp",),
    ),
    Base("torch_parallel.py", "tensor_parallel", "model.py:MLP", TP),
    Base("torch_parallel.py", "sharded", "model.py:Trained", DP, rows=ROWS),
    Base("torch_parallel.py", "sharded_and_split", "model.py:Trained", BOTH, rows=ROWS),
    Base("torch_parallel.py", "averaged", "model.py:Trained", DP, rows=ROWS),
    Base("dialects.py", "sequence_parallel", "dialects.py:Normed", TP, rows=("x=S(0)@tp",)),
    Base(
        *("dialects.py", "split_output", "dialects.py:MLP", TP),
        rows=("x=S(0)@tp",),
        out=("*=S(0)@tp",),
    ),
    Base(
        "dialects.py", "Wrapper", "dialects.py:LossMLP", DP, rows=ROWS, names=(("module.*", "*"),)
    ),
    Base("dialects.py", "InTwo", "dialects.py:MLP", TP, no_grad=("x",)),
    Base(
        *("dialects.py", "SplitPick", "dialects.py:Pick", TP),
        inputs=("x=f32[3,8]", "target=i64[3]<16"),
        no_grad=("x",),
    ),
    Base("published.py", "SplitRotary", "published.py:Rotary", TP, inputs=("x=f32[3,4]",)),
    Base(
        *("buckets.py", "wrapped", "buckets.py:Net", BOTH),
        inputs=("x=f32[4,8]", "target=f32[4,3]"),
        rows=("*=S(0)@dp",),
    ),
    Base(
        *("torch_examples.py", "split_and_sharded", "torch_examples.py:Small", BOTH),
        inputs=("x=f32[2,2,8]",),
        rows=ROWS,
        most=9,
    ),
    Base(
        *("pipeline.py", "one_forward_one_backward", "pipeline.py:Model", PP),
        inputs=("x=f32[4,4]", "target=f32[4,4]"),
    ),
    Base(
        *("pipelines.py", "words", "pipelines.py:Words", PP),
        inputs=("x=i64[4,3]<5", "target=i64[4,3]<5"),
    ),
    Base(
        *("llama_plan.py", "planned", "llama_plan.py:Llama", TP),
        inputs=("ids=i64[2,3]<24",),
        most=9,
    ),
    Base(
        *("experts.py", "SplitExperts", "experts.py:Experts", EP),
        rows=("x=S(0)@ep",),
        out=("*=S(0)@ep",),
        after="summed",
    ),
    Base(
        *("attention.py", "SplitHeads", "attention.py:Attention", TP),
        inputs=("x=f32[3,8]",),
        layouts=("inward=S(1)@tp", "outward=S(0)@tp"),
    ),
    Base(
        *("attention.py", "SplitRows", "attention.py:Attention", CP),
        rows=("x=S(0)@cp",),
        out=("*=S(0)@cp",),
        after="collected",
    ),
    Base(
        *("losses.py", "SplitWords", "losses.py:Words", TP),
        inputs=("x=f32[2,8]", "words=i64[2]<8"),
    ),
    Base(
        *("losses.py", "SplitStandardized", "losses.py:Standardized", DP),
        rows=("x=S(0)@dp",),
        out=("*=S(0)@dp",),
        after="added",
    ),
    Base(
        *("buckets.py", "Replica", "buckets.py:Net", DP),
        inputs=("x=f32[4,8]", "target=f32[4,3]"),
        rows=("*=S(0)@dp",),
        after="flushed",
    ),
    Base(
        *("loading.py", "SplitGated", "loading.py:Gated", TP),
        inputs=("x=f32[3,8]",),
        layouts=("both=[2 2@tp 6][8]",),
        load="fill",
    ),
    Base(
        *("messages.py", "SplitStencil", "messages.py:Stencil", CP),
        inputs=("x=f32[4,2]",),
        rows=("*=S(0)@cp",),
        out=("*=S(0)@cp",),
        after="summed",
    ),
)


@dataclass(frozen=True)
class Mutant:
    """A file of a base with one fault."""

    kind: str
    file: str
    line: int
    was: str
    text: str

    def key(self, base: Base) -> str:
        """The same in every run."""
        text = f"{base.label} {self.file} {self.text}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def mutants(base: Base, folder: Path) -> list[Mutant]:
    """All single faults of the operators at the places that the base runs."""
    out: dict[tuple[str, str], Mutant] = {}
    for name in base.files or (base.file,):
        text = (folder / name).read_text()
        file = SourceFile(name, text)
        for node in ast.walk(file.tree):
            if not _concerns(base, file, node):
                continue
            faults = _faults(base, file, node)
            if base.load:
                more = itertools.chain(faults, _wrong_loads(file, node))
                faults = (("wrong load", splices) for _, splices in more)
            for kind, splices in faults:
                whole = [s for s in splices if s is not None]
                after = file.spliced(*whole) if whole else None
                if after is not None:
                    line = getattr(node, "lineno", 0)
                    was = file.text.splitlines()[line - 1].strip()
                    out.setdefault((name, after), Mutant(kind, name, line, was, after))
    return list(out.values())


def _concerns(base: Base, file: SourceFile, node: ast.AST) -> bool:
    """Whether a node is in what the base runs: its class or function, what these name, in order."""
    wanted, ahead = set[str](), [base.load] if base.load else [base.name, base.after]
    made = {n.name: n for n in file.tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    assigned = {
        t.id: n
        for n in file.tree.body
        if isinstance(n, ast.Assign)
        for t in n.targets
        if isinstance(t, ast.Name)
    }
    if file.path != base.file:
        ahead = ["Copy", "Reduce"] if base.name != "SequenceParallelMLP" else ["Gather", "Scatter"]
    model = base.against.partition(":")[2]
    while ahead:
        name = ahead.pop()
        if name in wanted or name in ("", model):
            continue
        wanted.add(name)
        found = made.get(name) or assigned.get(name)
        if found is not None:
            ahead += [n.id for n in ast.walk(found) if isinstance(n, ast.Name)]
    tops = [n for n in (node, *file.up(node)) if n in file.tree.body]
    return any(
        getattr(n, "name", "") in wanted or n in [assigned.get(w) for w in wanted] for n in tops
    )


def spread(made: Sequence[Mutant], most: int) -> list[Mutant]:
    """At most so many, of every kind in turn, from all over the files."""
    by: dict[str, list[Mutant]] = {}
    for mutant in made:
        by.setdefault(mutant.kind, []).append(mutant)
    for kind in by.values():
        kind.sort(key=lambda m: hashlib.sha256(m.text.encode()).digest())
    turns = itertools.zip_longest(*by.values())
    return [m for turn in turns for m in turn if m is not None][:most]


Fault = tuple[str, tuple[source.Edit | None, ...]]


def _faults(base: Base, file: SourceFile, node: ast.AST) -> Iterator[Fault]:
    """What people get wrong, at one place."""
    name = call_name(node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        inner = call_name(node.value)
        if inner in TALKS:
            yield "missing collective", (file.without(node),)
            yield "doubled collective", (file.beside(node, [file.of(node)]),)
        if inner == "wait":
            yield "stale async result", (file.without(node),)
        if inner in ("fully_shard", "set_gradient_divide_factor"):
            yield "missing call", (file.without(node),)
        first = node.value.args[0] if node.value.args else None
        if inner == "fully_shard" and isinstance(first, ast.Name):
            more = f"{first.id}.set_gradient_divide_factor(1.0)"
            yield "scale", (file.beside(node, [more]),)
    if isinstance(node, ast.Call):
        code = file.of(node)
        if name == "apply" and node.args:
            first = file.of(node.args[0])
            yield "missing collective", (file.put(node, first),)
            region = base_name(node.func)
            rest = ", ".join(map(file.of, node.args[1:]))
            yield "doubled collective", (file.put(node, f"{region}.apply({code}, {rest})"),)
            if len(base.mesh.dims) > 1 and len(node.args) == 2 and file.has("dist"):
                yield "wrong group", (file.put(node.args[1], "dist.group.WORLD"),)
            yield "scale", (file.put(node, f"(2 * {code})"),)
            yield "scale", (file.put(node, f"({code} / 2)"),)
            swaps = {"Copy": "Reduce", "Reduce": "Copy", "Gather": "Copy", "Scatter": "Reduce"}
            if region in swaps and file.has(swaps[region]):
                assert isinstance(node.func, ast.Attribute)
                yield "wrong collective", (file.put(node.func.value, swaps[region]),)
        if name in ("all_reduce", "reduce_scatter_tensor") and not any(
            k.arg == "op" for k in node.keywords
        ):
            end = file.span(node)[1] - 1
            for op in ("AVG", "MAX"):
                yield "scale", (source.Edit(end, end, f", op=dist.ReduceOp.{op}"),)
        if name == "DistributedDataParallel":
            yield "missing call", (file.put(node, file.of(node.args[0])),)
        if name in ("rank", "get_rank"):
            yield "wrong rank", (file.put(node, "0"),)
        if name == "fromkeys" and isinstance(node.args[0], ast.Tuple):
            for at in range(len(node.args[0].elts)):
                yield "wrong plan entry", (file.dropped(node.args[0].elts, at),)
        if any(k.arg == "scale_grads" for k in node.keywords):
            at = next(i for i, k in enumerate(node.keywords) if k.arg == "scale_grads")
            yield "scale", (file.put(node.keywords[at].value, "False"),)
        if name in ("ColwiseParallel", "RowwiseParallel", "SequenceParallel"):
            other = {"ColwiseParallel": "RowwiseParallel", "RowwiseParallel": "ColwiseParallel"}
            if name in other:
                yield "wrong plan entry", (file.put(node.func, other[name]),)
            yield "wrong plan entry", (file.put(node, "SequenceParallel()"),)
            for at in range(len(node.keywords)):
                yield "wrong plan entry", (file.dropped(node.keywords, at),)
            if name != "SequenceParallel" and file.has("Shard"):
                end = file.span(node)[1] - 1
                given = {k.arg for k in node.keywords}
                for side in {"input_layouts", "output_layouts"} - given:
                    comma = ", " if node.keywords else ""
                    yield "wrong plan entry", (source.Edit(end, end, f"{comma}{side}=Shard(0)"),)
    if isinstance(node, ast.Constant) and node.value in RULES:
        for rule in RULES:
            if rule != node.value:
                yield "wrong plan entry", (file.put(node, f'"{rule}"'),)
    if isinstance(node, ast.Attribute) and node.attr in ("SUM", "AVG", "MAX", "MIN"):
        for fold in ("SUM", "AVG"):
            if fold != node.attr:
                new = f"{file.of(node.value)}.{fold}"
                yield "wrong reduction", (file.put(node, new),)
    if isinstance(node, ast.Dict) and any(
        call_name(v).endswith("Parallel") or getattr(v, "value", "") in RULES for v in node.values
    ):
        for at, key in enumerate(node.keys):
            if key is None:
                continue
            start, end = file.span(key)[0], file.span(node.values[at])[1]
            if at + 1 < len(node.keys):
                following = node.keys[at + 1]
                end = file.span(following)[0] if following is not None else end
            elif at:
                start = file.span(node.values[at - 1])[1]
            yield "wrong plan entry", (source.Edit(start, end, ""),)
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value in (0, 1, 2):
        yield "wrong dim or number", (file.put(node, str(1 - node.value if node.value < 2 else 1)),)
    if call_name(node) == "Shard":
        for layout in ("Replicate()", "Shard(1)"):
            yield "wrong plan entry", (file.put(node, layout),)
    if isinstance(node, ast.Constant) and node.value in base.mesh and len(base.mesh.dims) > 1:
        for other in base.mesh.names:
            if other != node.value:
                yield "wrong group", (file.put(node, f'"{other}"'),)
    if isinstance(node, ast.keyword) and node.arg == "group" and len(base.mesh.dims) > 1:
        yield "wrong group", (file.put(node.value, "dist.group.WORLD"),)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.FloorDiv | ast.Div):
        yield "scale", (file.put(node, file.of(node.left)),)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield "missing operand", (file.put(node, file.of(node.left)),)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        turned = {ast.Lt: "<=", ast.GtE: ">", ast.Gt: ">=", ast.LtE: "<"}
        word = turned.get(type(node.ops[0]))
        left, right = file.of(node.left), file.of(node.comparators[0])
        yield "wrong bound", (file.put(node, f"{left} {word} {right}"),) if word else ()
    if isinstance(node, ast.AugAssign):
        yield "scale", (file.without(node),)
    if isinstance(node, ast.For) and any(call_name(n) in TALKS for n in ast.walk(node)):
        yield "missing collective", (file.without(node),)
        if isinstance(node.iter, ast.Tuple) and len(node.iter.elts) > 1:
            for at in range(len(node.iter.elts)):
                yield "a gradient forgotten", (file.dropped(node.iter.elts, at),)
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        function = file.function(node)
        if function is not None and function.name == "backward":
            first = file.of(node.value.elts[0])
            yield "scale", (file.put(node.value.elts[0], f"2 * {first}"),)
            yield "scale", (file.put(node.value.elts[0], f"{first} / 2"),)


def _wrong_loads(file: SourceFile, node: ast.AST) -> Iterator[Fault]:
    """Pieces forgotten, in another order, or of another rank."""
    if isinstance(node, ast.Expr) and call_name(node.value) == "copy_":
        yield "", (file.without(node),)
    if isinstance(node, ast.List) and len(node.elts) == 2:
        first, second = node.elts
        swapped = file.put(first, file.of(second)), file.put(second, file.of(first))
        yield "", swapped
        yield "", (file.put(second, file.of(first)),)
    if isinstance(node, ast.Subscript) and call_name(node.value) == "chunk":
        yield "", (file.put(node.slice, "0"),)
        yield "", (file.put(node.slice, "-1 - at"),)


@dataclass(frozen=True)
class Row:
    """What came of one mutant."""

    key: str
    base: str
    kind: str
    place: str
    was: str
    now: str
    truth: str
    """`right`, `wrong` or `broken`: a rank fails, or waits for ever."""
    found: str
    verdict: str
    """`proved`, `refuted`, `unknown`, `refused`."""
    said: str
    blamed: str
    """The file and line of the verdict."""
    near: int
    """Lines between the fault and the place that is blamed, in one file; -1 elsewhere."""
    beside: int
    """The same, of the nearest line that is shown: those to look at too."""
    repaired: str
    """The file and line of a change that is proved; empty where none was found."""
    tried: int
    seconds: float
    diff: str = ""


def traced(request: RanksRequest, folder: Path) -> Sequence[RanksCaptured]:
    """In children of this process, which has imported PyTorch."""
    from shardproof.synthesis.frontends.torch.ranks import session

    session.save_ranks(json.loads(json.dumps(request.to_json())), folder, lambda _: None)
    return load(folder)


def checked(base: Base, folder: Path) -> Checked | str:
    """What is found; why there is no verdict."""
    out = folder / "traced"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    try:
        found = traced(base.request(folder), out)
        judged = judging.check_modes(found, base.stated(), lambda _: None)[-1]
        if not base.load:
            return judged
        held = loads.look(
            read_loads(out, base.mesh.size), judged.captured, judged.placed, base.mesh, MADE_UP
        )
        return replace(judged, verdict=loads.decided(judged.verdict, held, base.mesh))
    except Exception as problem:
        if as_ours(problem) is None:
            raise
        return f"{problem}"


def copy_of(into: Path) -> None:
    for folder in FOLDERS:
        for path in folder.glob("*.py"):
            if not path.name.startswith(("test_", "conftest")):
                shutil.copy(path, into)


Truths = Mapping[str, tuple[str, str]]
"""By the key of a mutant: `right`, `wrong` or `broken`, and what was seen on gloo."""
NONE: Truths = MappingProxyType({})


def placed_of(base: Base, right: bool = False) -> Sequence[Placed]:
    """How a base is laid out; nothing where it is not proved, as on a machine so busy that time
    runs out, or not right on gloo, where that is not known."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        copy_of(folder)
        found = checked(base, folder)
        if isinstance(found, str):
            print(f"{base.label:34} refused {found}", flush=True)
            return ()
        word, said = ("right", "known") if right else truth(base, folder, found.placed)
        print(f"{base.label:34} {type(found.verdict).__name__} {word} {said}", flush=True)
        return found.placed if isinstance(found.verdict, Proof) and word == "right" else ()


Ahead = tuple[Base, Mutant]


def in_turn(ahead: Sequence[Ahead]) -> list[Ahead]:
    """One mutant of every base, then the next: a run that is stopped has some of all."""
    by: dict[str, list[Ahead]] = {}
    for item in ahead:
        by.setdefault(item[0].label, []).append(item)
    rows = itertools.zip_longest(*by.values())
    return [item for row in rows for item in row if item is not None]


def row_of(
    base: Base, mutant: Mutant, placed: Sequence[Placed], seconds: float, known: Truths = NONE
) -> Row:
    start = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        copy_of(folder)
        lines = (folder / mutant.file).read_text().splitlines()
        (folder / mutant.file).write_text(mutant.text)
        word, said_of = known.get(mutant.key(base)) or truth(base, folder, placed)
        found, blamed, near, beside = checked(base, folder), "", -1, -1
        repaired, tried, diff = "", 0, ""
        if isinstance(found, str):
            verdict, said = "refused", found
        elif isinstance(found.verdict, Proof):
            verdict, said = "proved", ""
        else:
            counter = isinstance(found.verdict, Counterexample)
            verdict, said = "refuted" if counter else "unknown", str(found.verdict)[:200]
            if counter and seconds and not base.load:
                request = base.request(folder)
                edits: list[Edit] = []
                with within(seconds):
                    edits.extend(judging.edits_for(found, seconds))
                verdict_of = in_source.to_blame(request, found, edits)
                assert isinstance(verdict_of, Counterexample)
                if verdict_of.location is not None:
                    place, said = verdict_of.location.source, verdict_of.location.reason
                    blamed = f"{place.file}:{place.line}"
                    more = in_source.looked_at(request, found, place)
                    near = _nearest(mutant, [(place.file, place.line)])
                    lines_shown = [
                        (place.file, place.line),
                        *((m.line.file, m.line.line) for m in more),
                    ]
                    beside = _nearest(mutant, lines_shown)
                asking = in_source.Asking(request, base.stated(), Compared(), traced)
                with within(LONGEST):
                    looked = in_source.repaired(asking, found, edits)
                    for source in itertools.islice(looked, TRIES if word == "wrong" else 0):
                        tried += 1
                        if source is not None:
                            repaired, diff = source.place, source.diff
    after = mutant.text.splitlines()
    now = next((a for a, b in zip(after, lines, strict=False) if a != b), "").strip()
    spent = round(time.monotonic() - start, 1)
    where = f"{mutant.file}:{mutant.line}"
    return Row(
        *(
            mutant.key(base),
            base.label,
            mutant.kind,
            where,
            mutant.was,
            now,
            word,
            said_of,
            verdict,
            said[:200],
        ),
        *(blamed, near, beside, repaired, tried, spent, diff),
    )


def _nearest(mutant: Mutant, lines: Sequence[tuple[str, int]]) -> int:
    return min((abs(n - mutant.line) for f, n in lines if f == mutant.file), default=-1)


def main(argv: Sequence[str] | None = None) -> int:
    """Every base must be right and proved; then its mutants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--repair-seconds", type=float, default=8.0)
    parser.add_argument("--most", type=int, default=18, help="mutants of a base at most")
    parser.add_argument("--only", default="", help="bases with this in their name")
    parser.add_argument("--ends", type=float, default=0, help="seconds after which none is begun")
    parser.add_argument(
        "--truths", type=Path, help="rows of before, whose mutants are run first, and not on gloo"
    )
    parser.add_argument("--share", default="0/1", help="K/N: every N-th base from the K-th")
    given = parser.parse_args(argv)
    import torch
    import torch._dynamo

    torch.set_num_threads(1)
    rows, before = read(given.results), read(given.truths)
    known = {r.key: (r.truth, r.found) for r in before}
    bases = {r.base for r in before}
    done = {r.key for r in rows}
    part, of = map(int, given.share.split("/"))
    ends = time.monotonic() + given.ends if given.ends else None
    right: dict[str, Sequence[Placed]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        copy_of(Path(scratch))
        ahead = [
            (base, mutant)
            for base in [b for b in BASES if given.only in b.name][part::of]
            for mutant in spread(mutants(base, Path(scratch)), min(base.most, given.most))
        ]
    print(f"{len(ahead)} mutants", flush=True)
    order = in_turn(ahead)
    for base, mutant in sorted(order, key=lambda a: a[1].key(a[0]) not in known):
        if mutant.key(base) in done:
            continue
        if ends and time.monotonic() > ends:
            break
        if base.label not in right:
            right[base.label] = placed_of(base, base.label in bases)
        if not right[base.label]:
            continue
        row = row_of(base, mutant, right[base.label], given.repair_seconds, known)
        rows.append(row)
        with given.results.open("ab", buffering=0) as out:  # other shares write there too
            out.write(f"{json.dumps(asdict(row))}\n".encode())
        said = f"{row.truth} {row.verdict} {row.repaired} {row.seconds}"
        print(f"{row.base} {row.kind} {row.place}: {said}", flush=True)
    print(table(rows))
    return int(any(r.verdict == "proved" and r.truth != "right" for r in rows))


def read(path: Path | None) -> list[Row]:
    """The rows of a file; none where there is none."""
    lines = path.read_text().splitlines() if path is not None and path.is_file() else []
    return [Row(**json.loads(line)) for line in lines]


def table(rows: Sequence[Row]) -> str:
    """By truth and verdict, and how many are repaired."""
    counted = Counter((r.truth, r.verdict) for r in rows)
    wrong = [r for r in rows if r.truth != "right"]
    refuted = [r for r in wrong if r.verdict == "refuted"]
    lines = [f"{t:8} {v:8} {n:5}" for (t, v), n in sorted(counted.items())]
    lines.append(f"repaired {sum(bool(r.repaired) for r in refuted)} of {len(refuted)} refuted")
    return "\n".join(lines)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        sys.exit(main())
