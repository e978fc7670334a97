"""The checks, in the order in which they are run."""

from verifier.order.checks.base import Check
from verifier.order.checks.calls import (
    COLLECTIVE_ORDER,
    COLLECTIVE_SIZE,
    COMMUNICATOR,
    P2P_COUNT,
    P2P_ORDER,
    P2P_PEER,
    P2P_SIZE,
)
from verifier.order.checks.handles import ORPHANED_HANDLE, UNISSUED_HANDLE, UNRECORDED_MARK
from verifier.order.checks.progress import CONSISTENT_ORDER, DEADLOCK, LAUNCH_ORDER
from verifier.order.checks.races import (
    BUFFER_ALIASING,
    DATA_RACE,
    IN_FLIGHT_OVERWRITE,
    MISSING_WAIT,
    USE_AFTER_FREE,
)
from verifier.order.checks.values import DEPENDENCY, UNDEFINED_USE

__all__ = ["CHECKS", "Check"]

CHECKS: tuple[Check, ...] = (
    COMMUNICATOR,
    COLLECTIVE_ORDER,
    COLLECTIVE_SIZE,
    P2P_PEER,
    P2P_COUNT,
    P2P_ORDER,
    P2P_SIZE,
    UNISSUED_HANDLE,
    UNRECORDED_MARK,
    ORPHANED_HANDLE,
    DEADLOCK,
    LAUNCH_ORDER,
    CONSISTENT_ORDER,
    DATA_RACE,
    MISSING_WAIT,
    BUFFER_ALIASING,
    IN_FLIGHT_OVERWRITE,
    USE_AFTER_FREE,
    DEPENDENCY,
    UNDEFINED_USE,
)
