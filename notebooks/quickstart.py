# %% [markdown]
# # Synthetic location traces in ten minutes
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# The button opens Colab; upload this notebook there.
#
# Many people leave location traces: check-ins, GPS fixes. The companies and researchers that hold them often may not
# share them. This notebook learns how a city moves, makes synthetic traces, tests them for privacy, measures their
# utility, and ends with a folder that could be handed to anyone. You see every step of this way, and how two
# synthesizers compare. The city is simulated, so there is nothing to download.

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
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import rich
from matplotlib.figure import Figure

from ppmtf_jax import (
    PPMTFSettings,
    evaluate,
    fit,
    plan_release,
    plausible_deniability_test,
    read_checkins,
    synthesize,
    toy_city,
    write_release,
)
from ppmtf_jax.evaluation import format_table
from ppmtf_jax.evaluation.plots import population_maps, transition_matrices

# %% [markdown]
# ## 1. A city
#
# 500 people live here for a week. Each has a home. Most have a place to work or study. They shop, eat, and go to the
# park. Every hour we know where they were, but one event in five is missing.

# %%
city = toy_city(n_users=500, n_places=40, seed=0)
traces = city.traces
traces.to_frame().head()

# %% [markdown]
# An event says: this user was at this place at this instant. Instants are hours here. Each instant belongs to a *slot*,
# a time of day of two hours. The city has 40 places.

# %%
places = traces.places.to_frame()
visits = np.bincount(traces.place, minlength=traces.n_places)

figure = Figure(figsize=(7, 5.5), layout="constrained")
ax = figure.subplots()
for category, group in places.groupby("category"):
    ax.scatter(group["longitude"], group["latitude"], s=visits[group.index] / 15, alpha=0.7, label=category)
ax.set(xlabel="longitude", ylabel="latitude", title="The places; a larger disc is visited more often")
ax.set_aspect(1 / np.cos(np.radians(places["latitude"].mean())))
for handle in figure.legend(loc="outside right upper", frameon=False).legend_handles:
    handle.set_sizes([40])
figure

# %% [markdown]
# ## 2. Split
#
# We learn from 80 % of the *users*, the training users. The model never sees the others, the test users. They show
# later how good the synthetic traces are: good traces are as close to the test users as the training users are.

# %%
train, test = traces.split_users(0.8, seed=0)
train.n_users, test.n_users

# %% [markdown]
# ## 3. Learn
#
# `fit` puts users who are at similar places at similar hours into *clusters* of at least 20 users. For each cluster, it
# learns to make synthetic people. In every slot, the synthetic people are at the same places as the users of the
# cluster; from one slot to the next, they move as people in the city do. They also remember: each has a home and goes
# back to her places. We call this model the *bridge*. `fit` chooses what people remember, the amount of smoothing, and
# the number of clusters by how well the model predicts held-out users.
#
# `fit(train, "ppmtf")` learns the published method, PPMTF. It describes every user, place and slot by a few numbers,
# the *factors*, and makes a chain for each user from them. We learn both models, to compare them.
#
# The seed comes from the operating system. A person who knows it could repeat the draws, so the seed is part of the
# secret.

# %%
model = fit(train)
published = fit(train, "ppmtf", PPMTFSettings(zeros="weighted", n_zeros=300, n_sweeps=50))

# %% [markdown]
# ## 4. Synthesize
#
# For each user, the model makes one synthetic day: the day of a synthetic person from the cluster of this user. The
# user is the *input user* of the synthetic trace.

# %%
synthetic = synthesize(model, traces_per_user=1)
synthetic.to_frame().head(24)["place"].to_numpy()

# %% [markdown]
# ## 5. Test for privacy
#
# A synthetic trace may be so unusual that only one person could have made it. The test of *plausible deniability*
# withholds such a trace. A trace passes if at least `k` users, the input user included, could have made it with
# probabilities within a factor of exp(eta) of each other. A larger `k` and a smaller `eta` protect better.

# %%
verdicts = plausible_deniability_test(model, synthetic, k=10, eta=1.0)
passed = synthetic.select_traces(verdicts.passed)
print(f"{verdicts.passed.sum()} of {len(verdicts.passed)} traces of the bridge passed.")

published_traces = synthesize(published, traces_per_user=1)
published_verdicts = plausible_deniability_test(published, published_traces, k=10, eta=1.0)
published_passed = published_traces.select_traces(published_verdicts.passed)
print(f"{published_verdicts.passed.sum()} of {len(published_verdicts.passed)} traces of PPMTF passed.")

