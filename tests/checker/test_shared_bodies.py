"""A body that two repeated blocks share, of whose inputs they carry other ones."""

from copy import deepcopy

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, Rejected, check
from shardproof.verifier.checker.certificate import seal
from shardproof.verifier.kernel.contract import Contract, layout_to_json
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.assemble import shared, well_formed
from shardproof.verifier.text.digest import digest
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Counterexample, Proof

ROW, ROWS = Layout.replicate((4,)), Layout.replicate((3, 4))
CONTRACT = Contract(
    {"x": ROW, "q": ROWS, "y": ROW}, {f"output:{name}": ROW for name in ("p", "u", "v")}
)


def program(name: str, mesh: str, factor: int) -> Program:
    body = f"""body step {{
      carry %a: f32[4]
      carry %b: f32[4]
      %c = relu %a
      %d = mul_scalar %b {{value={factor}}}
      return carry %c, carry %d
    }}"""
    return parse_text(
        f"""program {name} {mesh}
        input %x: f32[4]
        input %q: f32[3, 4]
        input %y: f32[4]
        %p, %r = scan %x, %q {{carry=1, xs=1, length=3}} {body}
        %u, %v = scan %x, %y {{carry=2, xs=0, length=3}} {body}
        return %p, %u, %v
        """
    )


def test_each_block_keeps_its_own_carries() -> None:
    """What the first block slices the second one carries, and there a step has to keep it."""
    one, right = program("one", "", 2), program("many", "mesh(tp=2)", 2)
    proof = verify(Problem(one, right, CONTRACT))
    assert isinstance(proof, Proof)
    assert isinstance(check(proof.certificate, Problem(one, right, CONTRACT)), Accepted)
    wrong = program("many", "mesh(tp=2)", 3)
    assert isinstance(verify(Problem(one, wrong, CONTRACT)), Counterexample)
    forged = deepcopy(proof.certificate)
    forged["distributed"]["digest"] = digest(well_formed(shared(wrong)))
    claims = forged["claims"]
    row = claims["values"]["x"][0]
    forged["layouts"].append(layout_to_json(ROWS))
    at = len(forged["layouts"]) - 1
    claims["values"]["q"] = [{**row, "of": "q", "layout": at}]
    for block in forged["blocks"]:
        block["values"]["d"] = [{**block["values"]["d"][0], "of": None, "factor": None}]
    forged["seal"] = seal(forged)
    found = check(forged, Problem(one, wrong, CONTRACT))
    assert isinstance(found, Rejected)
    assert "keep" in found.reason
