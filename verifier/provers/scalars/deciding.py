"""Whether the canonical forms of all elements are equal."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from shardproof.verifier.analysis.definedness import in_scope, needed, runs_defined
from shardproof.verifier.domains.algebra import Algebra, Budget, ExceededError
from shardproof.verifier.domains.base import Array, UndefinedError, is_index
from shardproof.verifier.kernel.contract import Contract, check, output_key
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.program import Node, Output, Program, live
from shardproof.verifier.provers.scalars.answers import Decision, Equal, Undecided
from shardproof.verifier.provers.scalars.cases import (
    MAX_CASES,
    MAX_ELEMENTS,
    cases,
    scope_of,
)
from shardproof.verifier.provers.scalars.outputs import all_ranks, pairs
from shardproof.verifier.refute.evaluate import Ranks, Values, elements, run_node

MASKED = "an entry masked with -10^29 or less has weight 0: all else is small beside a mask"


def decide(
    sequential: Program,
    distributed: Program,
    contract: Contract,
    indices: Mapping[str, Array] | None = None,
    *,
    budget: Budget | None = None,
    max_cases: int = MAX_CASES,
    masks: bool = False,
) -> Decision:
    """Whether the programs are equal, element by element, at the extents they have.

    Args:
        indices: values of integer inputs; the answer is then for these values. Integer inputs
            that are not named here are tried with every value in range, or the pair is declined.
        budget: for all values of the integer inputs together.
        masks: take constants of -10^29 and below for minus infinity under exp and max: what is
            masked has weight 0. An `Equal` that used it says so in its assumptions.

    Raises:
        ContractError: a contract that does not fit the programs.
    """
    check(sequential, distributed, contract)
    sequential, distributed = live(inline(sequential)), live(inline(distributed))
    size = elements(sequential) + elements(distributed, distributed.mesh.size)
    if size > MAX_ELEMENTS:
        return Undecided(f"the programs hold {size} numbers, at most {MAX_ELEMENTS} are compared")
    tried = cases(sequential, distributed, indices or {}, max_cases)
    if isinstance(tried, Undecided):
        return tried
    begin, left = time.process_time(), budget or Budget()
    digests = {output_key(o): hashlib.sha256() for o in sequential.outputs}
    terms, masked = 0, False
    for case in tried:
        run = _Run(sequential, distributed, contract, left, masks)
        try:
            found = run.compare(case)
        except ExceededError as error:
            found = Undecided(f"the budget is used up: {error}")
        except UndefinedError as error:
            found = Undecided(str(error))
        if found is not None:
            return replace(found, case={**case, **(indices or {})})
        for key, text in run.forms.items():
            digests[key].update(text.encode())
        masked = masked or run.masked
        terms += run.made
        spent = time.process_time() - begin
        left = replace(left, terms=left.terms - run.made)
        left = replace(left, seconds=(budget or Budget()).seconds - spent)
    scope = scope_of(sequential, distributed, indices or {}, masked)
    stats = {"terms": float(terms), "seconds": time.process_time() - begin}
    forms = {k: d.hexdigest() for k, d in digests.items()}
    return Equal(scope, forms, len(tried), (MASKED,) if masked else (), stats)


@dataclass
class _Run:
    """Both programs at one value of the integer inputs."""

    sequential: Program
    distributed: Program
    contract: Contract
    budget: Budget
    masks: bool = False
    forms: dict[str, str] = field(default_factory=dict[str, str])
    made: int = 0
    masked: bool = False

    def __post_init__(self) -> None:
        self.end = time.process_time() + self.budget.seconds
        self.algebra = Algebra(self.budget, masks=self.masks)

    def compare(self, case: Mapping[str, Array]) -> Undecided | None:
        """The first element that is not shown to be equal.

        Outputs are compared together where the same is assumed of what may have no value.
        """
        try:
            values, opened = self._one(self.sequential, case, frozenset())
            together: dict[frozenset[str], list[Output]] = {}
            for gradients in (False, True):
                need = needed(self.sequential, in_scope(self.sequential, gradients))
                defined = (n for n in opened if runs_defined(n, self.sequential, need))
                assumed = frozenset(v for n in defined for v in n.outputs)
                asked = (o for o in self.sequential.outputs if (o.role == "grad") == gradients)
                together.setdefault(assumed, []).extend(asked)
            for assumed, outputs in together.items():
                found = self._compare(case, assumed, outputs, None if assumed else values)
                if found is not None:
                    return found
        finally:
            self._close()
        return None

    def _compare(
        self,
        case: Mapping[str, Array],
        assumed: frozenset[str],
        outputs: Sequence[Output],
        values: Values | None,
    ) -> Undecided | None:
        """The first element of some outputs; `values` are those of one device, if worked out."""
        keys = {output_key(o) for o in outputs}
        asked = tuple(o for o in self.distributed.outputs if output_key(o) in keys)
        distributed = live(replace(self.distributed, outputs=asked))
        if values is None:
            self._close()
            left = Budget(self.budget.terms - self.made, self.end - time.process_time())
            self.algebra = Algebra(left, masks=self.masks)
            values, opened = self._one(self.sequential, case, assumed)
            if opened:  # before something was assumed that says more of them
                values, _ = self._one(self.sequential, case, assumed)
        algebra = self.algebra
        if algebra.table.unmet:
            return Undecided(f"the one-device program is never defined: {algebra.table.unmet[0]}")
        wholes = self._wholes(case)
        algebra.watched, algebra.lost = True, ""
        try:
            ranks = all_ranks(self.sequential, distributed, self.contract, wholes, algebra)
            for out in outputs:
                key = output_key(out)
                found = self._output(key, values[out.value], ranks)
                if found is not None:
                    return found
                self.forms[key] = self._form(values[out.value])
        finally:
            algebra.watched = False
        if algebra.lost:
            return Undecided(
                "the distributed program may be undefined where one device is defined: "
                + algebra.lost
            )
        return None

    def _one(
        self, program: Program, case: Mapping[str, Array], assumed: frozenset[str]
    ) -> tuple[Values, list[Node]]:
        """The values of one device, and the nodes that may have none for all that is known.

        Args:
            assumed: results of nodes that are defined by assumption.
        """
        table, opened = self.algebra.table, list[Node]()
        values = self._wholes(case)
        for node in program.nodes:
            before = table.opened
            with table.assuming() if node.outputs[0] in assumed else nullcontext():
                run_node(node, [values], program.mesh, [{}], self.algebra)
            if table.opened > before:
                opened.append(node)
        return values, opened

    def _wholes(self, case: Mapping[str, Array]) -> Values:
        """The values of the inputs of one device."""
        return {
            i.name: case[i.name] if i.name in case else self.algebra.symbols(i.name, i.type.shape)
            for i in self.sequential.inputs
        }

    def _close(self) -> None:
        """Adds up what the table at hand took."""
        table = self.algebra.table
        self.made, self.masked = self.made + table.made, self.masked or table.masked
        table.made = 0

    def _output(self, key: str, whole: Array, ranks: Ranks) -> Undecided | None:
        algebra, table = self.algebra, self.algebra.table
        both = pairs(key, self.contract, self.distributed, whole, ranks, algebra)
        for where, want, have in both:
            if want.shape != have.shape:
                return Undecided(f"{key} {where} has shape {have.shape}, not {want.shape}", key)
            if is_index(want) and is_index(have):
                if not np.array_equal(want, have):
                    at = tuple(int(i) for i in np.argwhere(want != have)[0])
                    return Undecided(f"{key}{list(at)} {where} is another integer", key, at)
                continue
            want, have = algebra.lift(want), algebra.lift(have)
            for index in np.ndindex(*want.shape):
                a, b = (cast(Any, side[index]) for side in (want, have))
                if not table.leaves(b) <= table.leaves(a):
                    reason = f"{key}{list(index)} {where} may have no value: {table.show(b)}"
                    return Undecided(reason, key, index)
                if not table.equal(a, b):
                    gap = table.show(table.sub(a, b))
                    reason = f"{key}{list(index)} {where} is not shown to be equal: off by {gap}"
                    return Undecided(reason, key, index)
        return None

    def _form(self, a: Array) -> str:
        if is_index(a):
            return f"{a.shape}:{a.tolist()};"
        table = self.algebra.table
        return f"{a.shape}:{','.join(table.digest(e) for e in a.reshape(-1))};"
