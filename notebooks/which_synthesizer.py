# %% [markdown]
# # Which synthesizer?
#
# This notebook compares all synthesizers of the library on the same data: which statistics the traces keep, what they
# reveal, and how settings trade one for the other. The pictures are those of the PPMTF paper (Murakami et al. 2021,
# Figs. 7 and 8).

# %%
# Only in Google Colab: install the library.
import subprocess
import sys

if "google.colab" in sys.modules:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "ppmtf_jax"], check=True)

# %%
# %matplotlib inline
import os

import rich

from ppmtf_jax import PPMTFSettings, compare, fit, synthesize, toy_city
from ppmtf_jax.datasets import read_people_flow
from ppmtf_jax.evaluation import format_table
from ppmtf_jax.evaluation.plots import trade_offs, user_clusters

# %% [markdown]
# ## 1. The data
#
# If you have no data, the notebook uses one day of a simulated city, without gaps. If you have the people flow of Tokyo
# (`POI_TK.csv`, `traintraces_TK.csv` and so on), which the paper uses, give its folder in `folder`, or in the
# environment variable `PPMTF_DATA`.

# %%
folder = os.environ.get("PPMTF_DATA", "")

if folder:
    train, test = read_people_flow(folder)
    ppmtf = "ppmtf"
else:
    train, test = toy_city(n_users=250, n_places=50, n_days=1, missing=0.0, seed=0).traces.split_users(0.6, seed=0)
    # Zeros are given less weight in a city this small, and 40 sweeps do for a look.
    ppmtf = "ppmtf zeros=weighted n_zeros=300 n_sweeps=40"
print(f"{train.n_users} training and {test.n_users} test users, {train.n_places} places, {train.n_events} events")

# %% [markdown]
# ## 2. One table
#
# * **bridge**: users form clusters, and each trace is made by a synthetic person of a cluster. This is the default of
#   `fit`.
# * **ppmtf**: a chain for each user, from a factorization of all users' counts.
# * **sgd**: one transition matrix for each time of the day, the same for everybody. With `n_copied` the first events of
#   a trace are those of a real person.
# * **sglt**: a real trace, in which each place is replaced by one that means the same to somebody else.
# * **tpm**: one noisy transition matrix, with differential privacy for every user.
# * **training**: the real traces, given away. **uniform**: places at random.
#
# The numbers are for all traces, before any privacy test; a row below them shows how many traces would pass. `compare`
# does all the work: it fits each system, makes traces, tests, attacks and measures them. On the command line, use
# `ppmtf compare`.

# %%
systems = ["bridge", ppmtf, "sgd", "sgd n_copied=2", "sglt remove_true_prob=0.4", "tpm"]
found = compare(train, test, systems, n_seeds=1, traces_per_user=1)
rich.print(format_table(found.mean()))

# %% [markdown]
# ## 3. Utility against privacy
#
# Most systems have a setting that trades utility for privacy. The best place in each panel is at the lower left: near
# the real population or the real transitions, and hard to attack.

# %%
# Settings of each system, from the least to the most private.
lines = {
    "PPMTF, noise precision": [f"{ppmtf} noise_precision={alpha}" for alpha in (200, 2, 0.5)],
    "SGD, copied events": [f"sgd n_copied={n}" for n in (4, 2, 1, 0)],
    "SGLT, true places removed": [f"sglt remove_true_prob={share}" for share in (0, 0.2, 0.4, 1)],
}
swept = compare(train, test, [each for line in lines.values() for each in line], n_seeds=1, traces_per_user=1).mean()
names = iter(swept.columns)
quantities = {row.quantity.name: row.quantity for row in swept.rows}
utility, privacy = ["tp_tv", "tm_emd_y", "vf_tv"], ["reid_rate", "mia_advantage"]


def numbers(columns):
    """Values along a line, by the name of the number."""
    return {name: [swept.value(name, column) for column in columns] for name in utility + privacy}


def alone(column):
    """The same of a single system of the first table."""
    return {name: found.mean().value(name, column) for name in utility + privacy}


trade_offs(
    {label: numbers([next(names) for _ in line]) for label, line in lines.items()},
    [quantities[name] for name in utility],
    [quantities[name] for name in privacy],
    references={name: alone(name) for name in ("bridge", "tpm", "training")},
)

# %% [markdown]
# Traces of the bridge, and of SGD without copied events, do not depend on one real trace more than on others: so nobody
# can say from whom they were made. SGLT starts from a real trace, so its traces are re-identified until most true
# places are removed. Other rows of the table show the weaknesses of SGD and PPMTF: SGD knows no groups of people
# (*Group-TV*), and PPMTF refuses moves that people make.
#
# ## 4. What a factorization knows of groups
#
# PPMTF describes every user, place and time by a few numbers. A column of these numbers describes a kind of person. The
# maps show the columns whose strongest users differ most from everybody else.

# %%
settings = PPMTFSettings() if folder else PPMTFSettings(zeros="weighted", n_zeros=300, n_sweeps=40)
model = fit(train, "ppmtf", settings)
user_clusters(model.trace_model, synthesize(model), train)

# %% [markdown]
# ## 5. PPMTF's sampler in NumPyro
#
# `fit` keeps one draw of the factors, as published. To study the posterior itself, give the same Gibbs sampler to
# NumPyro's own `MCMC`: it runs several chains, collects the draws and hands them to ArviZ. Column order and signs of
# the factors are arbitrary, so compare chains on the error of the count tensors, or on predicted counts.

# %%
import jax
from numpyro.infer import MCMC

from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings, rows_of_factors
from ppmtf_jax.gibbs.mcmc_kernel import MTFGibbs
from ppmtf_jax.gibbs.tensors import count_tensors

counts = count_tensors(train, seed=0)
kernel = MTFGibbs(SHARED, GibbsSettings(rank=4), rows_of_factors(SHARED, counts))
mcmc = MCMC(kernel, num_warmup=20, num_samples=20, num_chains=2, chain_method="sequential", jit_model_args=True)
mcmc.run(jax.random.key(0), observe(counts, "weighted", 300, seed=0), extra_fields=["rmse"])
draws, errors = mcmc.get_samples(group_by_chain=True), mcmc.get_extra_fields(group_by_chain=True)["rmse"]
print({name: rows.shape for name, rows in draws.items()})
print({tensor: error.mean(axis=1).round(3).tolist() for tensor, error in errors.items()}, "mean error of each chain")

# %% [markdown]
# ## 6. Which synthesizer, then?
#
# * **Traces for practical use**, if you need what people have in common: the bridge.
# * **A guarantee that holds whatever an attacker knows**: `tpm`, with more data than here; its results in the table
#   show what the noise costs.
# * **To compare with the literature**: `ppmtf`, `sgd` and `sglt`, as published.
#
# To find the best synthesizer for your data, compare them on it: `ppmtf compare train test --out compared`.
