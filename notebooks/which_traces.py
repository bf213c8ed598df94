# %% [markdown]
# # Which traces can I use?
#
# This notebook compares two ways to make synthetic traces, on the same data and after the same privacy test:
#
# * **PPMTF**, the published method: a chain for each user, from a factorization of all users' counts.
# * The **bridge**, the default of `fit`: users form clusters of at least 20. From each cluster, the bridge makes traces
#   of synthetic people, who have a home and go back to their places.
#
# The notebook looks at the uses of traces one by one: where people are, how far they go, from where to where, and how
# long they stay. Then it shows what the traces cost in privacy.

# %%
# Only in Google Colab: install the library.
import subprocess
import sys

if "google.colab" in sys.modules:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "ppmtf_jax"], check=True)

# %%
# %matplotlib inline
import os
from pathlib import Path

import numpy as np
import pandas as pd
import rich

from ppmtf_jax import PPMTFSettings, evaluate, fit, plausible_deniability_test, synthesize, toy_city
from ppmtf_jax.datasets import Discretization, read_foursquare, read_people_flow
from ppmtf_jax.evaluation import format_table
from ppmtf_jax.evaluation.plots import flow_maps, jump_length_curves, population_maps

# %% [markdown]
# ## 1. The data
#
# If you have no data, the notebook uses a simulated city. If you have real data, give their folder in `folder`, or in
# the environment variable `PPMTF_DATA`: the people flow of Tokyo (`POI_TK.csv`, `traintraces_TK.csv` and so on), or the
# Foursquare check-ins of New York (`dataset_TSMC2014_NYC.txt`). The text holds for all three data sets. The numbers and
# pictures show your data.

# %%
folder = os.environ.get("PPMTF_DATA", "")

published = PPMTFSettings()
if not folder:
    train, test = toy_city(n_users=500, n_places=40, seed=0).traces.split_users(0.8, seed=0)
    # This city has many homes, so zeros get less weight. For a first look, 50 sweeps are enough.
    published = PPMTFSettings(zeros="weighted", n_zeros=300, n_sweeps=50)
elif any(Path(folder).glob("POI_*")):
    train, test = read_people_flow(folder)
else:
    # As in the papers, keep also places that only one person visits. Such traces must not be released.
    every_place = Discretization(min_users_per_place=1)
    train, test = read_foursquare(folder, discretization=every_place)[0].split_users(0.8, seed=0)
print(f"{train.n_users} training and {test.n_users} test users, {train.n_places} places, {train.n_events} events")

# %% [markdown]
# ## 2. Two sets of traces
#
# Both models are learned from the training users and make one trace for each of them. All traces take the same test of
# plausible deniability: a trace passes if at least 10 users could have made it about equally well. Only traces that
# pass are released, and the rest of the notebook looks only at these.

# %%
models = {"bridge": fit(train), "PPMTF": fit(train, "ppmtf", published)}
released = {}
for name, model in models.items():
    synthetic = synthesize(model, traces_per_user=1)
    verdicts = plausible_deniability_test(model, synthetic, k=10, eta=1.0)
    released[name] = synthetic.select_traces(verdicts.passed)
    print(f"{name}: {verdicts.passed.sum()} of {len(verdicts.passed)} traces passed.")

# %% [markdown]
# All traces of the bridge pass: the probability of a trace depends only on the cluster, so all users of the cluster
# could have made it. Many traces of PPMTF are withheld. The remaining traces are not a representative sample: only
# traces that resemble many users passed.
#
# ## 3. The table
#
# Every number compares the traces with those of the *test* users, whose data no model used. *Training* shows the real
# traces of the training users: this is about the best possible value. *Uniform* shows random places. A dagger marks a
# number that says little on these data.

# %%
evaluation = evaluate(released, train, test)
rich.print(format_table(evaluation))

# %% [markdown]
# ## 4. What do you want to do with them?
#
# This table sorts the same numbers by use.

# %%
questions = {
    "tp_tv": "Where are people at which time of the day?",
    "group_tv": "And the people of a neighbourhood?",
    "jump_tv": "How far do they go?",
    "od_tv": "From where to where?",
    "stay_difference": "How often do they stay where they are?",
    "move_interval_w1_h": "For how long?",
    "distinct_w1": "How many places does one see in a day?",
    "top_place_w1": "How much of the day is one at the main place?",
    "radius_w1_km": "How far from the middle of the day's places is one?",
}
rows = {row.quantity.name: row for row in evaluation.rows}


def nearer(name):
    """Which of the two is nearer to the test users."""
    quantity = rows[name].quantity
    bridge, ppmtf = (evaluation.value(name, column) for column in released)
    if quantity.prefers(bridge, ppmtf):
        return "bridge"
    return "PPMTF" if quantity.prefers(ppmtf, bridge) else "-"


pd.DataFrame(
    [[question, rows[name].title, *rows[name].texts(), nearer(name)] for name, question in questions.items()],
    columns=["question", "number", *evaluation.columns, "nearer"],
).set_index("question")

# %% [markdown]
# The first six numbers measure what people have in common. The bridge was designed for them: in every slot the
# distribution of a cluster over places is right, and from one slot to the next the cluster moves as people do. The last
# three numbers measure the day of a single person: people of the bridge remember where they were, and people of PPMTF
# do not. The notebook `people_who_remember` compares days and weeks of persons.
#
# ### Where people are
#
# A column is a time of the day. Good synthetic traces change from one column to the next as the first two rows do.

