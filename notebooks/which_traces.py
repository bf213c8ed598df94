# %% [markdown]
# # Which traces can I use?
#
# Two ways to make synthetic traces, side by side, on the same data and after the same privacy test:
#
# * **PPMTF**, the published method: a chain for each user, from a factorization of what she did.
# * The **bridge**, which `fit` uses unless told otherwise: users in clusters of at least 20, a chain for each cluster.
#
# Each is good at something else. This notebook looks at what people want of traces, one thing after the other: where
# people are, how far they go, from where to where, how long they stay. Then at what it costs in privacy.

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
from ppmtf_jax.evaluation.plots import flow_maps, jump_length_curves, population_maps
from ppmtf_jax.evaluation.tables import format_table

# %% [markdown]
# ## 1. The data
#
# Without any data, a simulated city. With a folder of real ones, say so in `folder`, or in the environment variable
# `PPMTF_DATA`: that of the people flow of Tokyo (`POI_TK.csv`, `traintraces_TK.csv` and so on), or one with the
# Foursquare check-ins of New York (`dataset_TSMC2014_NYC.txt`). What the text says holds for all three. The numbers and
# pictures are those of your data.

# %%
folder = os.environ.get("PPMTF_DATA", "")

published = PPMTFSettings()
if not folder:
    train, test = toy_city(n_users=600, seed=0).traces.split_users(0.8, seed=0)
    # Homes are many here, so zeros are given less weight; and 50 sweeps do for a look.
    published = PPMTFSettings(zeros="weighted", n_zeros=300, n_sweeps=50)
elif any(Path(folder).glob("POI_*")):
    train, test = read_people_flow(folder)
else:
    # Also places that one person alone visits, as in the papers: to look at, not to release.
    every_place = Discretization(min_users_per_place=1)
    train, test = read_foursquare(folder, discretization=every_place)[0].split_users(0.8, seed=0)
print(f"{train.n_users} training and {test.n_users} test users, {train.n_places} places, {train.n_events} events")

# %% [markdown]
# ## 2. Two sets of traces
#
# Both are learned from the training users, make one trace for each of them, and take the same test of plausible
# deniability: a trace passes if at least 10 users could have made it about equally well. Only what passes is released,
# and only that is looked at below.

# %%
models = {"bridge": fit(train), "PPMTF": fit(train, "ppmtf", published)}
released = {}
for name, model in models.items():
    synthetic = synthesize(model, traces_per_user=1)
    verdicts = plausible_deniability_test(model, synthetic, k=10, eta=1.0)
    released[name] = synthetic.select_traces(verdicts.passed)
    print(f"{name}: {verdicts.passed.sum()} of {len(verdicts.passed)} traces passed.")

# %% [markdown]
# Of the bridge all pass. The users of a cluster share one chain, so what one of them could have made, all could. Of
# PPMTF many are withheld, and what is left is not a fair sample: it is what is not special.
#
# ## 3. The table
#
# Every number compares the traces with those of the *test* users, whom nobody learned from. *Training* is the real
# traces of the training users: about what can be hoped for. *Uniform* is every place at random. A dagger marks a number
# that says little on these data.

# %%
evaluation = evaluate(released, train, test)
rich.print(format_table(evaluation))

# %% [markdown]
# ## 4. What do you want to do with them?
#
# The same numbers, by what they are good for.

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
rows = {row.quantity.name: row for row in evaluation.rows()}


def nearer(name):
    """Which of the two is nearer to the test users."""
    quantity = rows[name].quantity
    bridge, ppmtf = (evaluation.value(name, column) for column in released)
    if quantity.prefers(bridge, ppmtf):
        return "bridge"
    return "PPMTF" if quantity.prefers(ppmtf, bridge) else "-"


pd.DataFrame(
    [
        [question, rows[name].title, *map(rows[name].quantity.text, rows[name].values), nearer(name)]
        for name, question in questions.items()
    ],
    columns=["question", "number", *evaluation.columns, "nearer"],
).set_index("question")

