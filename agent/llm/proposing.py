"""The role of a planner: tactics and placements as starting points of the search."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shardproof.agent.llm import vocabulary
from shardproof.agent.llm.client import Form, Model
from shardproof.agent.llm.dialogue import Result, put
from shardproof.agent.llm.hygiene import one_line
from shardproof.agent.llm.replies import Proposal, Proposals, ReplyError, read, schema
from shardproof.agent.llm.source import boundary
from shardproof.prompts import render
from shardproof.synthesis.hardware import Cluster
from shardproof.synthesis.planner.assign import Point, options
from shardproof.synthesis.planner.roles import Module
from shardproof.synthesis.planner.scoring import Candidate
from shardproof.synthesis.planner.search import Found
from shardproof.synthesis.planner.tactics import TACTICS
from shardproof.verifier.kernel.program.types import Mesh

TOLD = 8
"""Rows of the table of a search, and of what it refused."""


@dataclass(frozen=True)
class Task:
    """The model to place, as the search sees it."""

    modules: tuple[Module, ...]
    mesh: Mesh
    tp: str
    """Mesh dim of tensor parallelism."""
    cluster: str = ""
    """Its devices and links in words, see `described`."""
    table: tuple[str, ...] = ()
    """What the search priced, best first, see `priced`."""
    obstacles: tuple[str, ...] = ()
    """What the search could not lower or write, and why."""
    rejected: tuple[tuple[str, str], ...] = ()
    """Proposal and why it did not hold."""
    most: int = 3


@dataclass(frozen=True)
class Proposed:
    """A point of the search: every module has a style that fits it."""

    point: Point
    tactic: str
    reason: str


@dataclass(frozen=True)
class Sorted:
    """Proposals that are points of the search, and what is wrong with the others."""

    points: tuple[Proposed, ...]
    left_out: tuple[str, ...] = ()


def propose(model: Model, task: Task) -> Result[Sorted]:
    """Ask for points. They are prices and proofs away from a plan."""
    form = Form("proposals", schema(Proposals, vocabulary.of_proposals()))
    prompt = render(
        "propose",
        boundary=boundary(),
        mesh=", ".join(f"{name}={size}" for name, size in task.mesh.dims)
        + f"; tensor parallelism on {task.tp}",
        cluster=one_line(task.cluster, 400) or "not described",
        table=[one_line(line, 400) for line in task.table],
        obstacles=[one_line(line, 300) for line in task.obstacles],
        modules=[row(m, task.mesh[task.tp]) for m in task.modules],
        tactics=vocabulary.tactics(),
        styles=vocabulary.styles(),
        streams=vocabulary.streams(),
        rejected=[{"proposal": one_line(p), "why": one_line(w)} for p, w in task.rejected],
        most=task.most,
    )
    return put(model, prompt, form, lambda reply: _read(task, reply.text))


def described(cluster: Cluster) -> str:
    """Devices and links of a cluster in one line."""
    device = cluster.device
    flops = ", ".join(f"{n / 1e12:.0f} TFLOP/s in {dtype}" for dtype, n in device.flops.items())
    return (
        f"{cluster.name}: {device.memory_bytes / 1e9:.0f} GB at "
        f"{device.memory_bandwidth / 1e12:.1f} TB/s, {flops}; {cluster.devices_per_node} devices a "
        f"node with {cluster.node.bandwidth / 1e9:.0f} GB/s each, "
        f"{cluster.network.bandwidth / 1e9:.0f} GB/s each between nodes"
    )


def priced(found: Found) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The best candidates of a search with their prices, and what it refused, a line each."""
    table = tuple(map(_priced, [found.best, *found.others][:TOLD]))
    obstacles = tuple(f"{r.origin}: {r.reason}" for r in found.refused[:TOLD])
    return table, obstacles


def _priced(found: Candidate) -> str:
    cost = found.estimate
    placed = (f"{path} {style}" for path, style in found.point.styles if style != "replicate")
    return (
        f"{found.origin}: ops {cost.step_s * 1e3:.3f} ms ({cost.compute_s * 1e3:.3f} compute), "
        f"{found.memory_bytes / 1e9:.2f} GB per rank, {cost.comm_bytes / 1e9:.3f} GB sent; "
        f"stream {found.point.stream}; {', '.join(placed) or 'all whole'}"
    )


def row(module: Module, tp: int) -> dict[str, str]:
    return {
        "path": one_line(module.path, 120),
        "kind": one_line(module.kind, 60),
        "use": module.use,
        "shape": "x".join(map(str, module.weight.shape)),
        "numbers": f"{sum(prod(p.shape) for p in module.params):,}",
        "styles": "|".join(options(module, tp)),
    }


def _read(task: Task, text: str) -> Sorted:
    reply = read(Proposals, text)
    if not reply.proposals:
        raise ReplyError(["proposals: empty"])
    return points(task, reply.proposals)


def points(task: Task, proposals: Sequence[Proposal]) -> Sorted:
    """Proposals as points of the search. One that is none is left out; the others stand.

    Raises:
        ReplyError: none is a point: a module, style, tactic or stream that there is not.
    """
    problems: list[str] = []
    found: list[Proposed] = []
    for index, proposal in enumerate(proposals[: task.most]):
        wrong = _problems(task, proposal, f"proposals[{index}]")
        problems += wrong
        if not wrong:
            found.append(_point(task, proposal))
    if len(proposals) > task.most:
        problems.append(f"proposals: {len(proposals)}; at most {task.most}")
    if problems and not found:
        raise ReplyError(problems[:8])
    return Sorted(tuple(found), tuple(problems[:8]))


def _problems(task: Task, proposal: Proposal, where: str) -> list[str]:
    problems: list[str] = []
    if proposal.tactic not in TACTICS:
        problems.append(f"{where}.tactic: {_unknown(proposal.tactic, sorted(TACTICS))}")
    if proposal.stream not in vocabulary.STREAMS:
        problems.append(f"{where}.stream: {_unknown(proposal.stream, list(vocabulary.STREAMS))}")
    modules = {m.path: m for m in task.modules}
    for at, placement in enumerate(proposal.placements):
        place = f"{where}.placements[{at}]"
        module = modules.get(placement.module)
        if module is None:
            problems.append(f"{place}.module: {_unknown(placement.module, list(modules))}")
            continue
        fits = options(module, task.mesh[task.tp])
        if placement.style not in fits:
            problems.append(f"{place}.style: {_unknown(placement.style, fits)}")
    return problems


def _unknown(word: str, known: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, known, 3) or list(known)[:6]
    return f"{one_line(word, 60)!r} does not fit; expected one of {', '.join(near)}"


def _point(task: Task, proposal: Proposal) -> Proposed:
    point = TACTICS[proposal.tactic](task.modules, task.mesh[task.tp])
    for placement in proposal.placements:
        point = point.with_style(placement.module, placement.style)
    return Proposed(Point(point.styles, proposal.stream), proposal.tactic, proposal.reason)
