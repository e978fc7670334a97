"""The role of an explainer: words about a verdict, for its owner. They decide nothing."""

from shardproof.agent.llm import vocabulary
from shardproof.agent.llm.client import Form, Model
from shardproof.agent.llm.dialogue import Result, put
from shardproof.agent.llm.hygiene import clean
from shardproof.agent.llm.replies import Explanation, read, schema
from shardproof.agent.llm.source import bare, boundary, excerpt
from shardproof.agent.verdict.verdicts import message, word
from shardproof.prompts import render
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.text.parser import to_text
from shardproof.verifier.verdict import Counterexample, Trace, Verdict

FORM = Form("explanation", schema(Explanation))


def explain(
    model: Model, verdict: Verdict, program: Program | None = None, question: str = ""
) -> Result[Explanation]:
    """Ask for an explanation: plain text, cleaned, to be shown as the model's words."""
    traced = isinstance(verdict, Counterexample) and isinstance(verdict.witness, Trace)
    location = getattr(verdict, "location", None)
    focus = location.text.split(" = ")[0] if location else ""
    shown = excerpt(clean(to_text(bare(program))).strip(), 12_000, focus) if program else ""
    prompt = render(
        "explain",
        boundary=boundary(),
        verdict=word(verdict),
        finding=excerpt(clean(message(verdict)), 6000),
        program=shown,
        checks=vocabulary.checks() if traced else [],
        question=clean(question)[:2000],
    )
    return put(model, prompt, FORM, lambda reply: read(Explanation, reply.text))
