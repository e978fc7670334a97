"""Certificates of proofs replay; changed certificates, programs and contracts do not."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.mutation_testing import rewrites
from benchmarks.mutation_testing.mutants import mutations
from benchmarks.mutation_testing.truth import equal
from benchmarks.mutation_testing.zoo import bases
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, Rejected, Result, check
from shardproof.verifier.checker.certificate import seal
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.digest import digest
from shardproof.verifier.text.jsonio import parse
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Proof
from tests.checker.pairs import PAIRS, Pair

CAMPAIGN = pytest.mark.campaign
BASES = {str(base): base for base in bases()}


@cache
def pair(name: str) -> Pair:
    if name in PAIRS:
        return PAIRS[name]()
    base = BASES[name]
    return base.sequential, base.distributed, base.contract


@cache
def written(name: str) -> str:
    """The certificate of a pair, as text."""
    verdict = verify(Problem(*pair(name)))
    assert isinstance(verdict, Proof), verdict
    return json.dumps(verdict.certificate)


def certificate(name: str) -> dict[str, Any]:
    return json.loads(written(name))


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "seal": seal(document)}


def forged(document: dict[str, Any], distributed: Program) -> dict[str, Any]:
    """The certificate, made out to another distributed program."""
    try:
        known = inline(distributed)
    except ValueError:
        return document
    return sealed({**document, "distributed": {"name": known.name, "digest": digest(known)}})


@pytest.mark.parametrize("name", [*PAIRS, *BASES])
def test_proved_program_replays(name: str) -> None:
    assert isinstance(check(certificate(name), Problem(*pair(name))), Accepted)


@pytest.mark.parametrize("name", BASES)
def test_proof_of_a_rewritten_program_replays(name: str) -> None:
    base, rng = BASES[name], np.random.default_rng(1)
    for kind in rewrites.kinds():
        program = rewrites.apply(base.distributed, kind, base.contract, rng)
        if program is None:
            continue
        verdict = verify(Problem(base.sequential, program, base.contract))
        if isinstance(verdict, Proof):
            got = check(verdict.certificate, Problem(base.sequential, program, base.contract))
            assert isinstance(got, Accepted), f"{kind}: {got}"


@pytest.mark.parametrize("part", [slice(6), pytest.param(slice(6, 20), marks=CAMPAIGN)], ids=str)
@pytest.mark.parametrize("name", BASES)
def test_certificate_of_another_program_is_rejected(name: str, part: slice) -> None:
    """Forged to name the mutant, it passes only where the mutant is equal as well."""
    base, rng = BASES[name], random.Random(2)
    known = inline(base.distributed)
    pool = list(mutations(base.distributed))
    for mutation in rng.sample(pool, min(20, len(pool)))[part]:
        program = mutation.edit()
        if program is None or digest(inline(program)) == digest(known):
            continue
        stale = check(certificate(name), Problem(base.sequential, program, base.contract))
        assert isinstance(stale, Rejected)
        got = check(
            forged(certificate(name), program), Problem(base.sequential, program, base.contract)
        )
        assert isinstance(got, Rejected) or equal(base, program), mutation.text


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every part of a document with the way to it."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from places(item, (*path, i))


def changed(value: Any) -> list[Any]:
    """Other values for a part of a document."""
    if isinstance(value, bool) or value is None:
        return [not value, "x", 0]
    if isinstance(value, int):
        return [value + 1, value - 1, value * 2 or 4, str(value), None, True]
    if isinstance(value, str):
        digit = value.replace("1", "2", 1) if "1" in value else f"{value}1"
        return [digit, "", "x", None, 3, value[:-1]]
    if isinstance(value, list):
        return [[], value[1:], [*value, *value[-1:]], value[::-1], None, {}]
    return [{}, None, [], {**value, "more": 1}]


def put(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    out = copy.deepcopy(document)
    at: Any = out
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return out


def without(document: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    out = copy.deepcopy(document)
    at: Any = out
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return out


def tampered(
    document: dict[str, Any], rng: random.Random, count: int
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The document with one part changed or gone, and the way to that part."""
    for path, value in rng.sample(found := list(places(document)), min(count, len(found))):
        yield path, without(document, path)
        for other in changed(value):
            if other != value or type(other) is not type(value):
                yield path, put(document, path, other)


ZERO = ("claims", "values", "3", 0, "layout")
"""In `layers`: the layout of a constant 0 that starts a carry. Any other is as true."""


@pytest.mark.parametrize("name", PAIRS)
def test_any_change_of_a_certificate_is_rejected(name: str) -> None:
    """Also where the one who changed it sealed it anew."""
    original = certificate(name)
    for path, document in tampered(original, random.Random(3), 25):
        assert isinstance(check(document, Problem(*pair(name))), Rejected)
        if path != ("seal",) and path[:5] != ZERO:
            got = check(sealed(document), Problem(*pair(name)))
            assert isinstance(got, Rejected), (path, document)


