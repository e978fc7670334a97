"""`python -m benchmarks.captured_step`: the step of transformers' Llama 3 405B on 8192 ranks.

The model is captured from transformers, its pass is planned for 64 replicas and 8 tensor ranks, cut
into 16 stages, and micro-batches, clipping and AdamW go around it. The step is proved; then one op
of one stage is altered in several ways, and each has to be refuted. One process; seconds of the
clock and of the processor, and the most memory so far. Exits 1 where a verdict is another.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.request import CaptureRequest, read_config
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.planner import Asked, synthesize
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.training.captured import captured_step
from shardproof.synthesis.training.staged import staged
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Attr, Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Trace

CONFIG = Path(__file__).resolve().parent.parent / "examples" / "llama3-405b.json"
Change = Callable[[Program, Node], list[Node]]


def _local(program: Program, node: Node) -> list[Node]:
    """What a rank holds of the result when nothing is exchanged."""
    if node.op == "reduce_scatter":
        attrs = {k: node.attrs[k] for k in ("mesh_dim", "dim")}
        return [replace(node, op="shard_slice", attrs=attrs)]
    return [replace(node, op="reshape", attrs={"shape": program[node.outputs[0]].shape})]


def _halved(program: Program, node: Node) -> list[Node]:
    (out,) = node.outputs
    program.types[f"{out}.whole"] = program.types[out]
    attrs: dict[str, Attr] = {"value": Fraction(1, 2)}
    times = replace(node, op="mul_scalar", inputs=(f"{out}.whole",), attrs=attrs)
    return [replace(node, outputs=(f"{out}.whole",)), times]


def _summed(_: Program, node: Node) -> list[Node]:
    return [replace(node, attrs={**node.attrs, "reduce": "sum"})]


def altered(program: Program, find: Callable[[Node], bool], change: Change) -> Program:
    """The program with the first such node changed; the same object where there is none."""
    for index, node in enumerate(program.nodes):
        nodes: list[Node] = []
        if node.body is not None:
            body = altered(node.body, find, change)
            if body is not node.body:
                nodes = [replace(node, body=body)]
        elif find(node):
            program = replace(program, types=dict(program.types))
            nodes = change(program, node)
        if nodes:
            return replace(
                program, nodes=(*program.nodes[:index], *nodes, *program.nodes[index + 1 :])
            )
    return program


def _over(op: str, mesh_dim: str, reduce: str = "sum") -> Callable[[Node], bool]:
    return lambda n: (
        n.op == op and n.attrs["mesh_dim"] == mesh_dim and n.attrs.get("reduce") == reduce
    )


WRONG: dict[str, tuple[Callable[[Node], bool], Change]] = {
    "a reduction over tp left out, in the layers of one stage": (
        _over("reduce_scatter", "tp"),
        _local,
    ),
    "the maximum over tp left out, before the loss": (_over("all_reduce", "tp", "max"), _local),
    "a product halved, in the layers of one stage": (lambda n: n.op == "mm", _halved),
    "a message halved": (lambda n: n.op == "recv", _halved),
    "a gradient summed over dp, not averaged": (_over("reduce_scatter", "dp", "avg"), _summed),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--stages", type=int, default=16)
    parser.add_argument("--micro-batches", type=int, default=16)
    given = parser.parse_args()
    file, fields = read_config([str(CONFIG)])
    begin = time.perf_counter()
    found = capture(
        CaptureRequest("hf:LlamaForCausalLM", fields, file, (), 64, 8192, full_depth=False)
    )
    made = synthesize(Asked(found.program, Mesh.of(dp=64, tp=8), load("h100"), split_loss=True))
    print(f"captured and planned in {time.perf_counter() - begin:.1f} s", flush=True)
    given_pass = made.sequential, made.lowered.program, made.lowered.contract
    one, many, contract = staged(*given_pass, given.stages)
    print(f"{'':<58} {'verdict':<9} {'s':>6} {'cpu s':>6} {'GB':>5}  where, and what shows it")
    good = judged("as planned", one, many, contract, given.micro_batches, wrong=False)
    for name, (find, change) in WRONG.items():
        other = altered(many, find, change)
        if other is many:
            raise SystemExit(f"nothing to alter: {name}")
        good &= judged(name, one, other, contract, given.micro_batches, wrong=True)
    return int(not good)


def judged(
    name: str, one: Program, many: Program, contract: Contract, count: int, *, wrong: bool
) -> bool:
    """Prints the verdict on the step around a pass; whether it is the one to expect."""
    begin, cpu = time.perf_counter(), time.process_time()
    step = captured_step(one, many, contract, count)
    said = verify(Problem(step.sequential, step.distributed, step.contract), simpler=False)
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    unit = 2**30 if sys.platform == "darwin" else 2**20
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    shown, good = "", isinstance(said, Counterexample) == wrong
    match said:
        case Proof(certificate=certificate):
            accepted = check(certificate, Problem(step.sequential, step.distributed, step.contract))
            good &= isinstance(accepted, Accepted) and not wrong
            ops = sum(1 for _ in step.distributed.walk())
            shown = f"{step.distributed.mesh}, {ops} ops, certificate accepted: {good}"
        case Counterexample(location=place, witness=witness):
            made = place.text.split(" = ")[0].split(",")[0] if place else ""
            where = f"{place.op} {place.source if place.source.file else made}" if place else ""
            what = witness.message if isinstance(witness, Trace) else (
                f"{witness.output} {witness.got:.6g}, not {witness.expected:.6g}"
            )  # fmt: skip
            shown = f"{where}: {what}"
        case _:
            good = False
            shown = said.reason
    verdict = type(said).__name__.lower()[:7]
    print(f"{name:<58} {verdict:<9} {wall:>6.1f} {cpu:>6.1f} {memory:>5.2f}  {shown}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
