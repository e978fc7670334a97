"""A text read by the statements that changed is the text read as a whole."""

from __future__ import annotations

import random

import pytest

from benchmarks.steps.model import Degrees
from benchmarks.steps.strategies import Strategy
from verifier.kernel.program.errors import IRError, MalformedError
from verifier.kernel.program.program import Program
from verifier.reuse.reading import reread
from verifier.text.parser import Spans, parse_text, to_text
from verifier.text.wellformed import well_formed

DEGREES = Degrees(tp=2, micro_batches=2, scan_layers=True, scan_micro_batches=True)
TEXT = to_text(Strategy("step", DEGREES).step().distributed)
SPANS = Spans()
PROGRAM = parse_text(TEXT, "d.txt", SPANS)
LINES = TEXT.splitlines(keepends=True)


def whole(text: str) -> Program | None:
    try:
        return parse_text(text)
    except MalformedError:
        return None


def edited(rng: random.Random) -> str:
    lines = list(LINES)
    for _ in range(rng.choice([1, 1, 1, 2])):
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[rng.randrange(len(lines))])
            case 2:
                lines[at] = lines[at].replace("mul", "add", 1)
            case 3:
                lines[at] = lines[at].replace(" = ", " =  ", 1).rstrip("\n") + "  # said\n"
            case 4:
                lines.insert(at, f"      %new{at} = full {{shape=[2], value={at}}}\n")
            case _:
                word = lines[at].split(" ")
                rng.shuffle(word)
                lines[at] = " ".join(word).rstrip("\n") + "\n"
    return "".join(lines)


@pytest.mark.parametrize("seed", range(60))
def test_edits_read_in_part_are_read_alike(seed: int) -> None:
    text = edited(random.Random(seed))
    part, all_of_it = reread(text, TEXT, PROGRAM, SPANS), whole(text)
    if part is not None and all_of_it is not None:
        assert to_text(part) == to_text(all_of_it)
        assert part.nodes == all_of_it.nodes
    elif part is not None:
        with pytest.raises(IRError):
            well_formed(part)


@pytest.mark.parametrize("depth", range(4))
def test_a_changed_number_deep_in_a_block_is_read_in_part(depth: int) -> None:
    indent = "  " * (depth + 1)
    found = [
        i for i, line in enumerate(LINES) if line.startswith(f"{indent}%") and "mul_scalar" in line
    ]
    if not found:
        pytest.skip("no such line at this depth")
    lines = list(LINES)
    lines[found[0]] = lines[found[0]].replace("value=", "value=3", 1)
    text = "".join(lines)
    part = reread(text, TEXT, PROGRAM, SPANS)
    assert part is not None
    assert to_text(part) == to_text(parse_text(text))


def test_a_statement_that_swallows_the_next_is_not_read_in_part() -> None:
    text = "program p\n  input %x: f32[2]\n  %a = neg %x\n  %b = neg %a\n  return %b\n"
    spans = Spans()
    program = parse_text(text, "p", spans)
    assert reread(text.replace("%a = neg %x\n", "%a = neg\n"), text, program, spans) is None
    assert reread(text.replace("neg %x\n", "neg %x,\n"), text, program, spans) is None
    assert reread(text.replace("return %b", "return %a"), text, program, spans) is None
    better = reread(text.replace("%b = neg %a", "%b = exp %a"), text, program, spans)
    assert better is not None
    assert better.nodes[1].op == "exp"


def test_an_input_between_statements_is_not_left_standing() -> None:
    text = """program d mesh(tp=2)
      input %x: f32[4]
      %a = relu %x
      input %z: f32[4]
      %b = add %a, %z
      return %b
    """
    spans = Spans()
    program = parse_text(text, spans=spans)
    for line in ("", "%c = relu %x"):
        assert reread(text.replace("input %z: f32[4]", line), text, program, spans) is None
