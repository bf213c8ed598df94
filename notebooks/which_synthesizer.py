# %% [markdown]
# # Which synthesizer?
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# The button opens Colab; upload this notebook there.
#
# All synthesizers of the library learn from the same data here. You see which statistics of real traces each of them
# keeps, for which use its traces are good, what they reveal, and how its settings trade one for the other. The panels
# of section 3 are those of the PPMTF paper (Murakami et al. 2021, Fig. 7).

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
import pandas as pd

from ppmtf_jax import compare, fit, synthesize, toy_city
from ppmtf_jax.datasets import read_people_flow
from ppmtf_jax.evaluation.plots import flow_maps, jump_length_curves, trade_offs

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
    ppmtf, ppmtf_with_settings = "ppmtf", ("ppmtf",)
else:
    train, test = toy_city(n_users=250, n_places=50, n_days=1, missing=0.0, seed=0).traces.split_users(0.6, seed=0)
    # Zeros are given less weight in a city this small, and 40 sweeps do for a look.
    ppmtf = "ppmtf zeros=weighted n_zeros=300 n_sweeps=40"
    ppmtf_with_settings = "ppmtf", {"zeros": "weighted", "n_zeros": 300, "n_sweeps": 40}
print(f"{train.n_users} training and {test.n_users} test users, {train.n_places} places, {train.n_events} events")

# %% [markdown]
# ## 2. What do you want to do with them?
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
# `compare` does all the work: it fits each system, makes traces, tests, attacks and measures them. On the command line,
# use `ppmtf compare`. The first six rows of the table measure what people have in common, the next three the day of a
# single person. All compare with the test users: lower is better, and differences are best near 0. The last rows are
# about privacy, and the last column names the nearest system.

# %% tags=["noise"]
systems = {
    "bridge": "bridge",
    "ppmtf": ppmtf,
    "sgd": "sgd",
    "sgd, 2 copied": "sgd n_copied=2",
    "sglt": "sglt remove_true_prob=0.4",
    "tpm": "tpm",
}
found = compare(train, test, list(systems.values()), n_seeds=1, traces_per_user=1).mean()
questions = {
    "tp_tv": "Where are people at which time?",
    "group_tv": "And the people of a neighbourhood?",
    "jump_tv": "How far do they go?",
    "od_tv": "From where to where?",
    "stay_difference": "How often do they stay?",
    "move_interval_w1_h": "For how long?",
    "distinct_w1": "How many places does one see in a day?",
    "top_place_w1": "How much of the day at the main place?",
    "radius_w1_km": "How far from the middle of these places?",
    "reid_rate": "From whom was a trace made?",
    "mia_advantage": "Was somebody in the data?",
    "mia_chance": "... found by chance",
}
quantities = {row.quantity.name: row.quantity for row in found.rows}


def nearest(name):
    """The first of the systems whose number is best."""
    best = found.columns[0]
    for other in found.columns[1 : len(systems)]:
        if quantities[name].prefers(found.value(name, other), found.value(name, best)):
            best = other
    return list(systems)[found.columns.index(best)]


rows = [[*(found.value(name, each) for each in found.columns), nearest(name)] for name in questions]
rows[-1][-1] = ""  # chance prefers nobody
names = [*systems, *found.columns[len(systems) :], "nearest"]
pd.DataFrame(rows, columns=names, index=list(questions.values())).round(2)

# %% [markdown]
# In a city as small as this, one matrix for everybody says nearly all about the crowd, and two copied events put each
# synthetic person into the right quarter: so SGD is near in the first rows. But whoever knows these two events knows
# whose trace it is, and its people have no places of their own, as the rows about single persons show.
#
# The curves show the share of moves of each length; the axis is logarithmic. PPMTF knows which places a user visits and
# which place follows another, but not that the next place is mostly a near one: on the people flow of Tokyo, its moves
# are much too long. On the maps, the widest arrows are the largest flows.

# %%
models = {"bridge": fit(train), "PPMTF": fit(train, *ppmtf_with_settings)}
made = {name: synthesize(model, traces_per_user=1) for name, model in models.items()}
jump_length_curves({"training": train, "test": test, **made})

