"""Best-first search over sequences of edits: numbers first, then relations, then the verdict.

An edit is kept where it takes the program further: a value that was no piece of anything becomes
one, or an output comes right. What agrees with one device on numbers is verified, and only a
`Proof` is a repair.
"""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, islice

from shardproof.synthesis.repair.agreement import agreement, differing
from shardproof.synthesis.repair.attempts import attempts, first
from shardproof.synthesis.repair.edits import Edit, apply, without_dead
from shardproof.synthesis.repair.numbers import Numbers, State
from shardproof.synthesis.repair.propose import candidates, gained
from shardproof.synthesis.repair.question import Question, fewer_of
from shardproof.synthesis.repair.view import Device, View, device, root
from shardproof.verifier.kernel.contract import check, output_key
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.search import too_large
from shardproof.verifier.text.assemble import well_formed
from shardproof.verifier.verdict import Proof, Unknown, Verdict

Cost = Callable[[Program], float]
Clock = Callable[[], float]
Tally = Counter[tuple[str, str]]
"""How often edits of a tactic were `tried`, `agree` on numbers, and are `proved`."""

SMALL = 200
"""Programs of at most this many nodes are run to their end for every edit."""
REACH = 12
"""Nodes that are run for an edit of a larger program before it is given up or run whole."""
CLEAR = 4
"""An edit after which so many more values are right is run whole at once."""
FAR = 60
"""Values that are looked at to compare edits that were run whole."""
CHUNK = 60
"""Edits that are tried at one program before another is looked at."""
WHOLE = 6
"""Edits of a chunk that are run whole, the most promising ones."""
SHARE = 1.5
"""How much more time programs of one edit fewer get."""
AGAIN = 1.0
"""Seconds at least to look for fewer edits, where more than one were found."""
SEEDS = (11, 12, 13, 14, 15, 16)
"""Random inputs that are tried until they show a fault."""
SUGGESTED = 60
"""Edits that relations suggest which are tried."""
KEPT = 6
"""Edits of a chunk that are built upon."""


@dataclass(frozen=True)
class Repaired:
    """A program that is proved, and the edits that lead to it."""

    program: Program
    edits: tuple[Edit, ...]
    verdict: Proof
    tried: int
    seconds: float
    tally: Tally = field(default_factory=Counter[tuple[str, str]])
    others: tuple[tuple[Edit, ...], ...] = ()
    """As many edits at the same cost, after which the program agrees on numbers; not judged."""


@dataclass(frozen=True)
class NotRepaired:
    """Why no repair was found. `best` are the edits that took the program furthest."""

    reason: str
    best: tuple[Edit, ...]
    tried: int
    seconds: float
    tally: Tally = field(default_factory=Counter[tuple[str, str]])


def repair(
    question: Question,
    *,
    seconds: float = 30.0,
    cost: Cost | None = None,
    clock: Clock = time.perf_counter,
) -> Repaired | NotRepaired:
    """The fewest edits after which the distributed program is proved, the cheapest among equals.

    The one-device program and the contract stay as they are. `cost` compares programs of equally
    many edits; by default it is the bytes that ranks exchange. `clock` is what `seconds` are read
    from.

    Raises:
        IRError: a program that is not well formed.
        ContractError: a contract that does not fit the programs.
    """
    one, many = well_formed(question.sequential), well_formed(question.distributed)
    check(one, many, question.contract)
    asked = replace(question, sequential=one, distributed=many)
    return _Search(asked, cost or traffic, seconds, clock).run()


def traffic(program: Program) -> float:
    """Bytes that ranks hand to collectives and messages, and a little for every node."""
    total = 0.0
    for node in program.nodes:
        if node.body is not None:
            total += traffic(node.body) * int(str(node.attrs["length"]))
        elif lookup(node.op).kind in ("collective", "movement") and node.op != "on_coord":
            total += sum(program.types[v].nbytes for v in node.inputs)
        total += 1e-3
    return total


