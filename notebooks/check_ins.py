# %% [markdown]
# # Check-ins: what survives the privacy test?
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# The button opens Colab; upload this notebook there.
#
# Check-ins are sparse: most people record where they are only once or twice a day. Murakami et al. (PETS 2021) ask
# three questions about Foursquare's check-ins. How useful are the traces that pass the privacy test (Fig. 10)? Do
# people still have their regular places (Fig. 11)? Can groups of people still be told apart (Fig. 12)? This notebook
# draws these figures for the published method, PPMTF, and for two others.

# %%
# Installs ppmtf_jax unless it is there. SOURCE is "ppmtf_jax" (the index), "git+https://..." (a repository) or the name
# of a wheel that you uploaded, such as "ppmtf_jax-0.1.0-py3-none-any.whl". A jax that is installed stays as it is.
SOURCE = "ppmtf_jax"

import importlib.metadata as packages
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def pip(*words, fault):
    """Run pip; an error ends the cell with what may be wrong, and what pip said."""
    done = subprocess.run([sys.executable, "-m", "pip", *words, "--quiet"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ppmtf_jax was not installed: there is no network, or {fault}.\n{done.stderr}")


if importlib.util.find_spec("ppmtf_jax") is None:
    found = {each.name.replace("_", "-"): each.version for each in packages.distributions()}
    jax_before = {name: found[name] for name in found if re.fullmatch("jax|jaxlib|jax-(cuda|rocm).*", name)}
    constraints = Path(tempfile.mkdtemp()) / "constraints.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in jax_before.items()))
    pip("install", "--no-deps", SOURCE, fault=f"SOURCE = {SOURCE!r} does not have it (try another)")
    needed = [each for each in packages.requires("ppmtf_jax") if "extra ==" not in each]
    stays = [each for each in needed if re.match(r"[\w-]+", each)[0] in jax_before]
    try:
        others = [each for each in needed if each not in stays]
        too_old = f"the installed {jax_before or 'Python'} is too old for what else is needed (upgrade it)"
        pip("install", "--constraint", str(constraints), *others, fault=too_old)
    except RuntimeError:
        pip("uninstall", "--yes", "ppmtf_jax", fault="it cannot be removed again")
        raise
    print("ppmtf_jax", packages.version("ppmtf_jax"), "with", jax_before or f"jax {packages.version('jax')}")
    from packaging.requirements import Requirement

    for each in map(Requirement, stays):
        if not each.specifier.contains(jax_before[each.name], prereleases=True):
            print(f"{each} is asked for; {jax_before[each.name]} was installed and stays, so results may be wrong.")

# %%
# %matplotlib inline
import os

import numpy as np

from ppmtf_jax import (
    Evaluation,
    EvaluationSettings,
    PPMTFSettings,
    evaluate,
    fit,
    plausible_deniability_test,
    synthesize,
    toy_city,
)
from ppmtf_jax.datasets import Discretization, read_foursquare
from ppmtf_jax.evaluation.plots import pass_rate_curves, user_clusters, utility_bars, visit_fraction_panels

# %% [markdown]
# ## 1. The data
#
# If you have no data, the notebook uses a simulated city in which most events are missing. If you have the Foursquare
# check-ins of New York (`dataset_TSMC2014_NYC.txt`), give their folder in `folder`, or in the environment variable
# `PPMTF_DATA`.

# %%
folder = os.environ.get("PPMTF_DATA", "")

if folder:
    # As in the papers, keep also places that only one person visits. Such traces must not be released.
    every_place = Discretization(min_users_per_place=1)
    train, test = read_foursquare(folder, discretization=every_place)[0].split_users(0.8, seed=0)
    settings = PPMTFSettings()
else:
    city = toy_city(n_users=400, n_places=60, missing=0.7, seed=0)
    train, test = city.traces.split_users(0.8, seed=0)
    # Zeros are given less weight in a city this small, and 40 sweeps do for a look.
    settings = PPMTFSettings(zeros="weighted", n_zeros=200, n_sweeps=40)
print(f"{train.n_users} training and {test.n_users} test users, {train.n_places} places, {train.n_events} events")

# %% [markdown]
# ## 2. How many traces pass?
#
# A trace passes if at least `k` users could have made it about equally well, within a factor of exp(eta). The test
# counts these users once for each trace, and the counts give the result for every `k`.

# %%
model = fit(train, "ppmtf", settings)
synthetic = synthesize(model, traces_per_user=4)
verdicts = plausible_deniability_test(model, synthetic, k=10, eta=1.0, count_all=True)
largest_k = min(200, train.n_users)
pass_rate_curves({"ppmtf": verdicts.pass_rates(np.arange(1, largest_k + 1))})

# %% [markdown]
# ## 3. How useful are the traces that pass? (Fig. 10)
#
# With a larger `k`, fewer traces pass, and those that pass resemble the traces of everybody. Lower is better;
# *Training* shows the value of real traces, *Uniform* the value of random places.

# %%
sets = {"no test": synthetic}
for k in (10, 20):
    passed = verdicts.plausible_users >= k
    if passed.any():
        sets[f"k = {k}"] = synthetic.select_traces(passed)
evaluation = evaluate(sets, train, test, EvaluationSettings(attacks=False))
PUBLISHED = ["tp_tv", "tp_tv_top50", "tm_emd_y", "tm_emd_x", "vf_tv"]
utility_bars(Evaluation([row for row in evaluation.rows if row.quantity.name in PUBLISHED]))

# %% [markdown]
# ## 4. Do people still have their places? (Fig. 11)
#
# Somebody who works in an office is there for much of the day; few people are in a park for long. SGD has one
# transition matrix for everybody, so all users are alike: each user spends a little time everywhere. PPMTF has a chain
# for each user, and the bridge without memory has one for each cluster of users.

# %%
bridge = synthesize(fit(train, memory="none"), traces_per_user=1)
sgd = synthesize(fit(train, "sgd"), traces_per_user=1)
released = synthetic.select_traces(verdicts.passed)
visit_fraction_panels({"test users": test, "ppmtf, k = 10": released, "bridge": bridge, "sgd": sgd})

# %% [markdown]
# A synthetic trace is one day with an event at every hour, but the events of a real user are spread over weeks. If a
# real user has few events, her shares are coarse. So compare the shapes of the distributions, not single bins.
#
# ## 5. Can groups still be told apart? (Fig. 12)
#
# A column of PPMTF's factors describes a kind of person. The maps show the columns whose strongest users differ most
# from everybody else: where these users are in the real and in the released traces, and at which times.

# %%
user_clusters(model.trace_model, released, train, n_clusters=2)

# %% [markdown]
# Traces pass if many users could have made them. So a test with a large `k` first removes what is special about a
# group: look at these maps with the `k` that you want before you choose it. The notebook `which_synthesizer` shows
# which traces suit which purpose, and compares utility with privacy (Fig. 7).
