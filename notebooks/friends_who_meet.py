# %% [markdown]
# # Friends who meet
#
# Traces that are made one by one have no friends in them: nobody waits for anybody, and two who live together are never
# at home together. `synthesize_colocations` makes people who are friends and meet, under differential privacy, after
# Narita et al. 2021. This notebook looks at who meets where and when, in real traces and in synthetic ones, and at what
# privacy costs.

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
from matplotlib.figure import Figure

from ppmtf_jax import Evaluation, InputError, evaluate, toy_city
from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friend_graph import FriendGraph
from ppmtf_jax.colocation.metrics import colocation_rates
from ppmtf_jax.colocation.statement import privacy_statement
from ppmtf_jax.colocation.synthesizer import synthesize_colocations
from ppmtf_jax.datasets import Discretization, MostVisited, read_gowalla
from ppmtf_jax.evaluation.plots import friend_panels
from ppmtf_jax.evaluation.tables import format_table

# %% [markdown]
# ## 1. The data
#
# Without any data, one day of a simulated city, whose people have friends: mostly neighbours who do the same all day.
# Half of the people are put aside. Nothing is learned from them, and all is compared with them. A friendship between
# the two halves is cut, so that everybody has half as many friends as before.
#
# With a folder of the Gowalla check-ins of New York (`loc-gowalla_totalCheckins_NYC.txt.gz`,
# `loc-gowalla_edges_NYC.txt.gz`), give it in `folder`, or in the environment variable `PPMTF_DATA`. People check in
# now and then only, so that two friends are hardly ever seen at the same time: less than one meeting a day in the whole
# city. There the number of meetings to make is given; in the simulated city it is taken from the data.

# %%
folder = Path(os.environ.get("PPMTF_DATA", ""))
checkins, edges = ([*folder.glob(f"loc-gowalla_{name}*")][:1] for name in ("totalCheckins", "edges"))

if checkins and edges:
    discretization = Discretization(places=MostVisited(200), min_users_per_place=1)
    traces, _ = read_gowalla(checkins[0], edges[0], time_zone="America/New_York", discretization=discretization)
    # No kinds of places are known, and a person has a few events.
    settings = {"mechanism": "laplace", "n_colocations": 1000}
else:
    traces = toy_city(n_users=3000, n_places=100, n_days=1, missing=0.0, seed=0).traces
    settings = {"max_events": 24, "max_transitions": 24}
train, test = traces.split_users(0.5, seed=0)
for name, each in {"training": train, "test": test}.items():
    rates = colocation_rates(each, FriendGraph.of(each))
    print(f"{name}: {each.n_users} users, {len(each.friendships)} friendships. Of the times at which both are seen,")
    print(f"  two friends are at one place in {rates.friends:.1%}, two strangers in {rates.strangers:.1%}.")

# %% [markdown]
# Friends meet many times as often as strangers. When, where, how often, and how many friends people have, of both
# halves:

# %%
friend_panels({"training": train, "test": test})

# %% [markdown]
# How far the two halves of one city are apart is chance; what differs more from them below is not. In the simulated
# city friends meet at home and at night, since many of them live at one place. A good part of the friends never meet
# that day, and others are together most of it.
#
# ## 2. Synthetic friends
#
# Four things are learned, each as a noisy number or table, and nothing else is seen of the data:
#
# 1. how many people have how many friends;
# 2. how many friends are where at which hour;
# 3. how many meetings there are in all;
# 4. from where to where people go in between (the TPM).
#
# Then people are invented, who stand for nobody. They become friends at random, meetings are drawn, and what is between
# them is filled in. Each of the four has the same privacy budget here: .1, which is strict, 1, and 10, which is so weak
# that it shows little more than what the method itself can do. The noise has no seed. It is new each time you run this.

# %%
MAX_FRIENDS = 20
made = {}


def budgets(epsilon):
    """The same for each of the four parts."""
    return {f"epsilon_{part}": epsilon for part in ("friendship", "colocation", "number", "moves")}


for epsilon in (0.1, 1.0, 10.0):
    try:
        made[f"epsilon {epsilon:g}"] = synthesize_colocations(
            train, graph_model="configuration", max_degree=MAX_FRIENDS, **budgets(epsilon), **settings
        )
    except InputError as error:
        # With little budget the noise may tell of more meetings than friends have time for.
        print(f"epsilon {epsilon:g}: {error}")
for name, each in made.items():
    print(f"{name}: {each.traces.n_users} people, {len(each.traces.friendships)} friendships")

# %% [markdown]
# What it cost is written down: every use of the data, its budget, and by how much one person could have changed it.

# %%
(relation,) = privacy_statement(next(iter(made.values())))["ledger"]["relations"]
pd.DataFrame(relation["mechanisms"])[["mechanism", "epsilon", "sensitivity"]]

# %% [markdown]
# ## 3. When, where, how often
#
# The same picture as above, of the synthetic friends beside the training half.

# %%
friend_panels({"training": train} | {name: each.traces for name, each in made.items()})

