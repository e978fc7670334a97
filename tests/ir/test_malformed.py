"""What is not a program gives one located message, never a traceback."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.text.files import load
from shardproof.verifier.text.jsonio import dumps, loads
from shardproof.verifier.text.parser import parse_text, to_text

GOOD = """program p mesh(tp=2)
  param %w: f32[4, 8] "fc.weight"
  input %x: f32[2, 4]
  %h = mm %x, %w : f32[2, 8]
  %y = all_reduce %h {mesh_dim=tp, reduce=sum}
  return %y
"""
CASES = {
    "undefined": ("mm %x, %w", "mm %x, %v", "p.sp:4:8: %v is not defined here"),
    "cycle": ("mm %x, %w", "mm %y, %w", "p.sp:4:8: %y is used before it is defined; .* on line 5"),
    "twice": ("%h = mm", "%x = mm", "p.sp:4:8: %x is defined twice"),
    "op": ("= mm", "= mmm", "p.sp:4:8: unknown op mmm; did you mean mm"),
    "attribute": ("reduce=sum", "reduction=sum", "p.sp:5:8: op all_reduce has no attribute"),
    "value": ("reduce=sum", "reduce=mean", "attribute reduce .*; expected one of sum, avg"),
    "repeated": ("reduce=sum", "mesh_dim=tp", "p.sp:5:36: attribute of all_reduce given twice"),
    "missing": ("mesh_dim=tp, ", "", "op all_reduce needs the attribute 'mesh_dim'"),
    "group": ("mesh_dim=tp", "mesh_dim=cp", "p.sp:5:8: .* names the mesh dim cp; .*tp=2"),
    "shape": ("f32[4, 8]", "f32[5, 8]", "p.sp:4:8: .*factor k is 4 and 5"),
    "written": ("f32[2, 8]", "f32[2, 9]", r"expected f32\[2, 8\], got f32\[2, 9\]"),
    "dtype": ("input %x: f32", "input %x: f31", "p.sp:3:13: unknown dtype f31"),
    "negative": ("f32[2, 4]", "f32[-2, 4]", "p.sp:3:13: negative extent"),
    "mesh": ("tp=2", "tp=0", "p.sp:1:15: mesh dim tp has no ranks; .*got 0"),
    "mesh twice": ("tp=2", "tp=2, tp=2", "mesh dim tp is named twice"),
    "role": ("input %x", "imput %x", "p.sp:3:3: a statement; .*did you mean input"),
    "trailing": ("return %y\n", "return %y\n)", r"p.sp:7:1: text after the end .*'\)'"),
    "string": ('"fc.weight"', '"fc.weight', "string that does not end on its line"),
    "operands": ("mm %x, %w", "mm %x", "p.sp:4:8: mm.*takes 2 operands"),
    "note": ("{mesh", "@ nowhere\n {mesh", "p.sp:5:22: source note; expected @ file:line"),
    "empty": (GOOD, "", "p.sp:1:1: .*the end of the text"),
    "results": ("%h = mm", "%h, %i = mm", "mm has 1 result; got 2 names"),
    "ranks": ("mm %x, %w", "mm %x, %w on()", "p.sp:4:21: name of a mesh dim"),
    "range of ranks": ("mm %x, %w", "mm %x, %w on(tp=0-1)", r"p.sp:4:25: ranks; .*'-1'"),
    "slice of ranks": ("mm %x, %w", "mm %x, %w on(tp=0:2)", r"p.sp:4:25: ranks; .*':'"),
    "part of a rank": ("mm %x, %w", "mm %x, %w on(tp=0.5)", "p.sp:4:24: a coordinate of tp"),
    "half a character": ('"fc.weight"', '"\\ud800"', "p.sp:2:23: string with a bad escape"),
    "after a type": ("%w : f32[2, 8]", "%w : f32[2, 8] sync", "p.sp:4:30: a statement"),
    "body": (": f32[2, 8]", ": f32[2, 8] { return }", "op mm takes no body"),
}


@pytest.mark.parametrize("case", CASES)
def test_text_error_is_located(case: str) -> None:
    old, new, message = CASES[case]
    assert old in GOOD
    with pytest.raises(IRError, match=message) as caught:
        parse_text(GOOD.replace(old, new, 1), "p.sp")
    assert str(caught.value).startswith("p.sp:")
    assert "\n" not in str(caught.value)


def scans(depth: int) -> str:
    """A program of `depth` nested scans."""
    head = "program p input %x: f32[2, 4]\n"
    lines = ["%y = scan %x {length=1, carry=1, xs=0} { carry %x: f32[2, 4]" for _ in range(depth)]
    return head + "\n".join(lines) + "\nreturn carry %x }" * depth + "\nreturn %y"


def test_deep_nesting_is_an_error() -> None:
    assert parse_text(scans(20)).nodes
    for depth in (40, 5000):
        with pytest.raises(IRError, match="nest too deeply"):
            parse_text(scans(depth))
    with pytest.raises(IRError, match="nested too deeply"):
        loads("[" * 200_000)
    with pytest.raises(IRError, match=r"not an object"):
        loads("[" * 100 + "]" * 100)


JSON_CASES = {
    "not JSON": ("{", "", r"p.json:2:11: malformed JSON"),
    "repeated key": ('"name": "p"', '"name": "p", "name": "q"', "key 'name' is given twice"),
    "NaN": ('"mesh": [["tp", 2]]', '"mesh": NaN', "a number that is not an integer"),
    "float": ('["tp", 2]', '["tp", 2.0]', "a number that is not an integer"),
    "format": ("program/1", "program/9", r"p.json: \$.format: unknown format"),
    "mesh": ('["tp", 2]', '["tp", 0]', r"p.json: \$.mesh: mesh dim tp has no ranks"),
    "operand": ('["x", "w"]', '["x", "v"]', r"\$.nodes\[0\]: %v is not defined here"),
    "order": ('["x", "w"]', '["y", "w"]', r"\$.nodes\[0\]: %y is not defined here"),
    "unknown key": ('"op": "mm"', '"op": "mm", "fast": true', "unknown key 'fast'"),
    "type": ('"op": "mm"', '"op": 3', r"\$.nodes\[0\].op: not a string"),
    "shape": ("[2, 8]", "[2, 9]", r"expected f32\[2, 8\], got f32\[2, 9\]"),
    "half a character": ('"name": "p"', '"name": "\\ud800"', r"\$.name: half of a character"),
    "line": (
        '"op": "mm"',
        '"op": "mm", "source": {"file": "", "line": -1, "module": "", "text": ""}',
        r"source.line: no line of a file; expected 0 or more",
    ),
    "null": ("[2, 8]", "[null, 8]", r"shape\[0\]: not an integer; .*got null"),
    "flag": ("[2, 8]", "[true, 8]", r"shape\[0\]: not an integer; .*got true"),
    "ranks": ('"op": "mm"', '"op": "mm", "on": [["tp", "0-1"]]', r"on\[0\]\[1\]: not a list"),
    "trailing": ("\n}\n", "\n}}\n", "malformed JSON: Extra data"),
}


@pytest.mark.parametrize("case", JSON_CASES)
def test_json_error_is_located(case: str) -> None:
    old, new, message = JSON_CASES[case]
    text = dumps(parse_text(GOOD))
    assert old in text
    with pytest.raises(IRError, match=message) as caught:
        loads(text.replace(old, new, 1), "p.json")
    assert str(caught.value).startswith("p.json:")


def message(read: Callable[[str], object], text: str) -> str:
    """What `read` says of `text`, nothing where it is a program."""
    try:
        read(text)
    except IRError as error:
        return str(error)
    return ""


def test_random_damage_never_escapes_as_another_error() -> None:
    golden = Path(__file__).parents[1] / "golden"
    random.seed(7)
    pieces = ("", "{", "]", "%", "-1", "9" * 5000, '"', "@", "\x00", "é", " 0")
    for read, name in ((parse_text, "block.sp"), (loads, "block.json")):
        text = (golden / name).read_text(encoding="utf-8")
        for _ in range(400):
            at, span = random.randrange(len(text)), random.choice((0, 1, 1, 5, 40))
            damaged = text[:at] + random.choice(pieces) + text[at + span :]
            assert len(message(read, damaged)) < 2000


WORDS = re.compile(r'"(?:[^"\\\n]|\\.)*"|%?[A-Za-z_][\w.*/-]*|-?\d[\w./]*')


def words(text: str) -> Counter[str]:
    """The names, words and numbers of a program text, each spelled in one way; no offsets, which
    are sums."""
    out: Counter[str] = Counter()
    for word in WORDS.findall(re.sub(r"#.*|@.*|offset\s*=[^,}]*", "", text)):
        number = re.fullmatch(r"-?\d+(?:\.\d+)?(?:[eE]-?\d+)?|-?\d+/\d+", word)
        out[str(Fraction(word)) if number else word] += 1
    return out


SPELLED = """program p mesh(tp=2, pp=2)
  param %w: f32[4, 8] "fc.weight"
  input %x: f32[2, 4] on(pp=0)
  %h = mm %x, %w on(pp=0) async
  %g = wait %h : f32[2, 8]
  %s = all_reduce %g {mesh_dim=[tp], reduce=max} stream(side) : f32[2, 8]
  %t = send %s {mesh_dim=pp, src=0, dst=1}
  %u = full {shape=[2, 8], value=1/3} on(pp=1) into(buffer)
  %v = iota {shape=[4], dim=0, offset=4*tp+1, dtype=f32}
  return loss %t, %u "path", grad %v
