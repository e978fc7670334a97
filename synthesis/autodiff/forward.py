"""Which values belong to the forward pass: those that an output or the loss depends on."""

from shardproof.verifier.kernel.program.program import Program


def forward_values(program: Program, *, state: bool = True, since: int = 0) -> set[tuple[str, str]]:
    """(scope, value) pairs; the scope is the first result of the enclosing scan, '' at the top.
    Without `state`, those that nothing but the next value of a buffer depends on are left out; so
    are nodes before `since`."""
    consts = (i for i in program.inputs if i.role == "const")
    held = set[str]() if state else {i.path or i.name for i in consts}
    made = [o for o in program.outputs if o.role in ("output", "loss")]
    needed = {o.value for o in made if o.path not in held}
    out: set[tuple[str, str]] = set()
    for node in reversed(program.nodes[since:]):
        if needed.isdisjoint(node.outputs):
            continue
        needed |= set(node.inputs)
        out |= {("", v) for v in node.outputs}
        if node.body is not None:
            scope = node.outputs[0]
            out |= {(scope, v) for inner in node.body.nodes for v in inner.outputs}
    return out