# %% [markdown]
# * **How many friends** people have comes out with a budget of 1. With .1 it is rough.
# * **When**: at any hour alike. That is not the noise: as published, the hour of a meeting is drawn uniformly.
# * **At what kind of place**: smeared over all of them. As published, the least count of an hour is set to 0 and all
#   others are raised with it, so that noise on places where nobody meets looks like meetings.
# * **How often**: on average right, but the same for all. Real friends are of two kinds, some of whom are together
#   nearly all day. That two friends are closer than others is not among the four things that are learned.
#
# ## 4. In numbers
#
# `evaluate` compares with the test half. *Friends meet* is how much more often synthetic friends meet than real ones,
# *Friends over strangers* by how many doublings they meet more often than strangers do, beyond what real ones do.
# *Clustering* is how much more often two friends of somebody are friends themselves. For these three, 0 is right. The
# others are total variations: 0 is right and 1 has nothing in common. *Uniform* is people anywhere at any hour, and
# all of them as likely to be friends.

# %%
FRIEND_ROWS = ["friend_rate", "stranger_rate", "friend_lift", "meeting_slot_tv", "meeting_category_tv"]
FRIEND_ROWS += ["pair_meetings_tv", "friends_tv", "clustering"]
OTHER_ROWS = ["tp_tv", "stay_difference", "mia_advantage", "mia_chance", "reid_rate"]

evaluation = evaluate({name: each.traces for name, each in made.items()}, train, test)
shown = [row for row in evaluation.rows() if row.quantity.name in FRIEND_ROWS + OTHER_ROWS]
rich.print(format_table(Evaluation.of_rows(evaluation.columns, shown)))

# %% [markdown]
# There is no re-identification rate. A synthetic person stands for nobody, so that there is nobody to find; whether
# somebody was among the training users can still be asked (*Membership*), and differential privacy bounds the answer.
# *TP-TV* and *Stay share* are of all events, whether friends meet there or not. They are poor, for most of the day is
# filled in from one noisy table of moves: who needs good single traces and no friends takes the bridge (see *Which
# synthesizer?*).
#
# *Friends over strangers* is above 0, not since friends meet too often but since strangers meet too rarely: noisy moves
# lead anywhere.
#
# *Clustering* is lost at any budget: friends are drawn at random, so that the friends of a friend are strangers.
#
# On check-ins *Friends meet* is far below 0, whatever the budget. Who checks in at the same hour as a friend mostly
# does so because they are together; synthetic people are seen at every hour, and in most of them friends are apart. The
# metrics take the hours that people are seen at from the real data, but not that being seen has to do with meeting.
#
# ## 5. Taking the counts at their word
#
# With `meetings="by-counts"` hours and places are drawn in proportion to the noisy counts, after what noise has put on
# places where nobody meets is taken off again. Where counts stand above the noise this is better.

# %%
by_counts = {}
for epsilon in (1.0, 10.0):
    try:
        by_counts[f"by counts, epsilon {epsilon:g}"] = synthesize_colocations(
            train,
            graph_model="configuration",
            max_degree=MAX_FRIENDS,
            meetings="by-counts",
            **budgets(epsilon),
            **settings,
        )
    except InputError as error:
        print(f"epsilon {epsilon:g}: {error}")
last = {name: made[name] for name in [*made][-1:]}
compared = {"training": train} | {name: each.traces for name, each in (last | by_counts).items()}
friend_panels(compared)

# %% [markdown]
# On a map: the larger a dot, the more of the meetings of friends are there.

# %%
places = train.places

figure = Figure(figsize=(3.2 * len(compared), 3.1), layout="constrained")
axes = figure.subplots(1, len(compared), sharex=True, sharey=True, squeeze=False)[0]
for ax, (name, each) in zip(axes, compared.items(), strict=True):
    met = np.asarray(find_colocations(each, FriendGraph.of(each)).counts().sum(axis=0)).ravel()
    ax.scatter(places.longitude, places.latitude, s=3, color="#BBBBBB", lw=0)
    ax.scatter(places.longitude, places.latitude, s=4000 * met / met.sum(), color="#0072B2", alpha=0.5, lw=0)
    ax.set(title=name, xticks=[], yticks=[], aspect=1 / np.cos(np.radians(places.latitude.mean())))
figure

# %% [markdown]
# With a budget of 10, meetings are nearer to where and when they should be. With 1, in a city as small as this one,
# there are places that owe their meetings to the noise alone, and hours too: that is why it is not the default. More
# people help as a larger budget does. Counts grow with their number, and the noise does not.
#
# ## 6. So what can I use them for?
#
# * **How many friends people have, and how often friends meet**, on average, or as a test bed for programs that need
#   people who meet: yes, with budgets of about 1.
# * **Where and when friends meet**: with `meetings="by-counts"`, many people or a large budget. Look at the counts.
# * **Friends of friends, close and distant friends**: no. None of it is learned.
#
# On the command line it is `ppmtf colocate train --out friends`, then `ppmtf evaluate friends --train train --test
# test`.
