"""Wrong variants of training steps, as people get them wrong, are refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from benchmarks.mutation_testing.edits import Site, sites, splice, with_attrs
from benchmarks.steps.truth import agrees
from shardproof.verifier.kernel.program.program import IN_ORDER, Node, Program
from shardproof.verifier.kernel.program.types import Affine, Attr
from shardproof.verifier.verdict import Counterexample, Trace
from tests.training.steps import judged, step_of

Find = Callable[[Program, Node], bool]


def op(name: str, **attrs: Attr) -> Find:
    return lambda _, n: n.op == name and all(n.attrs.get(k) == v for k, v in attrs.items())


def shaped(name: str, shape: tuple[int, ...], **attrs: Attr) -> Find:
    is_op = op(name, **attrs)
    return lambda p, n: is_op(p, n) and p.types[n.inputs[0]].shape == shape


@dataclass(frozen=True)
class Wrong:
    """One edit: the node `find` meets for the `which`-th time, dropped, with other attributes, or
    with the operands of another."""

    strategy: str
    what: str
    find: Find
    which: int = 0
    attrs: dict[str, Attr] | None = None
    """None drops the node."""
    like: int | None = None
    """The operands of the node met for the `like`-th time."""

    def applied(self, program: Program) -> Program:
        found = [s for s in sites(program) if self.find(s.scope, s.node)]
        site: Site = found[self.which]
        node = site.node
        if self.like is not None:
            node = replace(node, inputs=found[self.like].node.inputs)
            edited = splice(program, site, [node])
        elif self.attrs is None:
            edited = splice(program, site, [], (node.outputs[0], node.inputs[0]))
        else:
            edited = splice(program, site, [with_attrs(node, **self.attrs)])
        assert edited is not None
        return edited

    def __str__(self) -> str:
        return f"{self.strategy}: {self.what}"


TP_BACKWARD = shaped("all_reduce", (4, 4, 12), mesh_dim="tp", reduce="sum")
WRONG = (
    Wrong("data parallel", "tokens counted on one rank", op("all_reduce", mesh_dim="dp")),
    Wrong("data parallel", "a gradient not summed", shaped("all_reduce", (12, 16)), 1),
    Wrong(
        "data parallel", "a gradient averaged", shaped("all_reduce", (20, 12)), 0, {"reduce": "avg"}
    ),
    Wrong("data parallel", "a micro-batch run twice", op("slice", dim=0, start=1), 0,
          {"start": 0, "stop": 1}),
    Wrong("data parallel", "the loss of one rank", shaped("all_reduce", (), mesh_dim="dp"), 1),
    Wrong("tensor parallel", "no sum in the backward pass", TP_BACKWARD, -1),
    Wrong("tensor parallel", "no sum after the rows", TP_BACKWARD, 1),
    Wrong("tensor parallel", "vocabulary off by one", op("take"), 0,
          {"offset": Affine.of(1, {"tp": 14})}),
    Wrong("tensor parallel", "norm of the shards alone", shaped("all_reduce", ()), 0),
    Wrong("sequence parallel", "norm weights not summed", shaped("all_reduce", (12,)), 2),
    Wrong("zero 2", "gradients averaged", op("reduce_scatter"), 3, {"reduce": "avg"}),
    Wrong("zero 3", "gradients of a weight averaged", op("reduce_scatter"), 3, {"reduce": "avg"}),
    Wrong("context parallel", "mask of the first rank", op("iota"), 0, {"offset": 0}),
    Wrong("pipeline with tied embedding", "embedding gradient of one stage",
          shaped("all_reduce", (28, 12), mesh_dim="pp")),
    Wrong("pipeline 1f1b", "norm of one stage", op("all_reduce", mesh_dim="pp")),
    Wrong("pipeline 1f1b", "the activations of another micro-batch",
          op("send", src=0, dst=1), 1, like=0),
    Wrong("pipeline 1f1b", "the cotangents of another micro-batch",
          op("send", src=1, dst=0), 1, like=0),
    Wrong("expert parallel", "experts not exchanged back", op("all_to_all"), 1,
          {"split_dim": 1, "concat_dim": 0}),
    Wrong("expert parallel", "norm of one part of the experts", shaped("all_reduce", ()), 2),
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_variant_is_refuted(wrong: Wrong) -> None:
    step = step_of(wrong.strategy)
    program = wrong.applied(step.distributed)
    assert not agrees(step, program, trials=2)
    assert isinstance(judged(step, program), Counterexample)


def test_stages_that_wait_for_what_they_send_are_refuted() -> None:
    step = step_of("pipeline 1f1b")
    nodes = [replace(n, timing=IN_ORDER) for n in step.distributed.nodes]
    found = judged(step, replace(step.distributed, nodes=tuple(nodes)))
    assert isinstance(found, Counterexample)
    assert isinstance(found.witness, Trace)
    assert found.witness.check == "deadlock"