@dataclass
class _Point:
    """A program on the way, with the edits that led to it."""

    program: Program
    edits: tuple[Edit, ...]
    state: State
    wrong: set[str]
    before: View | None
    gain: float = 0.0
    """How much further than the start it is: values found, and twice the outputs that are right."""
    chunks: int = 0
    view: View | None = None
    candidates: Iterator[tuple[View, Edit]] | None = None
    tried: set[Edit] = field(default_factory=set[Edit])

    def rank(self) -> float:
        """Less is more promising: what is gained, shared by the chunks that were tried."""
        return -max(self.gain, 0.1) / (1 + self.chunks / 2)


@dataclass(frozen=True)
class _Trial:
    """An edit that was tried: how much further it goes, as far as it was run."""

    edit: Edit
    gain: float
    state: State | None
    """The whole run, where it was run whole."""
    wrong: frozenset[str] = frozenset()
    """Keys of the outputs that it leaves wrong, where it was run whole."""

    @property
    def right(self) -> bool:
        """Whether it was run whole, and all outputs are right."""
        return self.state is not None and not self.wrong


class _Search:
    def __init__(self, question: Question, cost: Cost, seconds: float, clock: Clock) -> None:
        self.question, self.most, self.clock = question, question.max_edits, clock
        self.cost = cost
        self.begin = clock()
        self.deadline = self.begin + seconds
        self.tried = 0
        self.tally: Tally = Counter()
        self.unproved = 0
        self.best: tuple[int, float, tuple[Edit, ...]] = (1 << 30, 0.0, ())
        self.numbers: Numbers
        self.one: Device

    def run(self) -> Repaired | NotRepaired:
        q = self.question
        if too_large(q.sequential, q.distributed):
            return self._by_relations(q.verdict(q.distributed))
        state, wrong = self._seen()
        self.one = device(self.numbers)
        start = _Point(q.distributed, (), state, wrong, None)
        if wrong:
            return self._best_first(start)
        given = q.verdict(q.distributed)
        if isinstance(given, Proof):
            return self._found(q.distributed, (), given)
        return self._unproved(start, given)

    def _by_relations(self, given: Verdict) -> Repaired | NotRepaired:
        """One edit that relations suggest, of programs that are too large to be run on numbers."""
        q = self.question
        if isinstance(given, Proof):
            return self._found(q.distributed, (), given)
        suggested = q.prefixes.suggested(q.distributed, SUGGESTED)
        self.tried = len(suggested)
        found = first(suggested, lambda e: self._proved(q.apply((e,)), (e,)), self.late)
        return found or self._none("the programs are too large to be run on numbers")

    def _seen(self) -> tuple[State, set[str]]:
        """The first run on numbers that shows an output to be wrong, or the last of a few."""
        q = self.question
        for seed in SEEDS:
            self.numbers = Numbers(q.sequential, q.distributed, q.contract, q.consts, seed)
            state = self.numbers.machine.run(q.distributed, self.numbers.empty)
            wrong = self.numbers.wrong(state)
            if wrong or seed == SEEDS[-1]:
                return state, wrong
        raise AssertionError("no seeds")

    def _best_first(self, start: _Point) -> Repaired | NotRepaired:
        """Chunks of edits at the most promising programs; fewer edits get more of the time."""
        order = count()
        queues: list[list[tuple[float, int, _Point]]] = []
        queues += ([] for _ in range(self.most))
        spent = [0.0] * self.most
        heapq.heappush(queues[0], (start.rank(), next(order), start))
        kept: Repaired | None = None
        asked = self.most
        while any(queues) and not self.late():
            open_ = (d for d in range(self.most) if queues[d])
            depth = min(open_, key=lambda d: (kept is None) * spent[d] * SHARE**d)
            _, _, point = heapq.heappop(queues[depth])
            begin = self.clock()
            trials, more = self._chunk(point)
            found = self._solved(point, trials)
            if found is not None:
                kept = found
                self._fewer_than(len(found.edits), queues)
                continue
            for child in self._children(point, trials):
                if depth + 1 < self.most:
                    heapq.heappush(queues[depth + 1], (child.rank(), next(order), child))
            if more:
                point.chunks += 1
                heapq.heappush(queues[depth], (point.rank(), next(order), point))
            spent[depth] += self.clock() - begin
        if kept is not None:
            return replace(kept, tried=self.tried, seconds=self.clock() - self.begin)
        if self.late():
            return self._none("the time is up")
        return self._none(f"no {asked} edits of the known kinds lead to a proof")

    def _fewer_than(self, edits: int, queues: list[list[tuple[float, int, _Point]]]) -> None:
        """Go on for a while, to see whether fewer edits do."""
        now = self.clock()
        self.most = edits - 1
        self.deadline = min(self.deadline, now + max(AGAIN, 0.3 * (now - self.begin)))
        for queue in queues[self.most :]:
            queue.clear()

    def late(self) -> bool:
        return self.clock() > self.deadline

    def _chunk(self, point: _Point) -> tuple[list[_Trial], bool]:
        """Try the next edits at a program; whether there are more."""
        if point.candidates is None:
            point.view = root(self.numbers, self.one, point.state, point.before)
            point.before = None
            wanted = {output_key(o): o.value for o in self.question.sequential.outputs}
            point.candidates = candidates(point.view, self.question.contract, wanted)
        trials: list[_Trial] = []
        some = right = False
        for view, edit in islice(point.candidates, CHUNK):
            some = True
            named = replace(edit, scope=view.scope)
            if self.late():
                break
            if named in point.tried:
                continue
            point.tried.add(named)
            trial = self._try(point, view, edit)
            if trial is not None and trial.gain >= CLEAR:
                trial = self._whole(point, trial)
                right = trial is not None and trial.right
            if trial is not None:
                trials.append(trial)
            clear = trial is not None and trial.gain >= FAR / 3
            if (right or clear) and len(point.program.nodes) > SMALL:
                break
        trials.sort(key=lambda t: -t.gain)
        if right:
            return [t for t in trials if t.state], some
        whole = [self._whole(point, t) for t in trials[:WHOLE]]
        return [t for t in whole if t is not None] + [t for t in trials[WHOLE:] if t.state], some

    def _try(self, point: _Point, view: View, edit: Edit) -> _Trial | None:
        """The edit, run as far as it says something; None where it is no program or no gain."""
        try:
            program = apply(view.program, edit)
        except IRError:
            return None
        if not view.scope and not self.question.keeps(program):
            return None
        self.tried += 1
        self.tally[edit.tactic, "tried"] += 1
        small = len(program.nodes) <= SMALL
        state = view.machine.run(program, view.state, 1 << 30 if small else REACH)
        gain = gained(view, state, REACH)
        named = replace(edit, scope=view.scope)
        if view.scope or not small:
            if not view.scope:
                gain += 2 * self._outputs(point, state)
            return _Trial(named, gain, None) if gain > 0 else None
        wrong = self._wrong(point, edit, state)
        gain += 2 * (len(point.wrong) - len(wrong))
        if gain <= 0 and wrong:
            return None
        return _Trial(named, gain + 100 * (not wrong), state, wrong)

    def _wrong(self, point: _Point, edit: Edit, state: State) -> frozenset[str]:
        """The outputs that an edit leaves wrong.

        Functions are hashes there: what is right by a law of exponentials is so on floats alone.
        """
        wrong = self.numbers.wrong(state)
        likely = edit.kind == "skip" or len(wrong) < len(point.wrong)
        if wrong and likely and self._agrees is not None and self._agrees(state.program):
            return frozenset()
        return frozenset(wrong)

    @cached_property
    def _agrees(self) -> Callable[[Program], bool] | None:
        q = self.question
        problem = Problem(q.sequential, q.distributed, q.contract, consts=q.consts)
        found = differing(problem)
        return agreement(problem, found.inputs) if found is not None else None

    def _outputs(self, point: _Point, state: State) -> int:
        """How many more outputs are right, of those that an edit reached so far."""
        dirty, before = set(state.dirty), set(point.program.outputs)
        reached = [o for o in state.program.outputs if o.value in dirty or o not in before]
        now = sum(self.numbers.meets(o, state) for o in reached)
        return now - sum(output_key(o) not in point.wrong for o in reached)

    def _whole(self, point: _Point, trial: _Trial) -> _Trial | None:
        if trial.state is not None:
            return trial
        try:
            program = apply(point.program, trial.edit)
        except IRError:
            return None
        state = self.numbers.machine.run(program, point.state)
        gain = trial.gain
        if not trial.edit.scope and point.view is not None:
            gain = gained(point.view, state, FAR)
        wrong = self._wrong(point, trial.edit, state)
        gain += 2 * (len(point.wrong) - len(wrong))
        return _Trial(trial.edit, gain, state, wrong)

    def _solved(self, point: _Point, trials: list[_Trial]) -> Repaired | None:
        """The cheapest edit after which the program is proved."""
        right = [(t.state.program, t.edit) for t in trials if t.state and t.right]
        self.tally.update((e.tactic, "agree") for _, e in right)
        priced = sorted((self.cost(p), i, p) for i, (p, _) in enumerate(right))
        tried = attempts(
            priced, lambda p: self._proved(p[2], (*point.edits, right[p[1]][1])), self.late
        )
        for (price, index, _), found in tried:
            if found is not None:
                same = (right[i][1] for p, i, _ in priced if p == price and i != index)
                others = tuple((*point.edits, e) for e in same)
                whole = len(found.edits) == len(point.edits) + 1
                return replace(found, others=others) if whole else found
        return None

    def _proved(self, program: Program, edits: tuple[Edit, ...]) -> Repaired | None:
        """The program if it is proved, or one of fewer of the edits."""
        found = first(filter(None, fewer_of(edits)), self._fewer)
        return found or self._judged(without_dead(self.question.distributed, program), edits)

    def _fewer(self, edits: tuple[Edit, ...]) -> Repaired | None:
        program = self.question.apply(edits)
        wrong = self.numbers.wrong(self.numbers.machine.run(program, self.numbers.empty))
        return None if wrong else self._judged(program, edits)

    def _judged(self, program: Program, edits: tuple[Edit, ...]) -> Repaired | None:
        verdict = self.question.verdict(program)
        if isinstance(verdict, Proof):
            return self._found(program, edits, verdict)
        self.unproved += isinstance(verdict, Unknown)
        return None

    def _children(self, point: _Point, trials: list[_Trial]) -> Iterator[_Point]:
        """The programs that go further, best first."""
        found: list[tuple[float, int, _Point]] = []
        for index, trial in enumerate(trials):
            if trial.state is None or trial.gain <= 0:
                continue
            gain = point.gain + trial.gain
            edits = (*point.edits, trial.edit)
            wrong = set(trial.wrong)
            child = _Point(trial.state.program, edits, trial.state, wrong, point.view, gain)
            found.append((-gain, index, child))
            if wrong:  # one that agrees on numbers and is not proved leads nowhere
                self.best = min(self.best, (len(wrong), -gain, edits), key=lambda b: b[:2])
        for _, _, child in sorted(found, key=lambda f: f[:2])[:KEPT]:
            yield child

    def _unproved(self, start: _Point, given: Verdict) -> Repaired | NotRepaired:
        """The program agrees on numbers: one edit that keeps that and leads to a proof."""
        view = root(self.numbers, self.one, start.state)
        late = [n for n in view.program.nodes if n.timing.asynchronous]
        waits = [Edit("after", n.outputs[0], "wait") for n in late]
        self.tried += len(waits)
        found = first(waits, lambda e: self._proved(apply(view.program, e), (e,)), self.late)
        if found is not None:
            return found
        said = given.reason if isinstance(given, Unknown) else "it is refuted for another reason"
        return self._none(f"the program agrees with one device on numbers: {said}")

    def _found(self, program: Program, edits: tuple[Edit, ...], verdict: Proof) -> Repaired:
        self.tally.update((e.tactic, "proved") for e in edits)
        seconds = self.clock() - self.begin
        return Repaired(program, edits, verdict, self.tried, seconds, self.tally)

    def _none(self, reason: str) -> NotRepaired:
        if self.unproved:
            reason += f"; {self.unproved} edited programs agree on numbers and are not proved"
        seconds = self.clock() - self.begin
        return NotRepaired(reason, self.best[2], self.tried, seconds, self.tally)
