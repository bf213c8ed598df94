# %% [markdown]
# # People who remember
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# The button opens Colab; upload this notebook there.
#
# Synthetic traces can have the right number of people everywhere, at each hour, and still not be traces of people. A
# Markov chain chooses the next place by the present place alone. It does not know where it lives, where it was this
# morning, or that it was here before. This notebook puts two kinds of synthetic traces beside real ones:
#
# * **chains**: the bridge with `memory="none"`;
# * **people**: the default. Each trace is that of a synthetic person, who goes back to her places.
#
# Both are fitted to the same users, have the same clusters, and take the same privacy test. The last part is about
# check-ins, which come with gaps.

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
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ppmtf_jax import TimeGrid, evaluate, fit, plausible_deniability_test, synthesize, toy_city
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.metrics.persons import distinct
from ppmtf_jax.evaluation.metrics.times import daily_motifs, night_homes

# %% [markdown]
# ## 1. The data
#
# A simulated city, so that we may look at single people: they live somewhere, work somewhere, and go out. The slots of
# the time grid repeat every week, so a synthetic trace covers a week of hours.

# %%
city = toy_city(n_users=300, n_places=80, n_days=7, missing=0.0, seed=0).traces
week = TimeGrid.cyclic(city.time_grid.start, 3600, 7 * 24, slot_s=7200, period_s=7 * 86_400)
train, test = replace(city, time_grid=week).split_users(0.5, seed=0)
print(f"{train.n_users} training users and {test.n_users} test users, {train.n_places} places")

# %% [markdown]
# ## 2. Two models
#
# `fit` says what it chose, and why. The choice is made with training users who are held out, never with test users.

# %%
models = {"chains": fit(train, memory="none", seed=0), "people": fit(train, seed=0)}
made = {}
for name, model in models.items():
    made[name] = synthesize(model, traces_per_user=1, seed=0)
    passed = plausible_deniability_test(model, made[name], k=10, eta=1.0).passed
    print(f"{name}: {passed.mean():.0%} of the traces pass the privacy test")
    print(*(f"  {line}" for line in model.trace_model.summary()), sep="\n")

# %% [markdown]
# ## 3. A week of ten people
#
# Each row is a week of one person, and each colour is a place of hers: dark blue is the place where she is most, then
# light blue, then orange. All other places are grey.

# %%
COLOURS = np.array([[40, 80, 160], [120, 180, 230], [240, 160, 60], [190, 190, 190]]) / 255


def draw_weeks(traces, ax, title, n_people=10):
    """The first people of a set; the places of a row are numbered by how often she is there."""
    hours = traces.time_grid.n_instants
    rows = []
    for place in traces.place.reshape(-1, hours)[:n_people]:
        _, which, count = np.unique(place, return_inverse=True, return_counts=True)
        rank = np.argsort(np.argsort(-count, kind="stable"))[which]
        rows.append(COLOURS[np.minimum(rank, 3)])
    ax.imshow(np.array(rows), aspect="auto", interpolation="nearest", extent=(0, 7, 0, n_people))
    ax.set(title=title, yticks=[], xticks=np.arange(8))


fig, axes = plt.subplots(3, 1, figsize=(9, 7), sharex=True, layout="constrained")
for ax, (name, traces) in zip(axes, {"real people (simulated)": test, **made}.items(), strict=True):
    draw_weeks(traces, ax, name)
axes[-1].set_xlabel("day")
plt.show()

# %% [markdown]
# Real people have a home, which is dark blue in every night, and a few other places. Chains go from place to place and
# seldom come back, so much of their weeks is grey. Synthetic people come back: few places fill their weeks. But they
# do not always sleep at the same home, if `fit` chose the memory of places; `memory="anchors"` gives them one.
#
# ## 4. How often they come back
#
# The numbers compare windows of a week. *Training* is what two groups of real people differ by. A difference is best
# near 0, a distance is best near that of Training.

# %%
evaluation = evaluate(made, train, test)
wanted = [
    "return_difference",
    "straight_back_difference",
    "distinct_w1",
    "top_place_w1",
    "second_place_w1",
    "daily_motif_tv",
    "night_homes_difference",
    "tp_tv",
    "od_tv",
    "group_tv",
]
titles = {row.quantity.name: row.quantity.title for row in evaluation.rows}
pd.DataFrame(
    {column: [evaluation.value(name, column) for name in wanted] for column in evaluation.columns},
    index=[titles[name] for name in wanted],
).round(3)

