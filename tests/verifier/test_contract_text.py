"""A contract is read to the end of every line, or it is an error with its place."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import Contract, ContractError, check
from shardproof.verifier.kernel.layout import Atom, Dim, normal
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.where import ranks_where
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.contract import compose, load_contract, read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof

ONE = parse_text("""program one
  input %x: f32[4, 8]
  param %w: f32[8, 4]
  %y = mm %x, %w
  %count = sum %x {dims=[0, 1]}
  return %y, loss %count "loss"
""")
SUM = """program many mesh(pp=2,tp=2)
  input %x: f32[4, 4]
  param %w: f32[4, 4]
  %p = mm %x, %w
  %y = all_reduce %p {mesh_dim=tp}
  %c = sum %x {dims=[0, 1]}
  %count = all_reduce %c {mesh_dim=tp}
  return %y, loss %count "loss"
"""
MANY = parse_text(SUM)
SPLIT = "input x tp=S(1)\ninput w tp=S(0)\n"


def line(text: str) -> Contract:
    return read_contract(text, ONE, MANY, "c.txt").contract


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("output y [4][4] tp=R tp", "c.txt:1:22: tp is placed twice"),
        ("output y [4][4] tp", "c.txt:1:19: placement over tp; expected .*got the end"),
        ("output y [4][4] tp=S(0)", "c.txt:1:20: a split beside atoms; expected .* 2@tp"),
        ("output y [2@tp 2][4] tp=P", "c.txt:1:22: tp is placed twice"),
        ("output y [4]4[4]", r"c.txt:1:10: atoms of a tensor of shape \[4, 4\]"),
        ("output y [4][4]4", "c.txt:1:16: placement"),
        ("output y [[4]][4]", "c.txt:1:11: an atom; expected a number"),
        ("output y [4][4", "c.txt:1:15: an atom; .*got the end"),
        ("output y [4][2@ 2]", "c.txt:1:17: mesh dim of an atom"),
        ("output y [4][2@dp 2]", r"c.txt:1:16: mesh dim of an atom; .*pp=2,tp=2"),
        ("output y [4][4@tp]", "c.txt:1:14: an atom of 4 over tp; expected 2@tp"),
        ("output y [2@tp 2][2@tp 2]", "c.txt:1:21: tp is placed twice"),
        ("output y [4][²]", "c.txt:1:14: an atom"),
        ("output y [4][2]", r"c.txt:1:10: atoms of a tensor of shape \[4, 4\]"),
        ("output y [4]", r"c.txt:1:10: atoms of a tensor of shape \[4, 4\]"),
        (f"output y [4][{'9' * 5000}]", "c.txt:1:14: an atom; .*18 digits"),
        ("output y tp=S(0", "c.txt:1:13: unknown placement 'S'"),
        ("output y tp=S(0)x", "c.txt:1:17: placement; expected a dim of the mesh"),
        ("output y tp=S(0x)", "c.txt:1:13: unknown placement"),
        ("output y tp=S(2)", r"c.txt:1:13: S\(2\) on a tensor of 2 dims"),
        ("output y tp=P(sumx)", "c.txt:1:13: unknown placement"),
        ("output y tp=Px", "c.txt:1:13: unknown placement"),
        ("output y tp=P(avg)", "c.txt:1:13: unknown placement"),
        ("output y tp=r", "c.txt:1:13: unknown placement"),
        ("output y tp", "c.txt:1:12: placement over tp; expected such as"),
        ("output y dp=S(0)", "c.txt:1:10: placement; expected a dim of the mesh"),
        ("output y tp=S(0) pp=P tp=R", "c.txt:1:23: tp is placed twice"),
        ("output y tp=P(max) pp=P(sum)", "c.txt:1:8: output output:y: folds other than"),
        ("input x tp=P", "c.txt:1:7: input %x cannot be partial"),
        ("input x tp=S(1) on(tp=0)", "c.txt:1:7: input %x is laid out over tp"),
        ("output y on(pp=0-1)", "c.txt:1:17: ranks; expected a comma.*'-1"),
        ("output y on(pp=0:2)", "c.txt:1:17: ranks"),
        ("output y on(pp = 0 .. 1)", "c.txt:1:20: ranks"),
        ("output y on(pp=0.5)", "c.txt:1:17: ranks"),
        ("output y on(pp=0, qq=x)", "c.txt:1:19: mesh dim of on"),
        ("output y on(pp=x)", "c.txt:1:16: a coordinate of pp"),
        ("output y on(pp=[0 1])", "c.txt:1:19: coordinates of pp"),
        ("output y on(pp=[])", "c.txt:1:17: a coordinate of pp"),
        ("output y on(pp=0, pp=1)", "c.txt:1:19: pp is placed twice"),
        ("output y on(pp=2)", "c.txt:1:13: pp has coordinates 0 to 1, got 2"),
        ("output y on()", "c.txt:1:13: mesh dim of on"),
        ("output y on(pp=0) tp=S(0)", "c.txt:1:19: text that is not understood"),
        ("output y on(pp=0) 1", "c.txt:1:19: text that is not understood"),
        ("output y tp=S(0) and more", "c.txt:1:18: placement"),
        ("output", "c.txt:1:7: name of an output"),
        ("output z", r"c.txt:1:8: .*no output z; expected one of output:y, loss:loss"),
        ("input y", "c.txt:1:7: the one-device program has no input y"),
        ("input x#tp=S(1)", "c.txt:1:7: the one-device program has no input x#tp"),
        ('output "y', "c.txt:1:8: name of an output"),
        ("output y\n\noutput output:y tp=P", "c.txt:3:8: output output:y is laid out twice"),
        ("outputs y", "c.txt:1:1: a statement; expected input, output"),
        ("contract", "c.txt:1:1: a statement"),
        ("balanced count", "c.txt:1:15: mesh dim along which %count is balanced"),
        ("balanced many tp", "c.txt:1:10: the one-device program has no value %many"),
        ("balanced count dp", "c.txt:1:16: mesh dim along which"),
        ("balanced count tp,dp", "c.txt:1:19: mesh dim along which"),
        ("given\nprogram g\n  return", "c.txt:1: the given program is on another mesh"),
        (f"given\n{SUM}", "c.txt:1: the given program computes mm"),
        ("given now", "c.txt:1:1: a statement"),
        ("# \u2028 output y tp=P\noutput q", "c.txt:2:8"),
    ],
)
def test_what_is_not_understood_is_an_error_with_its_place(text: str, message: str) -> None:
    with pytest.raises(MalformedError, match=message) as caught:
        line(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("output y [4][4] tp=R", "output y"),
        ("output y [4][4] tp=P", "output y tp=P(sum)"),
        ("output y [4] [4] tp=Partial(max) # of all", "output y tp=P(max)"),
        ("output y [2@tp 2][1 4]", "output y tp=S(0)"),
        ("output y tp = Shard(-1)", "output y tp=S(1)"),
        ("output y on(pp=[1, 0])", "output y"),
        ("output y on( pp = [ 1 ] )", "output output:y on(pp=1)"),
        ("\toutput\ty\ttp=S(0)\r", "output y tp=S(0)"),
        ('output "y" tp=S(0)', "output y tp=S(0)"),
        ("input %x tp=S(1)#split", "input x tp=S(1)"),
    ],
)
def test_one_layout_in_two_spellings(text: str, same: str) -> None:
    assert line(text) == line(same)


@pytest.mark.parametrize("asked", ["tp=R", "[4][4] tp=R", "[4][4]", ""])
def test_sum_that_is_pending_is_not_a_replica(asked: str) -> None:
    """Whatever the spelling: where the sum is not taken the program is refuted."""
    left = parse_text(
        SUM.replace("%y = all_reduce %p {mesh_dim=tp}", "%y = mul_scalar %p {value=1}")
    )
    assert isinstance(verify(Problem(ONE, MANY, line(f"{SPLIT}output y {asked}"))), Proof)
    assert isinstance(verify(Problem(ONE, left, line(f"{SPLIT}output y {asked}"))), Counterexample)
    assert isinstance(verify(Problem(ONE, left, line(f"{SPLIT}output y [4][4] tp=P"))), Proof)


def test_ranks_that_are_asked_for_are_all_of_those_named() -> None:
    one = parse_text("program one input %x: f32[4] %y = exp %x return %y")
    many = parse_text(
        "program many mesh(pp=2) input %x: f32[4] %a = exp %x on(pp=0) "
        "%b = full {shape=[4], value=0} on(pp=1) %y = merge %a, %b return %y"
    )
    alone = read_contract("output y on(pp=0)", one, many).contract
    both = read_contract("output y on(pp=[0, 1])", one, many).contract
    assert isinstance(verify(Problem(one, many, alone)), Proof)
    assert isinstance(verify(Problem(one, many, both)), Counterexample)


def test_output_that_is_not_mentioned_is_asked_for_whole() -> None:
    """Leaving an output out asks for no less: every rank must hold all of it."""
    local = parse_text(
        SUM.replace("%count = all_reduce %c {mesh_dim=tp}", "%count = mul_scalar %c {value=1}")
    )
    assert isinstance(verify(Problem(ONE, MANY, line(SPLIT))), Proof)
    assert isinstance(verify(Problem(ONE, local, line(SPLIT))), Counterexample)


def test_output_of_the_ranks_alone_is_an_error() -> None:
    more = parse_text(SUM.replace("return %y", "return %p, %y"))
    with pytest.raises(ContractError, match="the sequential program has no output output:p"):
        check(ONE, more, line(SPLIT))


GOOD = line(SPLIT + "output y on(pp=0)\nbalanced count pp,tp rows").to_json()


JSON_FAULTS: list[tuple[str, object, str]] = [
    ("inputs.x.dims.0.0.0", None, r"\$.inputs.x.dims\[0\]\[0\]\[0\]: not an integer; .*null"),
    ("inputs.x.dims.0.0.0", {}, r"\$.inputs.x.dims\[0\]\[0\]\[0\]: not an integer"),
    ("inputs.x.dims.0.0.0", True, r"not an integer; expected an integer, got true"),
    ("inputs.x.dims.0.0", [4], r"\$.inputs.x.dims\[0\]\[0\]: not a list of 2"),
    ("inputs.x.dims.0.0.1", 3, r"\$.inputs.x.dims\[0\]\[0\]\[1\]: not a string"),
    ("inputs.x.dims.1.0.1", "dp", r"\$.inputs.x: .*does not fit the mesh"),
    ("inputs.x.dims", [], r"\$.inputs.x: .*has shape"),
    ("inputs.x.dims", None, r"\$.inputs.x.dims: not a list"),
    ("inputs.x.partials", [], r"\$.inputs.x: unknown key 'partials'"),
    ("inputs.x.partial", [["tp", "sum"]], r"\$.inputs.x: input %x cannot be partial"),
    ("inputs.z", {"dims": [], "partial": []}, r"\$.inputs.z: .*has no input z; it has x, w"),
    ("inputs", None, r"\$.inputs: not an object"),
    ("inputs", {}, r"\$.inputs: nothing is said of the input x"),
    ("outputs", {}, r"\$.wanted.*: ranks of an output that is not laid out"),
    ("outputs.output:q", {"dims": [], "partial": []}, r'\$.outputs\["output:q"\]: .*no output'),
    ("outputs.output:y.partial", [["tp"]], r"partial\[0\]: not a list of 2"),
    ("outputs.output:y.partial", [["tp", "avg"]], "folds other than"),
    ("wanted.output:y", [["pp", [0.5]]], "a number that is not an integer"),
    ("wanted.output:y", [["pp", [False]]], r"\[1\]\[0\]: not an integer"),
    ("wanted.output:y", [["pp", "0-1"]], r"\[0\]\[1\]: not a list"),
    ("wanted.output:y", [["pp", []]], "no coordinate of pp"),
    ("wanted.output:y", [["qq", [0]]], "qq is not a dim of the mesh"),
    ("wanted.output:z", [["pp", [0]]], r'\$.wanted\["output:z"\]'),
    ("wnated", {}, r"\$: unknown key 'wnated'"),
    ("balanced.0", ["count", "dp", "rows"], r"\$.balanced\[0\]: no assumption"),
    ("balanced.0", ["count", "tp"], r"\$.balanced\[0\]: not a list of 3"),
    ("assumptions", [1], r"\$.assumptions\[0\]: not a string"),
    ("assumptions", ["\ud800"], "half of a character"),
]


@pytest.mark.parametrize(("path", "value", "message"), JSON_FAULTS)
def test_json_that_is_not_understood_is_an_error_with_its_path(
    path: str, value: object, message: str, tmp_path: Path
) -> None:
    data: Any = json.loads(json.dumps(GOOD))
    *steps, last = path.split(".")
    at = data
    for step in steps:
        at = at[int(step) if isinstance(at, list) else step]
    at[int(last) if isinstance(at, list) else last] = value
    file = tmp_path / "c.json"
    file.write_text(json.dumps(data))
    with pytest.raises(MalformedError, match=message) as caught:
        load_contract(file, ONE, MANY)
    assert str(caught.value).startswith(f"{file}")
    assert "\n" not in str(caught.value)


def test_json_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps(GOOD))
    assert load_contract(tmp_path / "c.json", ONE, MANY).contract.to_json() == GOOD


SEEDS = (
    "input x tp=S(1)\ninput w tp=S(0) on(pp=1)\noutput y pp=P(max) on(tp=0)\noutput loss tp=P",
    "input x [4][2@tp 4]\ninput w [2@tp 4][4] on(pp=[0])\noutput y [2 2@pp][4] tp=P(min)",
    "# rows\ninput %x pp=R tp=R # all\noutput output:y tp=S(-2) pp=S(1)\nbalanced count tp rows",
)
PIECES = (*' \t#[](),=@%"0129-.:RSP', "tp", "pp", "on(", "=R", "=S(0)", "P(max)", "x", "\n", "é")


def damaged(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at, span = rng.randrange(len(text) + 1), rng.choice((0, 0, 1, 1, 2, 6))
        put = rng.choice((*PIECES, "", "", text[at : at + span] * 2))
        text = text[:at] + put + text[at + span :]
    return text


PLACED = r"(\w+)=(R|Replicate|(?:S|Shard)\(-?\d+\)|(?:P|Partial)(?:\((?:sum|max|min)\))?)"
RANKS = r"(\w+)=(?:(\d+)|\[(\d+(?:,\d+)*)\])"
LINE = re.compile(
    rf'(input|output) ("(?:[^"\\]|\\.)*"|[^ "\[]+)((?: ?\[[^]]*\])*)((?: ?{PLACED})*)'
    rf"(?: ?on\(({RANKS}(?:,{RANKS})*)\))?"
)


def said(text: str, contract: Contract) -> None:
    """Every line that was accepted says what the contract holds, and no more."""
    mentioned: set[tuple[str, str]] = set()
    balanced = 0
    for row in text.split("\n"):
        bare = " ".join(re.sub(r"#.*", "", row).split())
        if not bare:
            continue
        if bare.startswith("balanced "):
            value, name, *why = bare.split()[1:]
            made = contract.balanced[balanced]
            assert (made.value, made.mesh_dim) == (value.strip('%"'), name.strip('"')), row
            assert made.why.split() == (why or [f"%{made.value}"]) or "#" in row
            balanced += 1
            continue
        bare = re.sub(r"\s*([](),=@[])\s*", r"\1", bare)
        found = LINE.fullmatch(bare)
        assert found is not None, (row, bare)
        kind, name, atoms, placed, ranks = (found[i] for i in (1, 2, 3, 4, 7))
        name = name.removeprefix("%").strip('"')
        laid = contract.inputs if kind == "input" else contract.outputs
        key = next(k for k in laid if name == k or (kind == "output" and k.endswith(f":{name}")))
        mentioned.add((kind, key))
        layout = laid[key]
        if atoms:
            written = [_atoms(words) for words in re.findall(r"\[([^]]*)\]", atoms)]
            assert list(layout.dims) == written, row
        stated = {n: _word(w, len(layout.dims)) for n, w in re.findall(PLACED, placed)}
        for mesh_dim in MANY.mesh.names:
            default = layout.placement(mesh_dim) if f"@{mesh_dim}" in atoms else "Replicate"
            want = stated.get(mesh_dim, default)
            held = layout.placement(mesh_dim)
            assert (held if atoms else held.removeprefix("Strided")) == want, row
        chosen = {n: [*map(int, (a or b).split(","))] for n, a, b in re.findall(RANKS, ranks or "")}
        places = contract.held if kind == "input" else contract.wanted
        assert places.get(key, ()) == ranks_where(MANY.mesh, chosen), row
    assert balanced == len(contract.balanced)
    for kind, laid in (("input", contract.inputs), ("output", contract.outputs)):
        for key, layout in laid.items():
            assert (kind, key) in mentioned or not layout.mentioned


def _atoms(words: str) -> Dim:
    pairs = [item.replace('"', "").partition("@") for item in words.split()]
    return normal(Atom(int(size), name or None) for size, _, name in pairs)


def _word(text: str, rank: int) -> str:
    shard = re.fullmatch(r"(?:S|Shard)\((-?\d+)\)", text)
    if shard:
        return f"Shard({int(shard[1]) % rank})"
    if text.startswith("P"):
        return f"Partial({text.partition('(')[2].rstrip(')') or 'sum'})"
    return "Replicate"


@pytest.mark.parametrize("seed", range(3))
def test_damaged_contract_is_refused_or_says_what_is_written(seed: int) -> None:
    rng = random.Random(seed)
    accepted, places = 0, list[str]()
    for _ in range(1500):
        text = damaged(rng.choice(SEEDS), rng)
        try:
            contract = line(text)
        except MalformedError as error:
            places.append(str(error))
            continue
        said(text, contract)
        accepted += 1
    assert all(re.match(r"c\.txt:\d+:\d+: ", place) for place in places)
    assert accepted > 100


def test_damaged_json_is_refused_or_read_back(tmp_path: Path) -> None:
    rng = random.Random(5)
    text = json.dumps(GOOD)
    bits = (
        "null",
        "{}",
        "[]",
        "true",
        "1.5",
        "-1",
        "0",
        '"tp"',
        '"',
        ",",
        "",
        "]",
        "1e9",
        "\\ud800",
    )
    accepted, places = 0, list[str]()
    for _ in range(2000):
        at, span = rng.randrange(len(text)), rng.choice((0, 1, 2, 4, 12))
        changed = text[:at] + rng.choice(bits) + text[at + span :]
        (tmp_path / "c.json").write_text(changed)
        try:
            stated = load_contract(tmp_path / "c.json", ONE, MANY)
        except MalformedError as error:
            places.append(str(error))
            continue
        assert stated.contract.to_json() == {
            "balanced": [],
            "assumptions": [],
            **_json(changed),
        }
        accepted += 1
    assert accepted > 5
    assert all(place.startswith(str(tmp_path)) for place in places)


def _json(text: str) -> dict[str, Any]:
    """The document, without empty places, which say what their absence does."""
    data = json.loads(text)
    return {k: v for k, v in data.items() if v or k not in ("held", "wanted")}


def test_names_that_only_a_string_can_write() -> None:
    one = parse_text('program one input %"a b": f32[4] %y = exp %"a b" return %y "the result"')
    many = parse_text(
        'program many mesh("m d"=2) input %"a b": f32[2] %y = exp %"a b" return %y "the result"'
    )
    text = 'input "a b" "m d"=S(0)\noutput "the result" [2@"m d" 2]'
    contract = read_contract(text, one, many).contract
    _, composed = compose(many, read_contract(text, one, many))
    assert composed == contract
    assert isinstance(verify(Problem(one, many, contract)), Proof)
