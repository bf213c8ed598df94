"""The picture of the README: a simulated city, and synthetic traces of it. Written beside this file."""

from pathlib import Path

from ppmtf_jax import fit, synthesize, toy_city
from ppmtf_jax.evaluation.plots import population_maps

train, _ = toy_city(n_users=1000, seed=0).traces.split_users(0.8, seed=0)
synthetic = synthesize(fit(train, seed=0), seed=0)
figure = population_maps(synthetic, train, slots=[1, 4, 6, 10])
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
