"""Runs class programs on the devices of a mesh, symbolically: shapes and placements, no numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardproof.compat.errors import ProgramError, RelationError
from shardproof.compat.lowering import Lowered, Lowering
from shardproof.compat.mesh import DeviceMesh
from shardproof.compat.program import IROp, Program
from shardproof.compat.sharding import TensorSlice, compute_tensor_slices
from shardproof.compat.single import Given, at
from shardproof.compat.tensor import TensorState
from shardproof.verifier.kernel.program.where import members


@dataclass
class DeviceState:
    """The tensors of one device."""

    device_id: int
    tensors: dict[str, TensorState] = field(default_factory=dict[str, TensorState])

    def get(self, name: str) -> TensorState | None:
        return self.tensors.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors


class FinalStates(dict[str, TensorState]):
    """States after a run, with what the run started from: a name may be written again."""

    def __init__(self, states: Mapping[str, TensorState], given: Mapping[str, Given]) -> None:
        super().__init__(states)
        self.given = dict(given)


class MultiDeviceExecutor:
    """Derives shapes and placements of every value, by the relations of the core.

    A value without a relation has a state whose `sharding` is None; asking it for a placement is
    an error that says why. With `strict` the run itself raises there.
    """

    def __init__(self, mesh: DeviceMesh, spmd_checking: bool = False, strict: bool = False) -> None:
        self.mesh, self.spmd_checking, self.strict = mesh, spmd_checking, strict
        self.devices = {d: DeviceState(d) for d in mesh.ids}
        self.op_history: list[IROp] = []
        self.lowered: Lowered | None = None
        self._given: dict[str, Given] = {}

    def register_tensor(self, t: TensorState, device_ids: Sequence[int] | None = None) -> None:
        """Give a tensor to all devices, or to some.

        Raises:
            ProgramError: a device that the mesh does not have.
        """
        for device in device_ids or ():
            if device not in self.devices:
                raise ProgramError(f"tensor {t.name}: the mesh {self.mesh.core} has no {device}")
        devices = None if device_ids is None else tuple(device_ids)
        before = self._given.get(t.name)
        if before is not None and before.devices is not None and devices is not None:
            devices = tuple(sorted({*before.devices, *devices}))
        self._given[t.name] = Given(t, devices)
        for device in devices or self.mesh.ids:
            self.devices[device].tensors[t.name] = t

    def run_program(self, program: Program) -> FinalStates:
        """The state of every tensor.

        Raises:
            ProgramError: operands that nothing defines, shapes or dtypes that an op does not take.
            RelationError: with `strict`, a value that has no relation to the one-device program.
        """
        lowered = Lowering(self.mesh, self._given).lower(program)
        self.lowered = lowered
        self.op_history += program.flat()
        states: dict[str, TensorState] = {}
        for name, value in lowered.values.items():
            states[name] = replace(value.state, name=name)
            for rank in members(lowered.places[value.many], self.mesh.core):
                self.devices[self.mesh.ids[rank]].tensors[name] = states[name]
        if self.strict or self.spmd_checking:
            self._all_related(lowered)
        return FinalStates(states, self._given)

    run_fwd = run_program

    def _all_related(self, lowered: Lowered) -> None:
        for core, facts in lowered.facts.items():
            op = lowered.made.get(core)
            if op is not None and not facts:
                state = next(v.state for v in lowered.values.values() if v.many == core)
                raise RelationError(f"{op}: {state.relation}{at(op)}")

    def get_tensor(self, name: str, device_id: int = 0) -> TensorState:
        """Raises ProgramError where the device does not hold it."""
        found = self.devices[device_id].get(name)
        if found is None:
            raise ProgramError(f"tensor {name} not found on device {device_id}")
        return found

    def get_all_devices_tensor(self, name: str) -> dict[int, TensorState]:
        return {d: s.tensors[name] for d, s in self.devices.items() if name in s}

    def final_state(self) -> dict[int, dict[str, TensorState]]:
        return {d: dict(s.tensors) for d, s in self.devices.items()}

    def final_slices(self) -> dict[str, dict[int, TensorSlice]]:
        """For each tensor that is split in blocks: the block of every device that holds it."""
        out: dict[str, dict[int, TensorSlice]] = {}
        for device, held in self.final_state().items():
            for name, state in held.items():
                if state.sharding is None:
                    continue
                try:
                    found = compute_tensor_slices(state.global_shape, state.sharding)
                except ValueError:
                    continue
                out.setdefault(name, {})[device] = found[device]
        return out

    def reset_devices(self) -> None:
        """Forget all tensors."""
        self._given.clear()
        self.op_history.clear()
        self.lowered = None
        for state in self.devices.values():
            state.tensors.clear()
