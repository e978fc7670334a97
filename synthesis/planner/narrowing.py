"""A point that cannot be written, fixed: what each refusal names is left whole, in all layers of
its kind at once; then as much of that as can be is split again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.synthesis.planner.assign import Point
from shardproof.synthesis.planner.constraints import Rules
from shardproof.synthesis.planner.roles import Module
from shardproof.synthesis.planner.scoring import Candidate, Refusal, Search
from shardproof.verifier.kernel.program.program import Program

COLUMNS = ("column", "fused_column")


def layered(path: str) -> str:
    """A path without the indices of layers: `blocks.*.mlp.0` of `blocks.3.mlp.0`."""
    *around, last = path.split(".")
    return ".".join([*("*" if part.isdigit() else part for part in around), last])


def alike(modules: Iterable[Module]) -> list[list[str]]:
    """Paths of the modules that are one choice: the same place and weight in every layer."""
    found: dict[object, list[str]] = {}
    for m in modules:
        key = layered(m.path), m.use, m.parts, m.weight.shape
        found.setdefault(key, []).append(m.path)
    return list(found.values())


def feeding(program: Program, modules: Sequence[Module]) -> dict[str, set[str]]:
    """For each module with parameters, those that its operands come from, with none between."""
    owners = {m.path for m in modules}
    outer = {p for p in owners if any(o != p and o.startswith(f"{p}.") for o in owners)} | {""}
    forward = forward_values(program)
    feeds: dict[str, set[str]] = {path: set() for path in owners}

    def walk(scope: str, block: Program) -> None:
        comes: dict[str, frozenset[str]] = {}
        for node in block.nodes:
            if (scope, node.outputs[0]) not in forward:
                continue
            if node.body is not None:
                walk(node.outputs[0], node.block)
            path = node.source.module
            came = frozenset[str]().union(*(comes.get(v, frozenset()) for v in node.inputs))
            if path in owners:
                feeds[path] |= came - {path}
                came = came | {path} if path in outer else frozenset({path})
            comes.update(dict.fromkeys(node.outputs, came))

    walk("", program)
    return feeds


@dataclass
class Narrowing:
    """Narrows the points of one search."""

    state: Search
    rules: Rules
    obstacles: dict[str, str] = field(default_factory=dict[str, str])
    """Why modules were left whole, by path: what was refused of the point with them split."""
    found: list[Point] = field(default_factory=list[Point])
    """What was fixed, on a stream that is split over the sequence."""

    def __post_init__(self) -> None:
        self.feeds = feeding(self.state.program, self.state.modules)
        self.groups = alike(self.state.modules)

    def narrow(self, start: Point, refused: Refusal) -> list[Candidate]:
        """Of a point that cannot be written, the most that can be, if anything can. On a split
        stream that is looked for with the styles that were found on a whole one."""
        if self.found and start.stream != "R":
            return [r for p in self.found if isinstance(r := self._scored(p, refused), Candidate)]
        point, result = start, refused
        while isinstance(result, Refusal):
            near = self._eased(point, result)
            if near is None:
                return []
            point = near
            result = self._refusal(point, refused) or self._scored(point, refused)
        best = self._split_again(start, result, refused)
        self.found.append(replace(best.point, stream="S(1)"))
        return [best]

    def _scored(self, point: Point, refused: Refusal) -> Candidate | Refusal:
        return self.state.score(point, f"{refused.origin}, in part", refused.tactic)

    def _refusal(self, point: Point, refused: Refusal) -> Refusal | None:
        return self.state.refusal(point, f"{refused.origin}, in part", refused.tactic)

    def _with_pieces(self, point: Point | None, refused: Refusal) -> Point | None:
        """The point with the parameters split that it takes pieces of; None where it is refused."""
        while point is not None and (why := self._refusal(point, refused)) is not None:
            point = self._cut(point, why)
        return point

    def _eased(self, point: Point, refused: Refusal) -> Point | None:
        """The point with the parameter split too that a refusal is about, or else with what it is
        about split less; None where that is whole already."""
        cut = self._cut(point, refused)
        if cut is not None:
            return cut
        styles = dict(point.styles)
        makers = {p for p in refused.makers if styles.get(p) in COLUMNS}
        blamed = makers or self._blamed(styles, refused.module, refused.before)
        kinds = [g for g in self.groups if blamed & set(g)]
        paths = [p for g in kinds for p in g if styles[p] != "replicate"]
        free = [p for p in paths if "replicate" in self.rules.allowed[p]]
        for path in free:
            self.obstacles.setdefault(path, refused.reason)
        whole = replace(point.styled(dict.fromkeys(free, "replicate")), pieces=frozenset())
        return whole if free else None

    def _cut(self, point: Point, refused: Refusal) -> Point | None:
        """With the parameter of which a rank works on its piece, and those like it in other layers,
        split; None where there is none, or that has a style."""
        if refused.piece is None or point.stream != "R":
            return None
        name, dim = refused.piece
        module, param = self.state.owners[name]
        size = self.state.mesh[self.state.tp or ""]
        uneven = param.shape[dim] % size > 0
        styled = module.use != "other" and not module.raw
        fixed = styled or module.path in self.rules.fixed
        if fixed or uneven:
            return None
        alike = next(g for g in self.groups if module.path in g)
        place = param.path.removeprefix(f"{module.path}.")
        own = ((m, p) for m in self.state.modules if m.path in alike for p in m.params)
        same = module.is_plain_norm  # all that it scales and shifts features by
        more = {(p.name, dim) for m, p in own if same or p.path.removeprefix(f"{m.path}.") == place}
        return None if more <= point.pieces else replace(point, pieces=point.pieces | more)

    def _blamed(self, styles: dict[str, str], module: str, before: bool) -> set[str]:
        """The modules that leave the activation split that a module cannot take: itself, unless
        what is `before` it is at fault, or else the nearest before it, or all that are split
        beside it, or around it."""
        own = styles.get(module, "replicate") != "replicate"
        if own and not before:
            return {module}
        seen, level = {module}, self.feeds.get(module, set[str]())
        while level - seen:
            split = {p for p in level if styles[p] in COLUMNS}
            if split:
                return split
            seen |= level
            level = set[str]().union(*(self.feeds[p] for p in level))
        if own:
            return {module}
        split = {p for p, style in styles.items() if style != "replicate"}
        while module:
            beside = {p for p in split if p.startswith(f"{module}.")}
            if beside:
                return beside
            module = module.rpartition(".")[0]
        return split

    def _split_again(self, start: Point, whole: Candidate, refused: Refusal) -> Candidate:
        """With what was left whole split after all, kind by kind, where that can be written; last
        what one kind makes and another reads."""
        wanted, held = dict(start.styles), whole.point

        def split(paths: Iterable[str]) -> bool:
            nonlocal held
            point = self._with_pieces(held.styled({p: wanted[p] for p in paths}), refused)
            taken = point not in (None, held)
            held = point if point is not None else held
            return taken

        left = [g for g in self.groups if any(wanted[p] != held.style(p) for p in g)]
        around: dict[str, list[list[str]]] = {}
        for group in left:
            around.setdefault(layered(group[0]).rpartition(".")[0], []).append(group)
        for groups in around.values():
            if not split(p for g in groups for p in g) and len(groups) > 1:
                any(map(split, groups))
        best = self._best(held, refused, whole, left)
        held = best.point
        makers = {p.name: m.path for m in self.state.modules for p in m.params}
        follows = {m.path: {makers[w] for w in m.follows} for m in self.state.modules}
        for group in left:
            before = set[str]().union(*(follows[p] for p in group))
            makes = [g for g in left if before & set(g)]
            if makes:
                split(p for g in (*makes, group) for p in g)
        return self._best(held, refused, best)

    def _best(
        self, point: Point, refused: Refusal, known: Candidate, kinds: Sequence[list[str]] = ()
    ) -> Candidate:
        """The candidate of a point. Where its outputs or its backward are refused, the best with
        one of some kinds whole, or the known one."""
        result = self._scored(point, refused)
        if isinstance(result, Candidate):
            return result
        fewer = (point.styled(dict.fromkeys(group, "replicate")) for group in kinds)
        found = [self._scored(p, refused) for p in fewer if p != point]
        return min((c for c in found if isinstance(c, Candidate)), key=_score, default=known)


def _score(candidate: Candidate) -> tuple[float, float, float]:
    return candidate.score
