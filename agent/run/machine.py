"""What this process runs on and took: versions for reports, peak memory."""

import platform
import resource
import sys
from importlib.metadata import PackageNotFoundError, version

from shardproof.agent import __version__

_SHOWN = ("numpy", "z3-solver", "torch", "transformers")


def versions() -> dict[str, str]:
    """Of ourselves, Python, and the libraries that matter to a result."""
    found = {"shardproof": __version__, "python": platform.python_version()}
    for name in _SHOWN:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def peak_memory() -> int:
    """Bytes: the larger of what this process and any ended child of it had resident."""
    unit = 1 if sys.platform == "darwin" else 1024
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(w).ru_maxrss for w in who) * unit
