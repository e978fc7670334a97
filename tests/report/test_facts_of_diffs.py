"""What a report makes of diffs and collectives."""

from shardproof.agent.report.facts import diff_lines, grouped, parallelize_first
from shardproof.synthesis.planner.plan import CollectiveUse

DIFF = """--- a/m.py
+++ b/m.py
@@ -1,1 +1,2 @@
+import torch
 x = 1
@@ -9,1 +10,2 @@
 y = 2
+def parallelize(model, mesh):
--- a/n.py
+++ b/n.py
@@ -1,1 +1,2 @@
+z = 3
 x = 1
"""


def test_parallelize_comes_first_in_its_file_and_nothing_is_lost() -> None:
    lines = diff_lines(DIFF)
    shown = parallelize_first(lines)
    assert sorted(map(repr, shown)) == sorted(map(repr, lines))
    texts = [line.text for line in shown]
    assert texts[:5] == ["--- a/m.py", "+++ b/m.py", "@@ -9,1 +10,2 @@", " y = 2",
                         "+def parallelize(model, mesh):"]  # fmt: skip
    assert texts[-5:] == DIFF.split("\n")[-6:-1]
    assert parallelize_first(()) == ()


def test_collectives_are_grouped_by_op_dim_and_pass() -> None:
    uses = tuple(
        CollectiveUse(op, "tp", f"h.{n}", "forward", size, 2, "a sum is due")
        for n, (op, size) in enumerate([("all_gather", 1), ("all_reduce", 8), ("all_reduce", 8)])
    )
    groups = grouped(uses)
    assert [(g.op, g.count, g.total, len(g.uses)) for g in groups] == [
        ("all_reduce", 4, 32, 2),
        ("all_gather", 2, 2, 1),
    ]
    assert groups[0].reasons == "a sum is due"