@pytest.mark.parametrize("name", ["mlp", "layers"])
def test_any_changed_byte_is_rejected(name: str) -> None:
    rng, text = random.Random(4), written(name)
    for _ in range(400):
        at = rng.randrange(len(text))
        other = text[:at] + chr(rng.choice((rng.randrange(32, 127), ord(text[at]) ^ 1)))
        other += text[at + 1 :]
        try:
            document = parse(other, "certificate")
        except MalformedError:
            continue
        if document != json.loads(text):
            assert isinstance(check(document, Problem(*pair(name))), Rejected)


def contracts(contract: Contract) -> Iterator[Contract]:
    """Contracts that ask or promise something else."""
    for name in contract.inputs:
        other = Layout.replicate(contract.inputs[name].global_shape)
        yield replace(contract, inputs={**contract.inputs, name: other})
        yield replace(contract, inputs={k: v for k, v in contract.inputs.items() if k != name})
    for key, layout in contract.outputs.items():
        for other in (Layout.replicate(layout.global_shape), layout.with_partial([("tp", "sum")])):
            yield replace(contract, outputs={**contract.outputs, key: other})
        yield replace(contract, outputs={k: v for k, v in contract.outputs.items() if k != key})
    yield replace(contract, assumptions=("trust me",))
    if contract.balanced:
        yield replace(contract, balanced=())


@pytest.mark.parametrize("name", PAIRS)
def test_certificate_under_another_contract_is_rejected(name: str) -> None:
    sequential, distributed, contract = pair(name)
    for other in contracts(contract):
        if other == contract:
            continue
        got = check(certificate(name), Problem(sequential, distributed, other))
        assert isinstance(got, Rejected)
        if other.assumptions == contract.assumptions:
            document = sealed({**certificate(name), "contract": other.to_json()})
            got = check(document, Problem(sequential, distributed, other))
            assert isinstance(got, Rejected), other


def test_rejection_says_where() -> None:
    def claim(document: dict[str, Any]) -> dict[str, Any]:
        return document["claims"]["values"]["1"][0]

    cases: list[tuple[Result, str, str]] = []
    document = certificate("mlp")
    claim(document)["factor"] = "2/1"
    cases.append((check(sealed(document), Problem(*pair("mlp"))), "is not 2 \\* %1", "%1"))
    document = certificate("mlp")
    document["layouts"][claim(document)["layout"]]["partial"] = [["tp", "sum"]]
    cases.append((check(sealed(document), Problem(*pair("mlp"))), "used twice", "%1"))
    document = certificate("mlp")
    document["outputs"]["output:y"] = 7
    cases.append((check(sealed(document), Problem(*pair("mlp"))), "no such claim", "output:y"))
    sequential, _, contract = pair("mlp")
    cases.append(
        (
            check(document, Problem(sequential, sequential, contract)),
            "does not fit the mesh",
            "contract",
        )
    )
    for got, reason, where in cases:
        assert isinstance(got, Rejected)
        assert where in got.where
        with pytest.raises(AssertionError, match=reason):
            raise AssertionError(got.reason)


def test_one_device_program_that_communicates_is_rejected() -> None:
    b = Builder("p", Mesh.of(tp=1))
    b.output(b.add("all_reduce", b.input("x", TensorType((2,))), mesh_dim="tp"), path="y")
    program, layout = b.build(), Layout.replicate((2,))
    got = check({}, Problem(program, program, Contract({"x": layout}, {"output:y": layout})))
    assert isinstance(got, Rejected)
    assert "calls all_reduce" in got.reason


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("bools do not add", "%b = ge %x, %x %y = add %b, %b"),
        ("is not of dtype i64", "%y = full {shape=[2], value=1/2, dtype=i64}"),
        ("is not an integer", "%y = add_scalar %x {value=1/2}"),
    ],
)
def test_op_that_is_not_real_arithmetic_is_no_program(why: str, text: str) -> None:
    """Over numbers it would mean something else than its term over the reals."""
    with pytest.raises(MalformedError, match=why):
        parse_text(f"program p input %x: i64[2] {text} return %y")


def test_bools_for_integers_are_rejected() -> None:
    def program(dtype: str) -> Program:
        b = Builder("p")
        b.output(b.add("cast", b.input("x", TensorType((2,), dtype)), dtype="f32"), path="y")
        return b.build()

    layout = Layout.replicate((2,))
    got = check(
        {}, Problem(program("i64"), program("bool"), Contract({"x": layout}, {"output:y": layout}))
    )
    assert isinstance(got, Rejected)
    assert "other numbers" in got.reason or "takes" in got.reason


@pytest.mark.parametrize("document", [{}, {"version": 1}, [], None, 3, "x", {"claims": {}}])
def test_what_is_no_certificate_is_rejected(document: Any) -> None:
    assert isinstance(check(document, Problem(*pair("mlp"))), Rejected)
