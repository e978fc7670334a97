"""Prints what each way to ask for a rank is noted as; a process of its own, for PyTorch stays
watched."""

# pyright: basic

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

from shardproof.synthesis.frontends.torch.asked.sources import watch_sources
from shardproof.synthesis.frontends.torch.asked.watching import watching
from shardproof.synthesis.frontends.torch.ranks.build import join_world
from shardproof.synthesis.frontends.torch.ranks.dtensors import real_meshes
from shardproof.synthesis.frontends.torch.ranks.few import Asking
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.target import import_file
from shardproof.verifier.kernel.program.types import Mesh


def main(file: str) -> None:
    assert importlib.util.find_spec("torch")
    watch_sources()
    mesh = join_world(Mesh((("dp", 3), ("tp", 3))), 0)["mesh"]
    places = Places(str(Path(file).parent))
    asking = Asking(places)
    noted: dict[str, str] = {}
    with real_meshes(), watching(places):
        owner = import_file(Path(file))
        for name, function in vars(owner).items():
            if name.startswith("by_"):
                asking.line = ""
                function(mesh)
                noted[name] = asking.line
    print(json.dumps(noted))


if __name__ == "__main__":
    main(sys.argv[1])
