"""Finds where one gather (and one reduction of its gradient) serves several column modules."""

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardproof.synthesis.emit.facts import ModelFacts, ModuleFact
from shardproof.synthesis.emit.styles import is_column, placement
from shardproof.synthesis.planner.plan import ModulePlan

METADATA = frozenset({"shape", "size", "dtype", "device", "dim", "ndim"})


@dataclass(frozen=True, slots=True)
class Prepared:
    """A module whose input is converted once for all of its column children."""

    path: str
    arguments: tuple[str, ...]


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def only_feeds(text: str, argument: str, children: frozenset[str]) -> bool:
    """Whether `forward` uses `argument` only to call `self.<child>(argument)` and for metadata.

    Then it may be a DTensor there: nothing else meets it.
    """
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return False
    allowed: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "self"
            and node.func.attr in children
        ):
            allowed.update(id(a) for a in node.args[:1])
        if isinstance(node, ast.Attribute) and node.attr in METADATA:
            allowed.add(id(node.value))
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == argument]
    return bool(uses) and all(id(n) in allowed for n in uses)


def layouts(parent: ModuleFact, source: str, target: str = "R") -> tuple[str, ...] | None:
    """Arguments of `PrepareModuleInput` that turn the activation from `source` into `target`."""
    argument = parent.activation
    if argument is None:
        return None
    have, want = placement(source), placement(target)
    if argument.position < 0:
        return (
            f'input_kwarg_layouts={{"{argument.name}": {have}}}',
            f'desired_input_kwarg_layouts={{"{argument.name}": {want}}}',
        )
    if parent.positional == 1:
        return (f"input_layouts={have}", f"desired_input_layouts={want}")
    around = ["None"] * parent.positional
    around[argument.position] = have
    desired = ["None"] * parent.positional
    desired[argument.position] = want
    return (
        f"input_layouts=({', '.join(around)})",
        f"desired_input_layouts=({', '.join(desired)})",
    )


def group(
    facts: ModelFacts, modules: Sequence[ModulePlan]
) -> tuple[list[Prepared], list[ModulePlan]]:
    """Hoist the input conversion of column siblings to their parent.

    Of two or more, so that they share it; of one, where the parent reads a split input's shape.

    Returns the parents, and the modules with the inputs they then get (`R`).
    """
    prepared: list[Prepared] = []
    hoisted: dict[str, str] = {}
    for path in dict.fromkeys(_parent(m.path) for m in modules if is_column(m)):
        children = [m for m in modules if is_column(m) and _parent(m.path) == path]
        parent = facts.find(path) if path else None
        if not children or parent is None or len({m.input for m in children}) > 1:
            continue
        argument, text = parent.activation, facts.text_of(parent.kind)
        reads_shape = argument is not None and f"{argument.name}.s" in text
        if len(children) < 2 and not (reads_shape and children[0].input.startswith("S(")):
            continue
        names = frozenset(m.path.rpartition(".")[2] for m in children)
        converted = layouts(parent, children[0].input)
        if argument and converted and only_feeds(text, argument.name, names):
            prepared.append(Prepared(path, converted))
            hoisted.update((m.path, "R") for m in children)
    return prepared, [replace(m, input=hoisted.get(m.path, m.input)) for m in modules]
