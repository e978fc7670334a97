"""The losses of a step, by names.

The processes of a run read this file too: it imports nothing.
"""


def logged_losses(scalars: list[str], run: tuple[str, ...] = ()) -> set[str]:
    """What a step returns of its losses without a gradient, by the names of scalar floats: those
    that are called so, and of which it runs a backward, as `run` has them; or else the only one, or
    the first of a tuple."""
    called = {name for name in scalars if "loss" in name or name in run}
    first = {name for name in scalars if name in ("output", "output.0")}
    return called or first
