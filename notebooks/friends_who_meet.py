# %% [markdown]
# # Friends who meet
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# The button opens Colab; upload this notebook there.
#
# If synthetic traces are made one by one, they contain no friends: nobody waits for anybody, and two people who live
# together are at home at unrelated times. `synthesize_colocations` makes people who are friends and meet, under
# differential privacy, after Narita et al. 2022. This notebook shows where, when and how often friends meet, in real
# traces and in synthetic ones, and what privacy costs.

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
from pathlib import Path

import numpy as np
import pandas as pd
import rich
from matplotlib.figure import Figure

from ppmtf_jax import Evaluation, InputError, evaluate, toy_city
from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.colocation.statement import privacy_statement
from ppmtf_jax.colocation.synthesizer import synthesize_colocations
from ppmtf_jax.datasets import Discretization, MostVisited, read_gowalla
from ppmtf_jax.evaluation import format_table
from ppmtf_jax.evaluation.metrics.friends import Encounters
from ppmtf_jax.evaluation.plots import friend_panels

# %% [markdown]
# ## 1. The data
#
# If you have no data, the notebook uses one day of a simulated city whose people have friends: mostly neighbours who do
# the same all day. Half of the people are the test half: nothing is learned from them, and all results are compared
# with them. Friendships between the two halves are cut, so everybody has about half as many friends as before.
#
# If you have the Gowalla check-ins of New York (`loc-gowalla_totalCheckins_NYC.txt.gz`,
# `loc-gowalla_edges_NYC.txt.gz`), give their folder in `folder`, or in the environment variable `PPMTF_DATA`. People
# check in only now and then, so two friends are hardly ever seen at the same time: there is less than one meeting a day
# in the whole city. For this data set the notebook gives the number of meetings to make; for the simulated city the
# number comes from the data.

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
    seen = Encounters.of(each)
    friends = seen.friends_met().sum() / seen.friends_seen().sum()
    strangers = seen.strangers_met.sum() / seen.strangers_seen.sum()
    print(f"{name}: {each.n_users} users, {len(each.friendships)} friendships. Of the times at which both are seen,")
    print(f"  two friends are at the same place in {friends:.1%}, two strangers in {strangers:.1%}.")

# %% [markdown]
# Friends meet many times as often as strangers. The pictures show, for both halves, when, where and how often friends
# meet, and how many friends people have:

# %%
friend_panels({"training": train, "test": test})

# %% [markdown]
# The two halves of one city differ only by chance. Synthetic data that differ more, below, do not differ by chance. In
# the simulated city friends meet at home and at night, because many of them live at the same place. Many friends never
# meet on that day, and others are together for most of it.
#
# ## 2. Synthetic friends
#
# The synthesizer learns four things, each as a noisy number or table, and sees nothing else of the data:
#
# 1. how many people have how many friends;
# 2. how many friends meet at each place in each hour;
# 3. how many meetings there are in all;
# 4. from where to where people move between meetings (the TPM).
#
# Then it makes synthetic people, who represent nobody. It draws friendships at random, draws meetings, and fills in the
# time between meetings. Here each of the four has the same privacy budget: .1 is strict, 1 is medium, and 10 is so weak
# that it mainly shows what the method itself can do. The noise has no seed, so it differs each time you run the
# notebook.

# %% tags=["noise"]
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
# The ledger records what was spent: every use of the data, its budget, and by how much one person could have changed
# the result.

# %%
(relation,) = privacy_statement(next(iter(made.values())))["ledger"]["relations"]
pd.DataFrame(relation["mechanisms"])[["mechanism", "epsilon", "sensitivity"]]

# %% [markdown]
# ## 3. When, where, how often
#
# This is the same picture as above, for the synthetic friends and the training half.

# %%
friend_panels({"training": train} | {name: each.traces for name, each in made.items()})

# %% [markdown]
# * **How many friends** people have is right with a budget of 1. With .1 it is rough.
# * **When**: every hour has about the same number of meetings. This does not come from the noise: in the published
#   method, the hour of a meeting is drawn uniformly.
# * **At what kind of place**: meetings are spread over all kinds. The published method shifts all counts of an hour so
#   that the smallest becomes 0, so noise at places where nobody meets looks like meetings.
# * **How often**: the average is right, but all friends meet equally often. Real friends are of two kinds: some are
#   together nearly all day. The four learned things do not include how close two friends are.
#
# ## 4. In numbers
#
# `evaluate` compares the synthetic people with the test half. Four rows are differences, synthetic people minus real
# people. *Friends meet* and *Strangers meet*: how often two friends, or two strangers, are at the same place when both
# are seen. *Friends over strangers*: log2 of the ratio between how often friends and how often strangers meet.
# *Clustering*: how often two friends of a user are friends of each other. For these four, 0 is right. The other rows
# about friends are total variations: 0 is right, and 1 means that nothing agrees. *Uniform* puts people at random
# places at every hour, and any two of them are equally likely to be friends.

# %% tags=["noise"]
FRIEND_ROWS = ["friend_rate", "stranger_rate", "friend_lift", "meeting_slot_tv", "meeting_category_tv"]
FRIEND_ROWS += ["pair_meetings_tv", "friends_tv", "clustering"]
OTHER_ROWS = ["tp_tv", "stay_difference", "mia_advantage", "mia_chance", "reid_rate"]

evaluation = evaluate({name: each.traces for name, each in made.items()}, train, test)
shown = [row for row in evaluation.rows if row.quantity.name in FRIEND_ROWS + OTHER_ROWS]
rich.print(format_table(Evaluation(shown)))

# %% [markdown]
# There is no re-identification rate: a synthetic person represents nobody, so there is nobody to find. An attacker can
# still ask whether somebody was among the training users (*Membership*), and differential privacy limits the answer.
# *TP-TV* and *Stay difference* measure all events, whether friends meet there or not. They are poor, because most of
# the day is filled in from one noisy table of moves: if you need good single traces and no friends, use the bridge (see
# *Which synthesizer?*).
#
# *Friends over strangers* is above 0 because strangers meet too rarely, not because friends meet too often: noisy moves
# lead anywhere.
#
# *Clustering* is lost at any budget: friendships are drawn at random, so two friends of a user are usually strangers.
#
# On check-ins, *Friends meet* is far below 0 at any budget. If two real friends check in at the same hour, they are
# mostly together; synthetic people are seen at every hour, and friends are apart in most hours. The metrics use the
# hours at which real people are seen, but not the link between being seen and meeting.
#
# ## 5. Meetings in proportion to the noisy counts
#
# With `meetings="by-counts"`, hours and places are drawn in proportion to the noisy counts, after the counts that noise
# put on places where nobody meets are removed. This is better where the counts are larger than the noise.

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
# The map shows where friends meet: a larger dot has a larger share of the meetings.

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
# With a budget of 10, the places and hours of meetings are closer to the real ones. With 1, in a city as small as this
# one, some places and hours have meetings only because of the noise: so `by-counts` is not the default. More people
# help in the same way as a larger budget: the counts grow with the number of people, and the noise does not.
#
# ## 6. So what can I use them for?
#
# * **How many friends people have, and how often friends meet**, on average, or as a test bed for programs that need
#   people who meet: yes, with budgets of about 1.
# * **Where and when friends meet**: yes, with `meetings="by-counts"` and many people or a large budget. Look at the
#   counts.
# * **Friends of friends, close and distant friends**: no. The synthesizer does not learn them.
#
# On the command line, call `ppmtf colocate train --out friends`, then `ppmtf evaluate friends --train train --test
# test`.
