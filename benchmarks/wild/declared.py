"""`python -m benchmarks.wild.declared FOLDER`: import torchvision beside a torch without CUDA.

Its wheel holds kernels for CUDA, which do not load there, and its import asks for two of them by
name. They are declared in the copy that lies in the folder; models use neither.
"""

from __future__ import annotations

import sys
from pathlib import Path

OPS = ("nms", "qnms")
SCHEMA = "(Tensor a, Tensor b, float c) -> Tensor"


def main(folder: Path) -> None:
    file = folder / "torchvision" / "extension.py"
    text = file.read_text()
    for op in OPS:
        line = f'torch.library.define("torchvision::{op}", "{SCHEMA}")'
        text += f"\n{line}\n" * (line not in text)
    file.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
