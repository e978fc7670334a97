"""Programs that differ from what is traced of them, and their right twins: generated, run on gloo,
and judged by the commands."""
