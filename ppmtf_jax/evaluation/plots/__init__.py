"""Pictures of trace sets and of their measured numbers: maps, matrices, flows, distributions, clusters, curves.

Every function returns a `matplotlib.figure.Figure` that does not depend on windows or on pyplot. Save a figure with
`save_figure`, or write all of them with `save_pictures`. Functions named `draw_` fill given axes instead. This package
imports Matplotlib, which takes half a second: import it only where a picture is made.
"""

from ppmtf_jax.evaluation.plots.attacks import roc_curves
from ppmtf_jax.evaluation.plots.bars import privacy_bars, utility_bars
from ppmtf_jax.evaluation.plots.clusters import Factors, user_clusters
from ppmtf_jax.evaluation.plots.curves import jump_length_curves, pass_rate_curves, trace_plots, visit_fraction_panels
from ppmtf_jax.evaluation.plots.flows import flow_maps
from ppmtf_jax.evaluation.plots.friends import friend_panels
from ppmtf_jax.evaluation.plots.maps import population_maps
from ppmtf_jax.evaluation.plots.matrices import transition_matrices
from ppmtf_jax.evaluation.plots.persons import person_maps, person_timelines
from ppmtf_jax.evaluation.plots.pictures import check_picture_name, is_own_picture, save_figure, save_pictures
from ppmtf_jax.evaluation.plots.trade_offs import trade_offs

__all__ = [
    "Factors",
    "check_picture_name",
    "flow_maps",
    "friend_panels",
    "is_own_picture",
    "jump_length_curves",
    "pass_rate_curves",
    "person_maps",
    "person_timelines",
    "population_maps",
    "privacy_bars",
    "roc_curves",
    "save_figure",
    "save_pictures",
    "trace_plots",
    "trade_offs",
    "transition_matrices",
    "user_clusters",
    "utility_bars",
    "visit_fraction_panels",
]
