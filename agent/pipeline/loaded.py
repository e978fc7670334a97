"""Whether `from_pretrained` gives each rank what a proved plan of transformers says it holds."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from shardproof.agent.actions.models import Parallelize
from shardproof.agent.actions.programs import Check
from shardproof.agent.check.command import NOT_LOADED, decided
from shardproof.agent.run.run import Run
from shardproof.agent.verdict import verdicts
from shardproof.synthesis.frontends.torch.ranks.loading import MOST
from shardproof.synthesis.frontends.torch.ranks.request import MADE_UP
from shardproof.verifier.verdict import Proof, Unknown, Verdict


def loaded(
    run: Run, asked: Parallelize, rules: Mapping[str, str], proof: Proof, elements: int
) -> Verdict:
    """The proof of a patch, where ranks that the library loads by these rules are proved too.

    What `check --tp-plan --load made-up` says of them counts. A model of more `elements` than a
    checkpoint is made up for is not loaded: that is an assumption of the proof.

    Raises:
        CaptureError: the library cannot load it.
    """
    if elements > MOST:
        return replace(proof, assumptions=(*proof.assumptions, NOT_LOADED))
    with tempfile.TemporaryDirectory(prefix="shardproof-") as folder, run.phase("load") as phase:
        plan = Path(folder, "tp_plan.json")
        plan.write_text(json.dumps(rules), encoding="utf-8")
        found, _, _ = decided(
            Run([]),
            Check(
                target=asked.target,
                config=asked.config,
                inputs=asked.inputs,
                batch=asked.batch,
                seq=asked.seq,
                env=asked.env,
                mesh=asked.mesh or "",
                tp_plan=str(plan),
                load=MADE_UP,
                repair_seconds=0,
                run=False,
            ),
        )
        phase.summary = f"from_pretrained on {asked.mesh}: {verdicts.word(found)}"
    if isinstance(found, Proof):
        return proof
    why = verdicts.message(found).split("\n")[0]
    return Unknown(f"the patch is proved; loaded by from_pretrained it is not: {why}")