# %% [markdown]
# The first six belong to what people have in common, and there the bridge is nearer. It was made for that: in every
# slot a cluster has the population that it should have, and from one slot to the next it moves as people do. The last
# three belong to what is one person's own day. There the bridge has no advantage by design, since twenty people or more
# share one chain: which of the two is nearer depends on the data.
#
# ### Where people are
#
# A column is a time of the day. A good copy changes from one column to the next as the first two rows do.

# %%
population_maps(released, train, test)

# %% [markdown]
# ### How far they go
#
# The share of the moves of each length; mind that the axis is logarithmic. PPMTF moves too far. It knows which places a
# user has and which place follows which, both blurred, but not that the next place is mostly a near one.

# %%
jump_length_curves({"training": train, "test": test, **released})

# %% [markdown]
# ### From where to where
#
# The widest arrows are the largest flows. Training and test users differ too where the data are few.

# %%
flow_maps({"training": train, "test": test, **released})

# %% [markdown]
# ### How long they stay
#
# PPMTF proposes a next place and may refuse it; then the trace stays. So how often people stay is not what was learned
# but what was refused. *Stay share* above is how many more of the steps stay than of real people's: below 0 the traces
# are restless, above 0 they stand still where people go on.
#
# ## 5. What does it cost?
#
# The attacker of the table knows all real traces. *Re-identification*: whose trace is this one made from?
# *Membership*: was this person among the training users at all? To be compared with what it is by chance.

# %%
attacks = ["n_attacked", "reid_rate", "mia_advantage", "mia_chance"]
pd.DataFrame(
    {rows[name].quantity.title: [evaluation.value(name, column) for column in evaluation.columns] for name in attacks},
    index=evaluation.columns,
).round(3)

# %% [markdown]
# From the real traces the attacker finds half of the users or more, from the synthetic ones a few in a hundred at most.
# Membership is what to watch, of both: in our runs it was anything from chance to three or four times as much, and
# differed from run to run. Try yours more than once.
#
# The privacy test does not tell the two apart. It compares users, and those of a cluster are equal, so that each trace
# of the bridge passes whatever it shows. It says nothing of what a *cluster* gives away: all that its users have in
# common. Here are the smallest clusters, and the place where the traces made from them are most. Where the two
# numbers agree, whoever sees these traces has learned something of these people, about twenty or more of them together.

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
# Is that harmless? Where a cluster is the people of a neighbourhood, probably. Where it is all who go to one clinic,
# not. That is for you to judge, and no number here does it for you.
#
# ## 6. More people in a cluster
#
# `min_cluster_users` is the setting that turns use against privacy: fewer people in a cluster know more of their
# neighbourhood, and give more of it away. Keep it at `k` of the test or above, else traces may be withheld. The other
# setting, `n_clusters`, is how many clusters are looked for; it is chosen from the data unless you give it, and fewer
# clusters are larger ones.

# %%
swept = {}
n_clusters = {}
for size in (10, 20, 50):
    model = fit(train, min_cluster_users=size)
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
# With 50 there are fewer clusters than with 10, and as a rule they know less of a neighbourhood (*Group-TV* is larger).
# The population of the whole and its flows hardly change. *Re-identification* falls, and whatever a trace shows is
# common to more people. Membership need not fall: it asks whether somebody was in the data at all, and not in which
# cluster. Clusters and traces are drawn at random, so numbers differ from run to run: try more than once.
#
# ## 7. So which?
#
# * **Population, flows, distances, stays**: the bridge. And all of its traces can be released.
# * **One person's day** (how many places, how much of it at the main one): look at the table of your data.
# * **A group whose secret is that it is a group**: larger clusters, or no release.
# * **To compare with the literature**: PPMTF, `fit(train, "ppmtf")`.
#
# None of this is differential privacy. Look at the attacks and at the traces before you release anything.
