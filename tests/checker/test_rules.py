"""The checker's own rules, compared with numbers and with the placement rules of the ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from shardproof.verifier.checker.claims import NotShownError, fits
from shardproof.verifier.checker.rules import covered, derive
from shardproof.verifier.checker.step import Step
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.instance import Piece
from shardproof.verifier.kernel.layout import Atom, Layout, normal
from shardproof.verifier.kernel.program.errors import ShapeError
from shardproof.verifier.kernel.program.registry import infer_types
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.ops import REGISTRY
from shardproof.verifier.provers.placement import Placed
from shardproof.verifier.terms import ONE, Ref, Terms
from tests.laws.laws import check, placed_cases
from tests.laws.samples import Case

PRIMITIVE = sorted(
    n for n, op in REGISTRY.items() if op.kind not in ("composite", "control", "movement")
)


class Recorder(Terms):
    """Keeps the attributes with which a rule applies the op to the whole operands."""

    whole: tuple[tuple[str, Any], ...] | None = None

    def apply(
        self, op: str, args: Sequence[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]
    ) -> Ref:
        self.whole = tuple(sorted(attrs.items()))
        return self.var("result", ())


def accepted(case: Case, layout: Layout) -> Placed | None:
    """The statement that the checker accepts for a claimed layout of the result."""
    terms = Recorder()
    args: list[Piece] = []
    refs: list[Ref] = []
    for i, (given, dtype) in enumerate(zip(case.layouts, case.dtypes, strict=True)):
        ref = terms.var(f"x{i}", given.global_shape)
        zero = terms.full(given.global_shape, 0 * ONE)
        refs.append(zero if i in case.zeros else ref)
        args.append(Piece(given, (), dtype, i in case.zeros and not given.partial))
    step = Step(case.op.name, dict(case.attrs), tuple(args), layout, case.mesh)
    try:
        ref = derive(step).of(refs, terms)
    except NotShownError:
        return None
    if terms.whole is None:
        assert ref.id == refs[0].id
        scale = ref.coef if refs[0].coef else ONE
        return Placed((layout,), (), scale, moves=True)
    return Placed((layout,), terms.whole, ref.coef)


def candidates(local: tuple[int, ...] | None, mesh: Mesh) -> Iterator[Layout]:
    """Layouts of pieces of shape `local`: each mesh dim splits some dim, or is pending."""
    if local is None:
        return
    found = [Layout.replicate(local)]
    for name, size in mesh.dims:
        wider = list(found)
        for layout in found:
            wider += [layout.with_partial((*layout.partial, (name, f))) for f in ("sum", "max")]
            for index, dim in enumerate(layout.dims):
                for at in range(len(dim) + 1):
                    split = normal((*dim[:at], Atom(size, name), *dim[at:]))
                    wider.append(layout.with_dim(index, split))
                if dim and dim[0].mesh_dim is None and dim[0].size % 2 == 0:
                    half = (Atom(2), Atom(size, name), Atom(dim[0].size // 2), *dim[1:])
                    wider.append(layout.with_dim(index, normal(half)))
        found = list(dict.fromkeys(wider))
    for layout in found:
        try:
            fits(layout, mesh, local)
        except NotShownError:
            continue
        yield layout


def result_shape(case: Case) -> tuple[int, ...] | None:
    """Local shape of the result, None where the pieces do not fit each other."""
    given = zip(case.layouts, case.dtypes, strict=True)
    types = [TensorType(layout.local_shape, dtype) for layout, dtype in given]
    try:
        return infer_types(case.op.name, types, dict(case.attrs), case.mesh)[0].shape
    except ShapeError:
        return None


@pytest.mark.parametrize("name", PRIMITIVE)
def test_rule_accepts_what_is_placed_and_nothing_false(name: str) -> None:
    op = REGISTRY[name]
    assert covered(name), f"add a rule for {name} to verifier/checker"
    rng, domain = np.random.default_rng(3), Floats()
    accepts = 0
    for number, (case, claims) in enumerate(placed_cases(op, 6, 150, seed=5)):
        if any(case.layouts[i].partial for i in case.zeros):
            continue  # the verifier takes an operand for zero only where nothing is pending
        for placed in claims:
            mine = accepted(case, placed.layouts[0])
            assert mine is not None, f"{case}: {placed.layouts[0]} is not accepted"
            assert (mine.moves, mine.scale) == (placed.moves, placed.scale)
            if not placed.moves:
                wanted = op.with_defaults(dict(placed.attrs))
                assert dict(mine.attrs or ()) == wanted, str(case)
        if number % 4 and not claims:
            continue
        for layout in candidates(result_shape(case), case.mesh):
            mine = accepted(case, layout)
            if mine is not None:
                accepts += 1
                try:
                    why = check(case, mine, domain, rng)
                except (ValueError, IndexError) as error:
                    why = f"no such op on the whole: {error}"
                assert why is None, f"{case} claims {mine.layouts[0]}: {why}"
    assert accepts
