"""Readings of a constant: all of them where they are few, those that matter where they are many."""

from __future__ import annotations

import time
from collections import Counter
from itertools import product

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.layout import Atom, Dim, global_extent, normal
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.placement.views import FEW_READINGS, spreads
from shardproof.verifier.text.contract import read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof

Reading = dict[int, Dim]


def all_readings(
    extents: tuple[int | None, ...], mesh: Mesh, used: frozenset[str]
) -> list[Reading]:
    """By definition: every mesh dim splits one dim or none, fewest splits first."""
    free = [name for name in mesh.names if name not in used and mesh[name] > 1]
    places = [None, *(i for i, n in enumerate(extents) if n is not None)]
    choices = product(places, repeat=len(free))
    out: list[Reading] = []
    for choice in sorted(choices, key=lambda c: sum(p is not None for p in c)):
        split = [(a, p) for a, p in zip(free, choice, strict=True) if p is not None]
        out.append(
            {
                i: normal([*(Atom(mesh[a], a) for a, p in split if p == i), Atom(n)])
                for i, n in enumerate(extents)
                if n is not None
            }
        )
    return out


def shape(reading: Reading) -> tuple[int, ...]:
    return tuple(global_extent(dim) for dim in reading.values())


@pytest.mark.parametrize("extents", [(), (3,), (2, None, 1), (0, 4), (None, None), (2, 2, 2, 2)])
@pytest.mark.parametrize("used", [frozenset[str](), frozenset({"b"})])
def test_few_readings_are_all_given(extents: tuple[int | None, ...], used: frozenset[str]) -> None:
    mesh = Mesh.of(a=2, b=3, c=1, d=2, e=2)
    assert list(spreads(extents, mesh, used, ())) == all_readings(extents, mesh, used)


def test_of_many_readings_the_first_and_those_of_known_shapes_are_given() -> None:
    mesh, extents = Mesh.of(a=2, b=3, c=2, d=4), (2, 2, 1, 5, None, 2)
    wanted = {(4, 6, 2, 20, 2), (2, 2, 1, 240, 2), (8, 2, 1, 5, 2), (2, 2, 1, 5, 2)}
    known = {(*s[:4], 7, *s[4:]) for s in wanted} | {(9, 9), (2, 2, 1, 7, 7, 2), (3, 2, 1, 5, 7, 2)}
    every = all_readings(extents, mesh, frozenset())
    count: Counter[tuple[int, ...]] = Counter()
    expected: list[Reading] = []
    for index, reading in enumerate(every):
        asked = shape(reading) in wanted and count[shape(reading)] < FEW_READINGS
        count[shape(reading)] += asked
        if index < FEW_READINGS or asked:
            expected.append(reading)
    assert list(spreads(extents, mesh, frozenset(), known)) == expected
    assert wanted <= {shape(reading) for reading in expected}


@pytest.mark.parametrize("size", [2, 6])
def test_the_search_ends_on_any_mesh(size: int) -> None:
    mesh = Mesh(tuple((f"m{i}", size + i % 2) for i in range(12)))
    known = {tuple(size**k * (size + 1) for k in at) for at in product(range(3), repeat=7)}
    start = time.process_time()
    found = list(spreads((1,) * 7, mesh, frozenset(), known))
    assert found[:FEW_READINGS] == list(spreads((1,) * 7, mesh, frozenset(), ()))
    assert time.process_time() - start < 10


def programs(dims: int, value: int = 1) -> tuple[str, str, str]:
    """A constant split over every mesh dim, each over a dim of its own."""
    names = [f"m{i}" for i in range(dims)]
    one = (
        f"program one input %x: f32{[1] * dims} %f = full {{shape={[4] * dims}, value=1}} "
        "%y = mul %x, %f return %y"
    )
    many = (
        f"program many mesh({', '.join(f'{n}=2' for n in names)}) input %x: f32{[1] * dims} "
        f"%f = full {{shape={[2] * dims}, value={value}}} %y = mul %x, %f return %y"
    )
    return one, many, "output y " + "".join(f"[2@{name} 2]" for name in names)


@pytest.mark.parametrize("dims", [2, 4, 7])
def test_constant_split_over_every_mesh_dim_is_proved(dims: int) -> None:
    one, many, asked = programs(dims)
    first, second = parse_text(one), parse_text(many)
    start = time.process_time()
    assert isinstance(
        verify(Problem(first, second, read_contract(asked, first, second).contract)), Proof
    )
    assert time.process_time() - start < 20


def test_another_constant_is_refuted() -> None:
    one, many, asked = programs(4, value=2)
    first, second = parse_text(one), parse_text(many)
    verdict = verify(Problem(first, second, read_contract(asked, first, second).contract))
    assert isinstance(verdict, Counterexample)
