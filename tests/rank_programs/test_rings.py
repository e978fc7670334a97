"""Messages around a ring are one collective; others stay as they are."""

from __future__ import annotations

from shardproof.synthesis.frontends.rank_programs.rings import with_rings
from shardproof.verifier.kernel.program.types import Mesh

RING = "rank {r}\ninput %x: f32[2]\nsend %x {{to={to}}} async\n%y = recv {{from={by}}} : f32[2]\n"


def ring(size: int, by: int) -> list[str]:
    return [RING.format(r=r, to=(r + by) % size, by=(r - by) % size) for r in range(size)]


def test_a_ring_is_a_shift() -> None:
    for by in (1, 2, 3):
        texts = with_rings(ring(4, by), Mesh.of(cp=4))
        line = f"%y = ring_shift %x {{ranks=[0, 1, 2, 3], shift={by}}} : f32[2]"
        assert [text.splitlines()[2:] for text in texts] == [[line]] * 4


def test_names_of_values_may_be_any() -> None:
    texts = [t.replace("%x", '%"a \\" b"') for t in ring(2, 1)]
    for text in with_rings(texts, Mesh.of(cp=2)):
        assert '%y = ring_shift %"a \\" b" {' in text


def test_a_ring_within_each_group() -> None:
    pairs = [(1, 0), (0, 1), (3, 2), (2, 3)]
    texts = [RING.format(r=r, to=to, by=to) for (to, _), r in zip(pairs, range(4), strict=True)]
    found = [text.splitlines()[2] for text in with_rings(texts, Mesh.of(dp=2, cp=2))]
    groups = ["ranks=[0, 1]"] * 2 + ["ranks=[2, 3]"] * 2
    assert all(g in line and "shift=1" in line for g, line in zip(groups, found, strict=True))


def test_other_messages_stay() -> None:
    mesh = Mesh.of(cp=4)
    swapped = ring(4, 1)
    swapped[0], swapped[1] = (RING.format(r=r, to=2 - r, by=3 - r) for r in (0, 1))
    late = [t.replace("send %x", "#").replace("#", "send %x") for t in ring(4, 1)]
    head, sent, got = (
        "rank 2\ninput %x: f32[2]\n",
        "send %x {to=3} async\n",
        "%y = recv {from=1} : f32[2]\n",
    )
    late[2] = head + got + sent
    lost = [t if r else t.replace("send %x {to=1} async\n", "") for r, t in enumerate(ring(4, 1))]
    for texts in (swapped, late, lost):
        assert with_rings(texts, mesh) == texts
