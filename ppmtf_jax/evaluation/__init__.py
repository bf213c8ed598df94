"""What was kept and what leaks: metrics of synthetic traces, tables and pictures of them."""

from ppmtf_jax.evaluation.evaluation import Evaluation, EvaluationSettings, evaluate
from ppmtf_jax.evaluation.tables import format_table

__all__ = ["Evaluation", "EvaluationSettings", "evaluate", "format_table"]
