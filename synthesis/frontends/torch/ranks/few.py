"""Which ranks of a large mesh are traced, and whether the others may be taken to follow.

Ranks differ by what PyTorch and `shardproof.runtime` do with their coordinates, and by what other
code does that asks which rank it is. Where none asks, few ranks tell what all run.
"""

# pyright: basic

import functools
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from shardproof.runtime import source as runtime
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import loaded
from shardproof.synthesis.frontends.torch.ranks import dtensors
from shardproof.synthesis.frontends.torch.ranks.join import FewRanksError, RankError, join
from shardproof.synthesis.frontends.torch.ranks.places import Places
from shardproof.synthesis.frontends.torch.ranks.result import Rank
from shardproof.synthesis.frontends.torch.surroundings import COORDINATES
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.ops.classes import MESSAGES

FUNCTIONS = (
    "get_rank",
    "get_group_rank",
    "get_global_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
)
METHODS = ("get_rank", "get_local_rank", "get_coordinate")
OF_DTENSORS = "get_coordinate"
"""What DTensor asks from C++, for ops of any line."""
VARIABLES = ("RANK", "LOCAL_RANK")
_TRUSTED = (f"{Path(torch.__file__).parent}{os.sep}", f"{runtime.FILE.parents[1]}{os.sep}")
_LIBRARY = str(Path(sysconfig.get_path("stdlib"))) + os.sep
_THROUGH = (os.__file__, "<frozen os>", "<frozen _collections_abc>", dtensors.__file__)
"""Files that ask for who called them."""


STAGED = "ranks run stages of a pipeline"


class EveryRankError(CaptureError):
    """All ranks are to be traced: the message says why."""


def waves(mesh: Mesh, most: int) -> Iterator[list[int]]:
    """Ranks that may tell what all run: all of a mesh of up to `most`; else the first and the last,
    then the second along each mesh dim, then all along each mesh dim."""
    if mesh.size <= most:
        yield list(range(mesh.size))
        return
    yield [0, mesh.size - 1]
    yield _along(mesh, 2)
    yield _along(mesh, mesh.size)


def _along(mesh: Mesh, count: int) -> list[int]:
    """The first `count` ranks along each mesh dim, at coordinate 0 of all others."""
    places = enumerate(mesh.coords())
    return [r for r, at in places if max(at.values()) == sum(at.values()) < count]


class Asking:
    """Writes down the first line, of neither PyTorch nor this package, that asks which rank it is.
    What is watched stays so until the process ends."""

    def __init__(self, places: Places) -> None:
        self.places, self.line = places, ""
        for name in FUNCTIONS:
            watched = self._watched(getattr(distributed_c10d, name))
            for module in (dist, distributed_c10d):
                setattr(module, name, watched)
        for kind, names in ((DeviceMesh, METHODS), (dist.ProcessGroup, ("rank",))):
            for name in names:
                setattr(kind, name, self._watched(getattr(kind, name)))
        device_mesh: Any = DeviceMesh
        device_mesh.mesh = property(self._watched(vars(DeviceMesh)["mesh"].fget))
        COORDINATES.append(lambda frame: self._note(frame, ""))
        environ: Any = type(os.environ)
        environ.__getitem__ = self._watched(
            environ.__getitem__, lambda _, key: os.fsdecode(key) in VARIABLES
        )
        environ.__iter__ = self._watched(environ.__iter__)

    def given(self, names: Sequence[str], file: str) -> None:
        """What the function that builds the module takes."""
        ranks = [n for n in names if n == "rank" or n.endswith("_rank")]
        if ranks and not self.line:
            self.line = f"{file}: it takes {ranks[0]}"

    def _watched(
        self, function: Callable[..., Any], asks: Callable[..., bool] = lambda *_, **__: True
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if not self.line and asks(*args, **kwargs):
                self._note(sys._getframe(1), function.__name__)
            return function(*args, **kwargs)

        del watched.__wrapped__
        return watched

    def _note(self, frame: Any, name: str) -> None:
        while frame is not None and frame.f_code.co_filename in _THROUGH:
            frame = frame.f_back
        if self.line or frame is None or frame.f_code.co_filename.startswith(_TRUSTED):
            return
        if name != OF_DTENSORS or _named(name):
            file, line, text = self.places.of(frame)
            self.line = f"{file}:{line}  {text}"


@functools.cache
def _named(name: str) -> bool:
    """Whether a file that is loaded names a function, PyTorch's and ours aside."""
    files = {file for _, _, file in loaded() if file.endswith(".py")}
    others = (f for f in files if not f.startswith((*_TRUSTED, _LIBRARY)))
    return any(name in "".join(linecache.getlines(file)) for file in others)


def refuse_unlike(ranks: Mapping[int, Rank], mesh: Mesh) -> None:
    """Look whether the ranks that were traced tell what all run.

    Raises:
        EveryRankError: code asks which rank it is, ranks hold or exchange other things, or no one
            program is what they run.
        FewRanksError: they differ, and more of them say along which mesh dim.
    """
    asked = next((r.asked for r in ranks.values() if r.asked), "")
    if asked:
        raise EveryRankError(f"the code asks which rank it is: {asked}")
    first, *others = ranks.values()
    if any(e.kind in MESSAGES for e in first.events):
        raise EveryRankError("ranks send messages to one another")
    if any(_held(other) != _held(first) for other in others):
        raise EveryRankError("ranks hold or exchange other things")
    coords = mesh.coords()
    try:
        join([(coords[number], rank.compared) for number, rank in ranks.items()])
    except FewRanksError:
        raise
    except RankError as problem:
        raise EveryRankError(str(problem)) from None


def _held(rank: Rank) -> tuple[Any, ...]:
    events = [(e.kind, e.what, e.of, e.alike, len(e.ranks)) for e in rank.events]
    drawn = [(d.name, d.shape, d.law) for d in rank.draws]
    named = (dict(rank.params), dict(rank.states), rank.outputs, dict(rank.layouts), rank.frozen)
    return (events, drawn, *named, rank.unreached, dict(rank.tables), dict(rank.pieces))
