"""Where this package lies.

Paths are those that Python imported it by, never resolved: in a checkout `shardproof/agent` and its
siblings are links, and the frames of our code carry the names with the links.
"""

from pathlib import Path

PACKAGE = Path(__file__).parent
ROOMS = ("agent", "compat", "prompts", "runtime", "synthesis", "verifier")
IMPORTED_FROM = str(PACKAGE.parent)
"""What `sys.path` must hold for `import shardproof`."""
OURS = (str(PACKAGE), *(str((PACKAGE / room).resolve()) for room in ROOMS))
"""The folders of our code, by either name."""