# %%
population_maps(released, train, test)

# %% [markdown]
# ### How far they go
#
# The curves show the share of moves of each length; note that the axis is logarithmic. PPMTF moves too far. It knows
# roughly which places a user visits and which place follows another, but not that the next place is mostly a near one.

# %%
jump_length_curves({"training": train, "test": test, **released})

# %% [markdown]
# ### From where to where
#
# The widest arrows are the largest flows. If there are few data, training and test users differ too.

# %%
flow_maps({"training": train, "test": test, **released})

# %% [markdown]
# ### How long they stay
#
# PPMTF proposes a next place and may refuse it; then the trace stays at its place. So the share of stays depends on how
# many proposals were refused, not on how often people stay. *Stay difference* above is the share of synthetic steps
# that stay, minus that of real people: below 0 the synthetic people move too often, above 0 they stay too often.
#
# ## 5. What does it cost?
#
# The attacker of the table knows all real traces. *Re-identification*: from whose trace was this one made?
# *Membership*: was this person among the training users at all? Compare the membership advantage with its value by
# chance.

# %%
attacks = ["n_attacked", "reid_rate", "mia_advantage", "mia_chance"]
pd.DataFrame(
    {rows[name].quantity.title: [evaluation.value(name, column) for column in evaluation.columns] for name in attacks},
    index=evaluation.columns,
).round(3)

# %% [markdown]
# In the real traces the attacker finds half of the users or more; in the synthetic traces, at most a few in a hundred.
# Watch the membership advantage of both systems: in our runs it was between the value by chance and three or four times
# this value, and it differed from run to run. So run the attack on your data more than once.
#
# The privacy test cannot compare the two systems. It compares users, and the users of a cluster are equal, so each
# trace of the bridge passes whatever it shows. The test says nothing about what a *cluster* gives away, which is
# everything that its users have in common. The table below shows the smallest clusters, and the place where their
# synthetic traces are most often. Where the two numbers agree, a person who sees these traces learns something about
# the people of the cluster, twenty or more of them together.

# %%
cluster = np.asarray(models["bridge"].trace_model.cluster)
n_users = np.bincount(cluster)


def shares(traces):
    """The part of each cluster's events that is at each place, in percent."""
    user = pd.Index(train.user_ids).get_indexer(traces.user_ids)
    counts = np.zeros((len(n_users), train.n_places))
    np.add.at(counts, (cluster[user][traces.user], traces.place), 1)
    return 100 * counts / counts.sum(axis=1, keepdims=True)


made, real = shares(released["bridge"]), shares(train)
top = made.argmax(axis=1)
each = np.arange(len(top))
everybody = 100 * np.bincount(train.place, minlength=train.n_places) / train.n_events
columns = {
    "users": n_users,
    "place": train.places.ids[top],
    "their traces are there, %": made[each, top],
    "they are there, %": real[each, top],
    "everybody is there, %": everybody[top],
}
pd.DataFrame(columns).rename_axis("cluster").sort_values("users").head(5).round(1)

# %% [markdown]
# Is that harmless? If a cluster contains the people of a neighbourhood, probably yes. If it contains all people who go
# to one clinic, no. You have to judge this; no number here does it for you.
#
# ## 6. More people in a cluster
#
# `min_cluster_users` is the setting that trades utility for privacy: a smaller cluster describes its neighbourhood
# better, and gives more of it away. Keep it at the `k` of the test or above, otherwise traces may be withheld. The
# other setting, `n_clusters`, is the number of clusters to look for. It is chosen from the data unless you give it;
# fewer clusters are larger. The models of this table have no memory (`memory="none"`), because their fit takes less
# time. Their clusters are the same as those of models with a memory.

# %%
swept = {}
n_clusters = {}
for size in (10, 20, 50):
    model = fit(train, min_cluster_users=size, memory="none")
    n_clusters[str(size)] = len(np.unique(np.asarray(model.trace_model.cluster)))
    swept[str(size)] = synthesize(model, traces_per_user=1)
sweep = evaluate(swept, train, test)
pd.DataFrame(
    {
        "clusters": n_clusters,
        **{
            rows[name].quantity.title: {size: sweep.value(name, size) for size in swept}
            for name in ("group_tv", "tp_tv", "od_tv", "reid_rate", "mia_advantage", "mia_chance")
        },
    }
).rename_axis("at least").round(3)

# %% [markdown]
# With at least 50 users in a cluster there are fewer clusters than with 10, and they usually describe a neighbourhood
# less well (*Group-TV* is larger). The population as a whole and its flows hardly change. *Re-identification* falls,
# and more people share what a trace shows. The membership advantage need not fall: it asks whether somebody was in the
# data at all, not in which cluster. Clusters and traces are drawn at random, so numbers differ from run to run: try
# more than once.
#
# ## 7. Which traces, then?
#
# * **Population, flows, distances, stays**: the bridge. All its traces pass the privacy test.
# * **One person's day** (how many places she visits, how long she is at the main one): the bridge too, if `fit` chose
#   a memory. If it chose none, look at the table.
# * **A group whose existence is a secret**: larger clusters, or no release.
# * **To compare with the literature**: PPMTF, `fit(train, "ppmtf")`.
#
# None of this is differential privacy. Look at the attacks and at the traces before you release anything.