# %% [markdown]
# All traces of the bridge pass: the probability of a trace depends only on the cluster, so at least 20 users could have
# made each trace equally well. But the test does not hide what a whole cluster has in common.
#
# ## 6. How good are they?
#
# The first numbers measure utility; the last ones measure attacks. Lower is better, unless the table says otherwise. A
# dagger marks a number that says little on these data; the text below the table says why. Compare the numbers with two
# columns:
#
# * **Training**: the real traces themselves. The best utility one can hope for, and no privacy at all.
# * **Uniform**: every place at random. Perfect privacy, and no use.

# %% tags=["noise"]
released = {"bridge": passed, "PPMTF": published_passed}
evaluation = evaluate(released, train, test)
rich.print(format_table(evaluation))

# %% [markdown]
# The attacker of the last rows knows all real traces. *Re-identification* asks: from which user was this synthetic
# trace made? *Membership* asks: was this person among the training users at all? If the real traces are attacked, the
# attacker finds everybody. If the synthetic traces are attacked, she finds a few users in 100. Compare her membership
# advantage with its value by chance, one row below.
#
# Now look at the city itself. Do people go to work in the morning and home at night?

# %%
population_maps(released, train, test)

# %% [markdown]
# And do they move in the same way? A row is the place where a step begins, a column the place where it ends. The
# diagonal shows the steps from a place to the same place.

# %%
transition_matrices(passed, train)

# %% [markdown]
# Do not trust the pictures alone; compare numbers, too.


# %%
def share_at_work(traces):
    """Share of the events from 14 to 16 h that are at an office, a university or a hospital."""
    category = traces.places.category[traces.place[traces.slot == 7]]
    return np.isin(category, ["office", "university", "hospital"]).mean()


def places_per_day(traces):
    """How many different places a user visits in a day, on average."""
    events = traces.to_frame()
    return events.groupby(["user", events["instant"] // 24])["place"].nunique().mean()


sets = {"training": train, **released}
pd.DataFrame(
    {
        "at work from 14 to 16 h": {name: share_at_work(each) for name, each in sets.items()},
        "places in a day": {name: places_per_day(each) for name, each in sets.items()},
    }
).round(2)

# %% [markdown]
# With the bridge, about as many synthetic people are at work as real people, and they visit about as many places in a
# day. With PPMTF, only half as many people are at work, and a user visits many more places. But the traces of the
# bridge, too, lose the habits that only one person has.
#
# The notebook `which_synthesizer` continues from here: it shows which traces suit which purpose, and what they cost in
# privacy.
#
# ## 7. Your own data
#
# Give `read_checkins` a table and the names of its columns. The table can be a pandas DataFrame or a file (CSV or
# Parquet). Here is a small table, made from the city.

# %%
start = pd.Timestamp("2024-01-01")
events = traces.to_frame().merge(places, on="place")
mine = pd.DataFrame(
    {
        "who": events["user"],
        "when": start + pd.to_timedelta(events["instant"], unit="h"),
        "venue": events["place"],
        "lat": events["latitude"],
        "lon": events["longitude"],
    }
)
columns = {"user": "who", "time": "when", "place": "venue", "latitude": "lat", "longitude": "lon"}
own_traces, report = read_checkins(mine, columns, time_zone="Europe/Berlin")
print(report)

# %% [markdown]
# Then continue as above: split, fit, synthesize, test, evaluate. If anything is wrong with the table, the error lists
# all problems at once.
#
# ## 8. Release
#
# Everything made so far is secret, the model and the verdicts included. A *release* is not secret: it contains the
# traces that passed, with new ids in a random order, and nothing that says from whom they were made. The *key*, a
# separate folder, says which id belongs to which user.
#
# A place that only one household visits says who is there. So by default a release needs five training users at each
# visited place, and an import keeps no others. Two places of this city have only three and four; it is not real, so we
# allow them.

# %%
folder = Path(tempfile.mkdtemp())
release = plan_release(synthetic, verdicts, min_users_per_place=3)
write_release(release, folder / "release", folder / "key")
sorted(path.name for path in (folder / "release").iterdir())

# %% [markdown]
# The files of traces, places and time grid are the same as in every trace set. `ppmtf.json` says what the folder is.
# `PRIVACY.txt` says on one screen what is promised and what is not. Read it before you hand anything out.
# `PRIVACY_DETAILS.txt` has all of it in full, and how the traces were made.

# %%
print((folder / "release" / "PRIVACY.txt").read_text())

# %% [markdown]
# The key stays with you; only you can read its folder. You need it to evaluate the release once more.

# %%
pd.read_parquet(folder / "key" / "key.parquet").head()

# %% [markdown]
# Look at the attacks, and at the traces, before you release anything. `ppmtf demo` runs all these steps with one
# command, and the README shows the command of each step.
