"""The process in which the user's code runs: reads a request, writes a result or an error."""

import json
import os
import traceback
from pathlib import Path
from typing import Any

from shardproof.synthesis.frontends.torch.errors import OR_TRANSLATE, CaptureError, shown
from shardproof.synthesis.frontends.torch.homes import own, root_of
from shardproof.synthesis.frontends.torch.process import DROPPED
from shardproof.verifier.kernel.program.types import NOWHERE, Source

_PLAIN = {
    "GuardOnDataDependentSymNode": "forward takes a data-dependent branch: which way it goes "
    "depends on the value of a tensor",
    "DataDependentOutputException": "forward reads the value of a tensor (item, tolist, int, "
    "float): what follows is data-dependent",
    "DynamicOutputShapeException": "a shape is data-dependent: it depends on the values of a "
    "tensor",
}
"""What these errors of PyTorch say, in plain words."""


def run(folder: Path) -> None:
    """Do the task in `request.json`. Results are files in `folder`; `report.json` comes last."""
    from shardproof.synthesis.frontends.torch.asked.sources import watch_sources
    from shardproof.synthesis.frontends.torch.captured import RESULT, Captured, dump
    from shardproof.synthesis.frontends.torch.request import CaptureRequest
    from shardproof.synthesis.frontends.torch.session import capture_here

    task = json.loads((folder / "request.json").read_text())
    watch_sources()

    def progress(phase: str) -> None:
        with (folder / "progress").open("a") as file:
            file.write(phase + "\n")

    if task["task"] == "ranks":
        from shardproof.synthesis.frontends.torch.ranks.session import save_ranks

        save_ranks(task["request"], folder, progress)
        return
    request = CaptureRequest.from_json(task["request"])
    if task["task"] == "capture":
        found = dump(Captured, capture_here(request, progress))
    else:
        from shardproof.synthesis.frontends.torch.observed import Observed
        from shardproof.synthesis.frontends.torch.sample_runs import try_here

        found = dump(Observed, try_here(request, progress))
    (folder / RESULT).write_text(found)


def explain(problem: BaseException, root: str) -> dict[str, Any]:
    """An exception as the fields of a CaptureError: message, and the user's line it came from."""
    if isinstance(problem, CaptureError):
        found = {k: getattr(problem, k) for k in ("message", "file", "line", "text", "hint")}
        frame = None if problem.file or not root else _frame(problem, root)
        if frame is None:
            return found
        place = _error("", frame.filename, frame.lineno or 0, frame.line or "", root)
        return found | {k: place[k] for k in ("file", "line", "text")}
    frame = _frame(problem, root)
    lines = [line.strip() for line in str(problem).strip().splitlines() if line.strip()]
    first = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
    if _kind(problem) in _PLAIN:
        message = _PLAIN[_kind(problem)]
    elif ".numpy() is not supported for tensor subclasses" in first:
        message = "forward goes through numpy, where capture cannot follow"
    elif isinstance(problem, SystemExit):
        message = f"the user's code called sys.exit({problem.code!r})"
    elif isinstance(problem, SyntaxError) and problem.filename:
        return _error(
            f"{type(problem).__name__}: {problem.msg}",
            problem.filename,
            problem.lineno or 0,
            problem.text or "",
            root,
        )
    elif isinstance(problem, MemoryError):
        message = "out of memory"
    else:
        message = f"{type(problem).__name__}: {first[:500]}".rstrip(": ")
    if frame is None:
        found = _traced(problem, root)
        return _error(message, found.file, found.line, found.text, root, _hint(problem))
    return _error(
        message, frame.filename, frame.lineno or 0, frame.line or "", root, _hint(problem)
    )


def _error(
    message: str, file: str, line: int, text: str, root: str, hint: str = ""
) -> dict[str, Any]:
    file = shown(file, root)
    return {"message": message, "file": file, "line": line, "text": text.strip(), "hint": hint}


def _traced(problem: BaseException, root: str) -> Source:
    """Where the node of a graph comes from that was being run when this was raised."""
    from shardproof.synthesis.frontends.torch.provenance import Provenance, node_of

    node = node_of(problem)
    return Provenance(root).source(node) if node is not None else NOWHERE


def _frame(problem: BaseException, root: str) -> traceback.FrameSummary | None:
    """The innermost frame in the user's folder, else in a library other than torch."""
    frames: list[traceback.FrameSummary] = []
    seen: set[int] = set()
    current: BaseException | None = problem
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        frames = list(traceback.extract_tb(current.__traceback__)) + frames
        current = current.__cause__ or current.__context__
    ours = str(Path(__file__).parent)
    if root:
        users = [f for f in frames if own(root, f.filename)]
        if users:
            return users[-1]
    library = [
        f for f in frames if "/transformers/" in f.filename and not f.filename.startswith(ours)
    ]
    return library[-1] if library else None


_HINTS = {
    "GuardOnDataDependentSymNode": "use torch.where or torch.cond",
    "DataDependentOutputException": "keep the value in a tensor",
    "DynamicOutputShapeException": "take extents from shapes; a mask as an index? use torch.where",
    "Unsupported": "torch.export does not support this construct: write it with tensor operations",
}


def _kind(problem: BaseException) -> str:
    """The name of an error's class; of what PyTorch raises where an extent is the value of a
    tensor, that of a shape that depends on values."""
    unknown = "expected to contain only concrete integers" in str(problem)
    return "DynamicOutputShapeException" if unknown else type(problem).__name__


def _dropped() -> list[str]:
    """The variables of the environment that the code is not given."""
    return os.environ.get(DROPPED, "").split()


def _hint(problem: BaseException) -> str:
    if isinstance(problem, ModuleNotFoundError) and problem.name:
        package = problem.name.partition(".")[0]
        return f"install {package}, or name its folder in PYTHONPATH{OR_TRANSLATE}"
    if isinstance(problem, KeyError) and str(problem).strip("'") in _dropped():
        return f"--env {problem!s} passes the variable on".replace("'", "")
    hint = _HINTS.get(_kind(problem))
    if hint is None and isinstance(problem, (RuntimeError, ValueError)):
        hint = "leave out what cannot run on the CPU, where tensors hold no values"
    return f"{hint}{OR_TRANSLATE}" if hint else ""


def main(folder: Path) -> None:
    """Do the task in `request.json`; `report.json` says whether it was done, or what went wrong."""
    me = os.getpid()
    root = ""
    report: dict[str, Any] = {}
    try:
        target = json.loads((folder / "request.json").read_text())["request"]["target"]
        root = root_of(target)
        run(folder)
        report["done"] = True
    except BaseException as problem:  # noqa: BLE001
        report["error"] = explain(problem, root)
        if not isinstance(problem, CaptureError):
            traceback.print_exc()
    if os.getpid() != me:
        os._exit(1)
    draft = folder / "report.json.draft"
    draft.write_text(json.dumps(report))
    draft.replace(folder / "report.json")
