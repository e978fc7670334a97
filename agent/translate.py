"""Errors of the lower packages, read as ours: what the caller can mend, and what is our fault."""

from agent.errors import InputError, ShardproofError


def as_ours(error: BaseException) -> ShardproofError | None:
    """The error as one with an exit code, or None where it is a fault of ours."""
    if isinstance(error, ShardproofError):
        return error
    return (
        _captured(error)
        or _described(error)
        or _planned(error)
        or _contracted(error)
        or _system(error)
    )


def _captured(error: BaseException) -> ShardproofError | None:
    from synthesis.frontends.torch.errors import CaptureError

    if not isinstance(error, CaptureError):
        return None
    where = f"{error.file}:{error.line}" if error.line else error.file
    return InputError(
        error.message,
        where="   ".join(part for part in (where, error.text) if part),
        hint=error.hint,
    )


def _described(error: BaseException) -> ShardproofError | None:
    from synthesis.hardware import HardwareError

    if not isinstance(error, HardwareError):
        return None
    return InputError("the cluster description cannot be used", where="--hardware", got=str(error))


def _planned(error: BaseException) -> ShardproofError | None:
    from synthesis.assign import PlanError
    from synthesis.constraints import WishError
    from synthesis.emit import EmitError

    if isinstance(error, WishError):
        return InputError(
            error.what,
            where=error.wish,
            expected=error.expected,
            got=error.got,
            hint=error.hint,
        )
    if isinstance(error, PlanError):
        return InputError(str(error), where="--mesh")
    return InputError(str(error)) if isinstance(error, EmitError) else None


def _contracted(error: BaseException) -> ShardproofError | None:
    from verifier.kernel.contract import ContractError
    from verifier.kernel.program.errors import IRError

    if not isinstance(error, ContractError | IRError):
        return None
    return InputError(str(error))


def _system(error: BaseException) -> ShardproofError | None:
    if not isinstance(error, OSError) or error.filename is None:
        return None
    return InputError("a file cannot be used", where=str(error.filename), got=error.strerror or "")
