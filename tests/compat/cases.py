"""Short forms for class programs in tests: tensors as `name=(shape, placements)`, one verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from verifier import (
    DeviceMesh,
    DistributedVerifier,
    IROp,
    MultiDeviceExecutor,
    Partial,
    Placement,
    Program,
    ProgramError,
    Replicate,
    Shard,
    ShardingSpec,
    TensorState,
    VerifyResult,
    compute_local_shape,
)

R, P = Replicate(), Partial()
TP = DeviceMesh((2,), ("tp",))
Inputs = Mapping[str, tuple[tuple[int, ...], str]]


def placed(word: str) -> Placement:
    """`R`, `P`, or the tensor dim that is split."""
    return R if word == "R" else P if word == "P" else Shard(int(word))


def tensor(name: str, shape: tuple[int, ...], words: str, mesh: DeviceMesh = TP) -> TensorState:
    spec = ShardingSpec(tuple(placed(w) for w in words.split()), mesh)
    return TensorState(name, shape, compute_local_shape(shape, spec), spec)


@dataclass
class Case:
    """A program, what it starts from, and what it is compared with."""

    ops: Sequence[IROp]
    inputs: Inputs
    mesh: DeviceMesh = TP
    reference: Sequence[IROp] | None = None
    expected: Mapping[str, str] = field(default_factory=dict[str, str])
    bwd: Sequence[IROp] | None = None
    held: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    outputs: Sequence[str] | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])

    def results(self) -> list[VerifyResult]:
        """Raises ProgramError where the program cannot run."""
        program = Program("case", list(self.ops))
        executor = MultiDeviceExecutor(self.mesh)
        for name, (shape, words) in self.inputs.items():
            state = tensor(name, shape, words, self.mesh).with_dtype(self.dtypes.get(name))
            executor.register_tensor(state, self.held.get(name))
        final = executor.run_program(program)
        expected = {
            n: ShardingSpec(tuple(placed(w) for w in words.split()), self.mesh)
            for n, words in self.expected.items()
        }
        return DistributedVerifier().verify_all(
            program,
            final,
            bwd_program=Program("bwd", list(self.bwd)) if self.bwd is not None else None,
            output_names=self.outputs,
            reference=Program("one", list(self.reference)) if self.reference is not None else None,
            expected=expected,
        )

    def accepted(self) -> tuple[bool, str]:
        """Whether everything passes, and what did not."""
        try:
            results = self.results()
        except ProgramError as error:
            return False, f"refused: {error}"
        failed = [str(r) for r in results if not r.passed]
        return not failed, "\n".join(failed)
