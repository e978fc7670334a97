"""Errors of the lower packages, read as ours: what the caller can fix, and what is our fault."""

from shardproof.agent.run.errors import InputError, ShardproofError


def as_ours(error: BaseException) -> ShardproofError | None:
    """The error as one with an exit code, or None where it is a fault of ours."""
    if isinstance(error, ShardproofError):
        return error
    from shardproof.synthesis.emit import EmitError
    from shardproof.synthesis.frontends.torch.errors import CaptureError
    from shardproof.synthesis.hardware import HardwareError
    from shardproof.synthesis.planner.assign import PlanError
    from shardproof.synthesis.planner.constraints import ConstraintError
    from shardproof.verifier.kernel.contract import ContractError
    from shardproof.verifier.kernel.program.errors import IRError

    match error:
        case CaptureError(message=message, file=file, line=line, text=text, hint=hint):
            place = f"{file}:{line}" if line else file
            return InputError(message, where="   ".join(filter(None, (place, text))), hint=hint)
        case HardwareError():
            what = "the cluster description cannot be used"
            return InputError(what, where="--hardware", got=str(error))
        case ConstraintError(
            what=what, constraint=constraint, expected=expected, got=got, hint=hint
        ):
            return InputError(what, where=constraint, expected=expected, got=got, hint=hint)
        case PlanError():
            return InputError(str(error), where="--mesh")
        case EmitError() | ContractError() | IRError():
            return InputError(str(error))
        case OSError(filename=name) if name is not None:
            return InputError("a file cannot be used", where=str(name), got=error.strerror or "")
        case _:
            return None
