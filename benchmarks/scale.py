"""`python -m benchmarks.scale`: the same as `shardproof bench scale`, and the same options.

Full-size training steps, each in a fresh process, and curves around a base plan.
"""

from __future__ import annotations

import sys

from agent.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "scale"]
    main()
