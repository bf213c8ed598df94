"""What synthetic traces keep and what they leak: metrics and attacks, with tables, pictures and a report."""

from ppmtf_jax.evaluation.evaluation import EvaluationSettings, evaluate
from ppmtf_jax.evaluation.results import Evaluation, format_table

__all__ = ["Evaluation", "EvaluationSettings", "evaluate", "format_table"]