# %% [markdown]
# The first rows are about persons, the last three about crowds. In the rows about persons, people are nearer to the
# real ones than chains. In those about crowds, chains are as near or nearer. Most published metrics are like the last
# rows, and do not tell a chain from a person.

# %%
sets = {"test users": test, **made}
samples = {
    "different places in a week": {name: distinct(Windows.of(each)).value for name, each in sets.items()},
    "homes at night in a week": {name: night_homes(Windows.of(each)).value for name, each in sets.items()},
}
fig, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for ax, (title, values) in zip(axes, samples.items(), strict=True):
    for name, value in values.items():
        number, count = np.unique(value, return_counts=True)
        ax.plot(number, count / count.sum(), marker="o", markersize=3, label=name)
    ax.set(xlabel=title, ylabel="share of people")
axes[0].legend()
plt.show()

# %% [markdown]
# ## 5. The shapes of their days
#
# A motif is the network of moves between the places of a day, without their names (Schneider et al. 2013): for example
# *home, work, home* is one motif, whoever lives and works where. A few motifs make up most days of real people.

# %%
motifs = {name: daily_motifs(Windows.of(each)).value for name, each in sets.items()}
usual, count = np.unique(motifs["test users"], return_counts=True)
usual = usual[np.argsort(-count)][:6]
shares = {name: [np.mean(value == motif) for motif in usual] for name, value in motifs.items()}
table = pd.DataFrame(shares, index=[f"motif {rank + 1} of the test users" for rank in range(len(usual))])
table.loc["all others"] = 1 - table.sum()
table.plot.barh(figsize=(9, 4), xlabel="share of days")
plt.gca().invert_yaxis()
plt.show()

# %% [markdown]
# ## 6. What does it cost?
#
# A person of the model is nobody: the distribution of her trace depends on the cluster of the input user alone, so the
# privacy test passes the traces of both models alike. The attacker of this table knows all real traces.
# *Re-identification*: from whose trace was this one made? *Density-ratio AUC*: how well does the density of synthetic
# traces tell training users from others? A guess has 0.5.

# %%
attacks = ["reid_rate", "density_ratio_auc", "mia_advantage", "mia_chance"]
pd.DataFrame(
    {titles[name]: [evaluation.value(name, column) for column in evaluation.columns] for name in attacks},
    index=evaluation.columns,
).round(3)

# %% [markdown]
# ## 7. Check-ins come as check-ins
#
# Most events of check-ins are missing, and not by chance: people check in when something happens. Here is the same city
# with 95 % of its events removed, over eight weeks. From such data the default makes check-ins with their gaps over a
# window of 28 days. `gaps="none"` makes a presence at every hour, whether people were seen or not.

# %%
sparse = toy_city(n_users=300, n_places=80, n_days=56, missing=0.95, seed=0).traces
train, test = sparse.split_users(0.5, seed=0)
checkins = fit(train, seed=0)
print(*checkins.trace_model.summary(), sep="\n")
windows = synthesize(checkins, traces_per_user=2, seed=0)
mean = windows.n_events / len(windows.trace_table()[0])
print(f"{mean:.0f} events in a window of {windows.time_grid.n_instants} hours")

# %%
fig, axes = plt.subplots(2, 1, figsize=(9, 4), sharex=True, layout="constrained")
for ax, (name, traces) in zip(axes, {"test users": test, "synthetic": windows}.items(), strict=True):
    trace = traces.trace_of_event()
    shown = (trace < 12) & (traces.instant < windows.time_grid.n_instants)
    ax.scatter(traces.instant[shown] / 24, trace[shown], s=6)
    ax.set(title=name, ylabel="person", yticks=[])
axes[-1].set_xlabel("day")
plt.show()

# %% [markdown]
# Each dot is a check-in. The table compares the windows, now with the times of the events.

# %%
evaluation = evaluate({"synthetic": windows}, train, test)
wanted = ["events_w1", "event_gap_tv", "stay_any_gap_difference", "return_difference", "daily_motif_tv", "tp_tv"]
titles = {row.quantity.name: row.quantity.title for row in evaluation.rows}
pd.DataFrame(
    {column: [evaluation.value(name, column) for name in wanted] for column in evaluation.columns},
    index=[titles[name] for name in wanted],
).round(3)

# %% [markdown]
# ## 8. Which, then?
#
# * **Questions about persons** (days, weeks, homes, returns): people, the default.
# * **Questions about crowds**: both. Chains are faster.
# * **Check-ins**: leave the gaps. A presence at every hour is a guess of the model: make it only if you need it.
#
# A person of the model is not a pseudonym of a real one, and two traces of one input user are two people.
