"""Mutations of pipelines: messages, stages, micro-batches and the pieces that are merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.mutation_testing.edits import Site, with_attrs
from benchmarks.mutation_testing.mutants import Variant, rule
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.where import coordinates, ranks_where


def _movement(site: Site) -> bool:
    return lookup(site.node.op).kind == "movement"


@rule("drop message")
def _drop(site: Site) -> Iterator[Variant]:
    node = site.node
    if _movement(site) and len(node.inputs) == 1:
        yield f"{node.op} dropped", [], (node.outputs[0], node.inputs[0])


@rule("wrong message")
def _message(site: Site) -> Iterator[Variant]:
    """Another value of the same kind is sent or received, as of another micro-batch."""
    node = site.node
    if node.op not in ("send", "recv"):
        return
    for other in site.scope.nodes[: site.index]:
        if other.op == node.op and site.types[other.inputs[0]] == site.types[node.inputs[0]]:
            yield f"{node.op} of %{other.inputs[0]}", [replace(node, inputs=other.inputs)], None


@rule("wrong peer")
def _peer(site: Site) -> Iterator[Variant]:
    node, mesh = site.node, site.scope.mesh
    if not _movement(site) or "mesh_dim" not in node.attrs:
        return
    size = mesh[str(node.attrs["mesh_dim"])]
    for key in ("src", "dst", "index", "shift"):
        now = node.attrs.get(key)
        if isinstance(now, int):
            other = (now + 1) % size
            yield f"{key}={other}", [with_attrs(node, **{key: other})], None
    if "src" in node.attrs:
        turned = with_attrs(node, src=node.attrs["dst"], dst=node.attrs["src"])
        yield "src and dst swapped", [turned], None


@rule("wrong stage")
def _stage(site: Site) -> Iterator[Variant]:
    """A node runs on other ranks than it should."""
    node, mesh = site.node, site.scope.mesh
    for name, chosen in node.where:
        for other in range(mesh[name]):
            if (other,) != chosen:
                where = ranks_where(mesh, {**dict(node.where), name: (other,)})
                yield f"on {name}={other}", [replace(node, where=where)], None


@rule("merge without a piece")
def _piece(site: Site) -> Iterator[Variant]:
    node = site.node
    if node.op != "merge":
        return
    for k in range(len(node.inputs)):
        inputs = tuple(v for i, v in enumerate(node.inputs) if i != k)
        if inputs:
            yield f"without %{node.inputs[k]}", [replace(node, inputs=inputs)], None


@rule("wrong micro-batch")
def _micro_batch(site: Site) -> Iterator[Variant]:
    """Another slice along the first dim of an input."""
    node = site.node
    inputs = {i.name for i in site.scope.inputs}
    if node.op != "slice" or node.inputs[0] not in inputs or node.attrs["dim"] != 0:
        return
    start, stop = int(str(node.attrs["start"])), int(str(node.attrs["stop"]))
    for step in (-1, 1):
        moved = with_attrs(node, start=start + step, stop=stop + step)
        if start + step >= 0 and stop + step <= site.types[node.inputs[0]].shape[0]:
            yield f"slice {start + step} for {start}", [moved], None


@rule("reduction over fewer stages")
def _fewer(site: Site) -> Iterator[Variant]:
    """A value that all stages reduce is taken from one of them."""
    node, mesh = site.node, site.scope.mesh
    name = node.attrs.get("mesh_dim")
    if node.op == "all_reduce" and isinstance(name, str) and name == "pp":
        for index in coordinates((), mesh, name):
            attrs = {"mesh_dim": name, "index": index}
            yield f"broadcast of stage {index}", [replace(node, op="broadcast", attrs=attrs)], None
