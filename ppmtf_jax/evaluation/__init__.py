"""What was kept and what leaks: metrics of synthetic traces, tables and pictures of them."""

from ppmtf_jax.evaluation.evaluation import METRICS, evaluate
from ppmtf_jax.evaluation.tables import format_table, write_json

__all__ = ["METRICS", "evaluate", "format_table", "write_json"]
