"""Repairs a parallel module in its source: changes of a copy, each traced again and proved."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from shardproof.agent.check import judging, loads
from shardproof.agent.check.contract import Statements
from shardproof.agent.check.judging import Checked, Compared
from shardproof.agent.repair.sources import unified
from shardproof.agent.run.translate import as_ours
from shardproof.synthesis.frontends.torch.ranks.bounds import outside
from shardproof.synthesis.frontends.torch.ranks.pairing import GRAD_OF_INPUT
from shardproof.synthesis.frontends.torch.ranks.request import EVAL, TRAIN, RanksRequest
from shardproof.synthesis.frontends.torch.ranks.result import RanksCaptured, Side, capture_ranks
from shardproof.synthesis.repair.attempts import attempts
from shardproof.synthesis.repair.edits import Edit, node_of
from shardproof.synthesis.repair.fault import Fault
from shardproof.synthesis.repair.faults import beside, blamed, moved
from shardproof.synthesis.repair.in_source import Module, Rewrite, read_module
from shardproof.synthesis.repair.looked import Looked, Rate
from shardproof.synthesis.repair.plan_entries import rules
from shardproof.synthesis.repair.rewrites import BLAMED, Hint, rewrites, tactics_for, tactics_of
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import NOWHERE, Source
from shardproof.verifier.text.parser import to_text
from shardproof.verifier.verdict import Counterexample, Proof, Verdict

Capture = Callable[[RanksRequest, Path], Sequence[RanksCaptured]]


@dataclass(frozen=True)
class Asking:
    """What is checked, and how."""

    request: RanksRequest
    stated: Statements
    compared: Compared
    capture: Capture
    plan: tuple[Path, str] | None = None
    """The file of rules for a class of transformers, if there is one, and its text."""
    before: Sequence[RanksCaptured] = ()
    """What the module as it is was captured as, in every mode."""


def captured(request: RanksRequest, folder: Path) -> Sequence[RanksCaptured]:
    """Traced in a process of its own."""
    return capture_ranks(request, folder, lambda _: None)


@dataclass(frozen=True)
class InSource:
    """A change of source."""

    root: Path
    """The folder of the module."""
    rewrite: Rewrite
    before: str | None
    """None of a file that is made anew."""
    sources: Mapping[str, str]
    """The texts of all files that were read, as they were."""
    tp_plan: Mapping[str, str] | None = None
    """The rules, where the file is a plan of transformers."""

    def asked(self, request: RanksRequest, copy: Path) -> RanksRequest:
        """The request for the module with the change, in a copy of its folder that is made."""
        if self.tp_plan is not None:
            return replace(request, tp_plan=self.tp_plan)
        return _in_copy(request, self.root, copy, self.rewrite)

    @property
    def diff(self) -> str:
        name = self.rewrite.file
        diff = unified(self.before or "", self.rewrite.text, name) + "\n"
        return (
            diff if self.before is not None else diff.replace(f"--- a/{name}", "--- /dev/null", 1)
        )

    @property
    def place(self) -> str:
        return f"{self.rewrite.file}:{self.rewrite.line}"


def repaired(asking: Asking, refuted: Checked, edits: Sequence[Edit]) -> Iterator[InSource | None]:
    """Try changes, likeliest first: None for each that is not proved, and the one that is.

    `refuted` is what the module as it is was found to do, and `edits` fix what was traced of it.
    Nothing is tried on a module that is not refuted.
    """
    if not isinstance(refuted.verdict, Counterexample):
        return
    library = asking.request.target.startswith("hf:")
    changes = _in_plan(asking, refuted) if library else _in_files(asking, refuted, edits)

    def judge(change: InSource) -> Proof | None:
        with TemporaryDirectory(prefix="shardproof-", ignore_cleanup_errors=True) as scratch:
            return _proved(asking, refuted, change.asked(asking.request, Path(scratch) / "copy"))

    for change, proof in attempts(changes, judge):
        yield None if proof is None else change


def _in_files(asking: Asking, refuted: Checked, edits: Sequence[Edit]) -> Iterator[InSource]:
    """Changes of the files of a module."""
    module, root, sources = read_source(asking.request, refuted)
    blamed = replace(refuted, verdict=to_blame(asking.request, refuted, edits))
    for rewrite in rewrites(module, hints(blamed, edits)):
        yield InSource(root, rewrite, sources[rewrite.file], sources)


def _in_plan(asking: Asking, refuted: Checked) -> Iterator[InSource]:
    """Changes of the plan of a class of transformers: of its file, or of one that is made anew
    where the class's own plan is used. At fault are the modules of wrong gradients, and the one
    that the verdict points to."""
    assert isinstance(refuted.verdict, Counterexample)
    given = asking.request.tp_plan
    held = {} if isinstance(given, str) else dict(given)
    new = Path(f"{asking.request.target.partition(':')[2]}.tp_plan.json").resolve()
    path, before = asking.plan or (new, None)
    _, wrong, only = _wrong(refuted)
    place = refuted.verdict.location
    blamed = [f"{place.source.module}."] if place is not None and place.source.module else []
    for changed in rules(held, [*wrong, *blamed] if only else [*blamed, *wrong]):
        text = as_written(changed, held, before)
        rewrite = Rewrite(path.name, _first_other(text, before or ""), "plan", text)
        yield InSource(path.parent, rewrite, before, {}, changed)


def _first_other(text: str, before: str) -> int:
    """The number of the first line that is not as it was."""
    pairs = zip(text.splitlines(), before.splitlines(), strict=False)
    return 1 + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def as_written(changed: Mapping[str, str], held: Mapping[str, str], before: str | None) -> str:
    """Rules as JSON, indented as a file is that holds others."""
    indents = (2, 4, None, "\t")
    same = (i for i in indents if json.dumps(held, indent=i).strip() == (before or "").strip())
    end = "" if before and not before.endswith("\n") else "\n"
    return json.dumps(changed, indent=next(same, 2)) + end


def read_source(request: RanksRequest, refuted: Checked) -> tuple[Module, Path, dict[str, str]]:
    """What may be changed of a module that is refuted, its folder, and the text of all that it
    imports from there. Nothing may be changed of what the library makes."""
    file, _, target = request.target.rpartition(":")
    root = Path(file).resolve().parent
    files = {} if file.startswith("hf") else read_module(root, Path(file).name)
    path, _, model = request.against.rpartition(":")
    against = Path(path).resolve()
    theirs = {} if path.startswith("hf") else read_module(against.parent, against.name)
    own = {n: f for n, f in files.items() if root / n != against or n == Path(file).name}
    params, wrong, only = _wrong(refuted)
    dims = dict(request.mesh.dims)
    run = [] if request.alone else [n.source for _, n in refuted.captured.one.program.walk()]
    shared = frozenset((at.file, at.line) for at in run)
    rows = frozenset(d for p in refuted.placed if p.kind == "input" for d in p.layout.sharded)
    finish, steps = request.after_backward, (request.step, request.step_of_one or request.step)
    module = Module(
        *(own, dims, params, wrong, only, finish, target, shared, rows, *steps, model, theirs)
    )
    return module, root, {n: f.text for n, f in files.items()}


def looked_at(request: RanksRequest, refuted: Checked, place: Source) -> list[Fault]:
    """Lines to look at beside the one that is blamed."""
    return beside(Looked(read_source(request, refuted)[0], place))


def to_blame(request: RanksRequest, refuted: Checked, edits: Sequence[Edit]) -> Verdict:
    """The verdict, with edits that fix what was traced, at the line of source that is at fault."""
    verdict = judging.with_edits(refuted, edits)
    if not isinstance(verdict, Counterexample) or verdict.location is None:
        return verdict
    place, module = verdict.location, read_source(request, refuted)[0]
    was = refuted.verdict.location if isinstance(refuted.verdict, Counterexample) else None
    if was is not None and Looked(module, was.source).rather(place.source):
        place = was
    if not place.op:  # not of what is computed: of what waits, or is used too early
        return verdict
    if refuted.question is not None:
        traced = refuted.captured.ranks[0].program
        wrong, rates = verdict.wrong_outputs, _rates(refuted)
        looked = Looked.of(module, refuted.question, place, edits, traced, wrong, rates)
    else:  # a lookup leaves its table
        programs, given = [r.program for r in refuted.captured.ranks], refuted.captured.one.inputs
        left = (p for p in programs if any(f.leaves for f in outside(p, given)))
        program = next(left, programs[0])
        looked = Looked(module, place.source, place.reason, program=program)
    fault = blamed(looked)
    return verdict if fault is None else replace(verdict, location=moved(place, fault))


def _rates(refuted: Checked) -> list[Rate]:
    """Numbers of optimizers that ranks have and the model has not."""
    one, ranks = refuted.captured.one.rates, refuted.captured.ranks[0].rates
    kinds = {name: name.rpartition(" ")[2] for name in one}
    held = {(kinds[name], rate) for name, rate in one.items()}
    return [
        Rate(
            kinds[name].partition("[")[0],
            (kinds[name], rate) in held,
            one[name][0] == rate[0],
        )
        for name, rate in ranks.items()
        if name in one and one[name] != rate
    ]


def _wrong(refuted: Checked) -> tuple[list[str], list[str], bool]:
    """The parameters, those with wrong gradients, and whether all outputs are right. Names are
    those of the parallel module."""
    renamed = {v: k for r in refuted.captured.ranks for k, v in r.renamed.items()}
    params = [renamed.get(p.name, p.name) for p in refuted.placed if p.kind == "parameter"]
    assert isinstance(refuted.verdict, Counterexample)
    keys = [k.partition(":")[::2] for k in refuted.verdict.wrong_outputs]
    paths = [p for role, p in keys if role == "grad" and not p.startswith(GRAD_OF_INPUT)]
    only = bool(keys) and all(role == "grad" for role, _ in keys)
    return params, [renamed.get(p, p) for p in paths], only


def hints(refuted: Checked, edits: Sequence[Edit]) -> list[Hint]:
    """Where the fault may lie: where the verdict points, and where edits fix what was traced."""
    out: list[Hint] = []
    place = refuted.verdict.location if isinstance(refuted.verdict, Counterexample) else None
    if place is not None:
        more = tactics_for(place.reason, edits) if place.op else BLAMED[""]
        out.append(Hint(place.source.file, place.source.line, more))
    for edit in edits:
        node = node_of(refuted.question.distributed, edit) if refuted.question else None
        at = node.source if node is not None else NOWHERE
        out.append(Hint(at.file, at.line, tactics_of(edit)))
    return out


def _proved(asking: Asking, refuted: Checked, request: RanksRequest) -> Proof | None:
    """The proof of a changed module, traced anew in every mode that is asked for; of the same model
    and contract, and loaded with what it says where that is asked for."""
    mode = TRAIN if TRAIN in refuted.captured.modes else EVAL
    modes = request.modes
    if modes != (mode,):
        first = _judged(asking, refuted, replace(request, modes=(mode,), load=""))
        if first is None:
            return None
    return _judged(asking, refuted, request)


def _judged(asking: Asking, refuted: Checked, request: RanksRequest) -> Proof | None:
    with TemporaryDirectory(prefix="shardproof-", ignore_cleanup_errors=True) as scratch:
        traced = Path(scratch)
        try:
            found = asking.capture(request, traced)
            if not _same_models(found, asking.before or (refuted.captured,)):
                return None
            judged = judging.check_modes(found, asking.stated, lambda _: None, asking.compared)
            if not all(isinstance(c.verdict, Proof) and _same_contract(c, refuted) for c in judged):
                return None
            last = judged[-1]
            if request.load and loads.looked(traced, request, last).wrong:
                return None
        except Exception as problem:
            if as_ours(problem) is None:
                raise
            return None
        return last.verdict if isinstance(last.verdict, Proof) else None


def _in_copy(request: RanksRequest, root: Path, copy: Path, rewrite: Rewrite) -> RanksRequest:
    """The request for a copy of the folder with the change. What is not changed and not named in
    the request is linked."""
    named: dict[str, str] = {}
    own = {rewrite.file}
    for which in ("target", "against"):
        file, _, name = str(getattr(request, which)).rpartition(":")
        path = Path(file).resolve()
        if path.is_relative_to(root):
            inside = path.relative_to(root).as_posix()
            own.add(inside)
            named[which] = f"{copy / inside}:{name}"
    _copied(root, copy, own)
    (copy / rewrite.file).write_bytes(rewrite.text.encode())
    return replace(request, **named)


def _copied(root: Path, copy: Path, own: set[str]) -> None:
    """A folder of links, and of copies of some files."""
    copy.mkdir()
    below: dict[str, set[str]] = {}
    for name in own:
        first, slash, rest = name.partition("/")
        below.setdefault(first, set()).update({rest} if slash else ())
    for path in root.iterdir():
        if path.name == "__pycache__":
            continue
        if path.name not in below:
            (copy / path.name).symlink_to(path)
        elif path.is_dir():
            _copied(path, copy / path.name, below[path.name])
        else:
            (copy / path.name).write_bytes(path.read_bytes())


def _same_models(after: Sequence[RanksCaptured], before: Sequence[RanksCaptured]) -> bool:
    """Whether the model on one device is in every mode what it was in that mode."""
    was = {mode: b.one for b in before for mode in b.modes}
    return all(m in was and _same_model(a.one, was[m]) for a in after for m in a.modes)


def _same_model(after: Side, before: Side) -> bool:
    """Whether the model on one device is what it was, whatever its lines are: a change that makes
    it as wrong as the module repairs nothing."""
    if after.consts.keys() != before.consts.keys() or dict(after.params) != dict(before.params):
        return False
    same = all(np.array_equal(after.consts[k], before.consts[k]) for k in after.consts)
    ends = {output_key(o): o.value for o in after.program.outputs}
    kept = all(ends.get(output_key(o)) == o.value for o in before.program.outputs)
    return same and kept and _bare(after.program) == _bare(before.program)


def _bare(program: Program) -> str:
    nodes = tuple(replace(n, source=NOWHERE) for n in program.nodes)
    return to_text(replace(program, nodes=nodes, outputs=()))


def _same_contract(after: Checked, before: Checked) -> bool:
    """Whether inputs, outputs, and what shapes say of parameters are laid out as they were; a
    plan may place its parameters otherwise, and a rank may hold less of one than it did."""
    was = {(p.kind, p.name): p for p in before.placed}
    for now in after.placed:
        old = was.get((now.kind, now.name))
        if old is None or now.layout == old.layout:
            continue
        less = prod(now.layout.local_shape) < prod(old.layout.local_shape)
        if now.kind != "parameter" or not (less or now.how == "from its placements"):
            return False
    return True