"""
BITS = (*"0123456789-.:;,=%()[]{}*+ \n", "0-1", "R", "tp", "pp=", " on(pp=1)", "async ", "x")


@pytest.mark.parametrize("seed", range(2))
def test_what_is_read_is_all_that_is_written(seed: int) -> None:
    """A damaged text is refused with its place, or its program has all that is written."""
    rng = random.Random(seed)
    accepted = 0
    for _ in range(1000):
        at, span = rng.randrange(len(SPELLED)), rng.choice((0, 0, 1, 1, 2, 5))
        text = SPELLED[:at] + rng.choice(("", *BITS)) + SPELLED[at + span :]
        said = message(lambda text: parse_text(text, "p.sp"), text)
        assert not said or re.match(r"p\.sp:\d+:\d+: ", said), said
        if said:
            continue
        program = parse_text(text, "p.sp")
        assert parse_text(to_text(program)) == program
        lost = words(text) - words(to_text(program))
        assert not lost, (lost, text, to_text(program))
        accepted += 1
    assert accepted > 50


def test_files_are_read_by_content(tmp_path: Path) -> None:
    program = parse_text(GOOD)
    for name, text in (("a", to_text(program)), ("b", dumps(program)), ("c", "\ufeff" + GOOD)):
        (tmp_path / name).write_bytes(text.replace("\n", "\r\n").encode())
        assert load(tmp_path / name) == program
    (tmp_path / "d").write_bytes(b"program \xff")
    with pytest.raises(IRError, match="byte 8 is not UTF-8"):
        load(tmp_path / "d")
    with pytest.raises(IRError, match="cannot be read: No such file"):
        load(tmp_path / "missing")
    with pytest.raises(IRError, match="cannot be read: Is a directory"):
        load(tmp_path)


@pytest.mark.slow
def test_ten_megabytes_parse_in_seconds() -> None:
    line = "  %{} = exp %x : f32[2, 4]  @ a/long/path/to/model.py:14 layers.*.fc | y = f(x)\n"
    body = "".join(line.format(i) for i in range(125_000))
    text = f"program p input %x: f32[2, 4]\n{body} return %0"
    assert len(text) > 9_500_000
    start = time.monotonic()
    assert len(parse_text(text).nodes) == 125_000
    assert time.monotonic() - start < 30
    with pytest.raises(IRError, match=r"<text>:125002:2: a statement"):
        parse_text(text.replace("return", "retrun"))


def test_errors_quote_little_of_a_huge_document() -> None:
    with pytest.raises(IRError) as caught:
        loads(json.dumps({"format": "x" * 100_000}))
    assert len(str(caught.value)) < 500
