"""What a check says."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, expect, integer
from shardproof.synthesis.guard.fingerprint.mix import key
from shardproof.synthesis.guard.fingerprint.movement import Fp

Status = Literal["passed", "skipped", "failed"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check. It is true only where it passed; a check that could look at nothing
    is `skipped`, which is no alarm and no pass."""

    status: Status
    op: str
    check: str
    expected: str = ""
    actual: str = ""
    culprit_ranks: tuple[int, ...] = ()
    """The ranks whose pieces differ, where the check can tell."""
    index_range: tuple[int, int] | None = None
    """Row-major indices of the global tensor between which the difference lies."""
    probable_fault: str = ""
    rank: int | None = None
    """Who found it."""
    skipped: int = 0
    """Places that a passed check could not judge, because they hold infinities or NaNs."""

    def __bool__(self) -> bool:
        return self.status == "passed"

    @property
    def ok(self) -> bool:
        """Whether it passed."""
        return self.status == "passed"

    @property
    def alarm(self) -> bool:
        """Whether something is wrong."""
        return self.status == "failed"

    def __str__(self) -> str:
        text = f"{self.op}: {self.status} {self.check}"
        if self.status == "failed":
            text += f", expected {self.expected}, got {self.actual}"
            if self.culprit_ranks:
                text += f"; ranks {', '.join(map(str, self.culprit_ranks))}"
            if self.index_range:
                text += f"; elements {self.index_range[0]}..{self.index_range[1] - 1}"
        if self.probable_fault:
            text += f"; {self.probable_fault}"
        if self.skipped:
            text += f"; {self.skipped} places not judged: infinities or NaNs"
        return text


def compared(
    op: str,
    check: str,
    want: object,
    got: object,
    culprits: tuple[int, ...] = (),
    span: tuple[int, int] | None = None,
    fault: str = "",
    rank: int | None = None,
) -> Verdict:
    """Passed where the two are equal; else failed, with what is known of the fault."""
    if want == got:
        return Verdict("passed", op, check, str(want), str(got), rank=rank)
    return Verdict("failed", op, check, str(want), str(got), culprits, span, fault, rank)


def combined(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of the verdicts of all ranks: a failure over a skip over a pass, the first of them.

    A fault may show on one rank alone, so verdicts are combined over ranks, as an all-reduce of
    them would, before anyone says that an op passed.

    Raises:
        FingerprintError: no verdicts.
    """
    found = list(verdicts)
    if not found:
        raise FingerprintError("no verdicts to combine: nothing was checked")
    order = {"failed": 0, "skipped": 1, "passed": 2}
    return min(found, key=lambda v: order[v.status])


def odd_ones(values: Sequence[object]) -> tuple[int, ...]:
    """The positions that differ from most; empty where no majority says which are right."""
    value, count = Counter(values).most_common(1)[0]
    if 2 * count <= len(values):
        return ()
    return tuple(i for i, v in enumerate(values) if v != value)


def same(op: str, check: str, fps: Sequence[Fp], fault: str) -> Verdict:
    """That the fingerprints of all ranks are equal."""
    if not fps:
        raise FingerprintError(f"{op}: no fingerprints to compare")
    for rank, fp in enumerate(fps):
        expect(fp, Fp, f"{op}, rank {rank}: expected a fingerprint")
        if (fp.key, fp.width) != (fps[0].key, fps[0].width):
            raise FingerprintError(
                f"{op}: the fingerprints of ranks 0 and {rank} were taken with different keys, or "
                "in words of different sizes"
            )
    values = [(fp.value, fp.count) for fp in fps]
    if len(set(values)) == 1:
        return Verdict("passed", op, check, str(fps[0]), str(fps[0]))
    odd = odd_ones(values)
    first = next(i for i, v in enumerate(values) if v != values[0])
    good = next((i for i in range(len(fps)) if i not in odd), 0)
    bad = odd[0] if odd else first
    return Verdict("failed", op, check, str(fps[good]), str(fps[bad]), odd, None, fault)


def descriptor(op: str, dtype: object, shape: Iterable[int], group: Iterable[int], seq: int) -> int:
    """A hash of what a rank is about to do: the op, dtype, shape, ranks, and number of the call.

    Known before running from the plan, and equal on all ranks. Sees ranks that meet in different
    calls; a name may carry the node of the plan too. Sees nothing of the payload.
    """
    try:
        shape, group = tuple(shape), tuple(group)
    except TypeError:
        raise FingerprintError(
            f"descriptor of {op}: expected a shape and the ranks of a group, got {shape!r} and "
            f"{group!r}"
        ) from None
    return key(seq, op, str(dtype), len(shape), *shape, len(group), *group)


def verify_descriptors(descriptors: Sequence[int], expected: int | None = None) -> Verdict:
    """That all ranks, and the plan where it is given, mean the same call."""
    fps = [Fp(integer(d, "descriptor"), 8, 0, 8) for d in descriptors]
    verdict = same("descriptor", "D", fps, "the ranks are in different calls")
    if verdict and expected is not None and descriptors[0] != expected:
        want, got = f"{expected:016x}", f"{descriptors[0]:016x}"
        fault = "all ranks agree on another call than the plan's"
        return compared("descriptor", "D", want, got, tuple(range(len(fps))), None, fault)
    return verdict