# %%
flow_maps({"training": train, "test": test, **made})

# %% [markdown]
# ## 3. Utility against privacy
#
# Most systems have a setting that trades utility for privacy. The best place in each panel is at the lower left: near
# the real population, moves or habits, and hard to attack.

# %%
# Settings of each system, from the least to the most private.
lines = {
    "bridge, users of a cluster": [f"bridge memory=none min_cluster_users={n}" for n in (10, 50)],
    "PPMTF, noise precision": [f"{ppmtf} noise_precision={alpha}" for alpha in (200, 2, 0.5)],
    "SGD, copied events": [f"sgd n_copied={n}" for n in (4, 2, 0)],
    "SGLT, true places removed": [f"sglt remove_true_prob={share}" for share in (0, 0.4, 1)],
}
swept = compare(train, test, [each for line in lines.values() for each in line], n_seeds=1, traces_per_user=1).mean()
columns_left = iter(swept.columns)
utility, privacy = ["tp_tv", "tm_emd_y", "vf_tv"], ["reid_rate", "mia_advantage"]
trade_offs(
    {
        label: {name: [swept.value(name, column) for column in columns] for name in utility + privacy}
        for label, columns in ((label, [next(columns_left) for _ in line]) for label, line in lines.items())
    },
    [quantities[name] for name in utility],
    [quantities[name] for name in privacy],
    references={
        column: {name: found.value(name, column) for name in utility + privacy} for column in ("tpm", "training")
    },
)

# %% [markdown]
# Traces of the bridge, and of SGD without copied events, do not depend on one real trace more than on others: so nobody
# can say from whom they were made. SGLT starts from a real trace, so its traces are re-identified until most true
# places are removed. The table shows the weaknesses of SGD and PPMTF: SGD knows no neighbourhoods, and PPMTF refuses
# moves that people make.
#
# ## 4. What a cluster gives away
#
# No number above compares the privacy of a group. The users of a cluster of the bridge are equal to the model, so each
# of its traces passes the privacy test, and shows what they have in common. Here are the smallest clusters, and the
# place where their synthetic traces are most often. Where the two shares agree, a person who sees the traces learns
# something about the people of the cluster, twenty or more of them together.

# %%
cluster = np.asarray(models["bridge"].trace_model.cluster)
n_users = np.bincount(cluster)


def shares(traces):
    """The part of each cluster's events that is at each place, in percent."""
    user = pd.Index(train.user_ids).get_indexer(traces.user_ids)
    counts = np.zeros((len(n_users), train.n_places))
    np.add.at(counts, (cluster[user][traces.user], traces.place), 1)
    return 100 * counts / counts.sum(axis=1, keepdims=True)


of_traces, of_people = shares(made["bridge"]), shares(train)
top, each = of_traces.argmax(axis=1), np.arange(len(n_users))
columns = {
    "users": n_users,
    "place": train.places.ids[top],
    "their traces are there, %": of_traces[each, top],
    "they are there, %": of_people[each, top],
    "everybody is there, %": 100 * np.bincount(train.place, minlength=train.n_places)[top] / train.n_events,
}
pd.DataFrame(columns).rename_axis("cluster").sort_values("users").head(4).round(1)

# %% [markdown]
# Is that harmless? If a cluster contains the people of a neighbourhood, probably yes. If it contains all people who go
# to one clinic, no. You have to judge this; no number here does it for you.

# %% [markdown]
# ## 5. Which synthesizer, then?
#
# * **Crowds, groups and single persons at once**: the bridge. All its traces pass the privacy test.
# * **A group whose existence is a secret**: the bridge with larger clusters, or no release.
# * **A guarantee that holds whatever an attacker knows**: `private`, see the notebook `traces_with_a_proof`.
# * **To compare with the literature**: `ppmtf`, `sgd` and `sglt`, as published.
#
# To find the best synthesizer for your data, compare them on it: `ppmtf compare train test --out compared`. Attack the
# traces, and look at them, before you release anything.
