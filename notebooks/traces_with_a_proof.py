# %% [markdown]
# # Traces with a proof
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# The button opens Colab; upload this notebook there.
#
# The traces of this notebook are differentially private: everybody whose data was used is protected with all her
# traces, against anybody with any knowledge. The notebook goes from data to a folder that could be handed to anyone.
# Then it compares the traces with those of the bridge, the default system, which has no such proof. At the end, it
# shows how the quality of the traces depends on epsilon.
#
# The page *Which guarantee do I need?* of the documentation explains the guarantee and its limits.

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

import pandas as pd
import rich
from matplotlib.figure import Figure

from ppmtf_jax import (
    Evaluation,
    EvaluationSettings,
    evaluate,
    fit,
    plan_release,
    synthesize,
    toy_city,
    write_release,
)
from ppmtf_jax.evaluation import format_table
from ppmtf_jax.evaluation.plots import jump_length_curves, population_maps

# %% [markdown]
# ## 1. Public places
#
# The data are the people of a simulated city, at every hour of three days. For the guarantee, the list of places may
# not depend on the people: if a list contains only visited places, it tells that somebody was at each of them. Here the
# list is public, because the simulator makes the places before the people.
#
# You can import your own data onto a table of places from elsewhere, or onto the cells of a grid. All places of the
# table, and all cells, are kept, also those that nobody visits:
#
#     ppmtf import checkins my.csv --time-zone Europe/Berlin --place-table places.csv --out data
#     ppmtf import checkins my.csv --time-zone Europe/Berlin --grid 52.3,52.7,13.1,13.8,20,20 \
#         --min-users-per-place 1 --out data
#
# Test users are needed only to measure how good the traces are; no model sees their data. The guarantee covers neither
# the test users nor the split. If you measure nothing, learn from everybody.

# %%
train, test = toy_city(n_users=2000, n_places=60, n_days=3, missing=0.0, seed=0).traces.split_users(0.8, seed=0)
train

# %% [markdown]
# ## 2. Fit
#
# Epsilon is 1 and delta is 1e-6 unless you say otherwise. `public_places=True` is your declaration that the places do
# not depend on the traces; `fit` refuses to begin without it.

# %%
model = fit(train, "private", epsilon=1.0, public_places=True)
model

# %% [markdown]
# The model knows no users. It learned nothing but noisy sums over users. In each sum, a user weighs at most 1, however
# many events she has. The ledger lists the sums and the loss of each. Losses are measured in rho: the rho of all sums
# are added up, and epsilon follows from the total rho and from delta.

# %%
(ledger,) = model.trace_model.ledger()["relations"]
print("Neighbours, which are hard to tell apart:", ledger["relation"])
pd.DataFrame(ledger["mechanisms"]).set_index("mechanism")[["rho"]].round(5)

# %% [markdown]
# The folder of the model may be published. The noise comes from the operating system's secure source and has no seed:
# if you run the notebook again, all numbers below change a little. With real data, a second model of the same people
# would cost a second epsilon.
#
# ## 3. Synthetic people
#
# You choose the number of people. Each is a new person, who stands for nobody. Each trace covers one day, the period of
# this time grid. Even many people cost no more privacy, because the data are not read again.

# %%
people = synthesize(model, people=5000)
people

# %% [markdown]
# ## 4. Release
#
# There is no privacy test and no key: no trace was made from a real person's trace, so there is no link to protect. The
# statement begins with the guarantee, and says what is protected and what is not.

# %%
folder = Path(tempfile.mkdtemp())
write_release(plan_release(people, model), folder / "released")
print(*sorted(path.name for path in (folder / "released").iterdir()), sep=", ")
print()
print((folder / "released" / "PRIVACY.txt").read_text())

# %% [markdown]
# ## 5. How good are the traces?
#
# The bridge makes traces without such a proof. (`memory="anchors"` gives its people a home and a second place, and
# saves the search for the best memory.) The table compares both with the *test* users. *Training* shows the real traces
# of the training users, which are about the best possible result; *Uniform* shows random places.
#
# This table and all pictures below are made from the real data, too. Differential privacy does not cover them: keep
# them to yourself.

# %% tags=["noise"]
made = {"private": people, "bridge": synthesize(fit(train, memory="anchors"))}
evaluation = evaluate(made, train, test)
ROWS = ["tp_tv", "od_tv", "jump_tv", "stay_difference", "distinct_w1", "return_difference", "vf_tv"]
ROWS += ["daily_motif_tv", "density_ratio_auc", "mia_advantage", "mia_chance", "reid_rate"]
shown = [row for row in evaluation.rows if row.quantity.name in ROWS]
rich.print(format_table(Evaluation(shown)))

# %% [markdown]
# *TP-TV* compares where people are at each hour, *OD-TV* from where to where they go, and *Jump-TV* how far they go. In
# how far people go and how many places they visit, `private` is much nearer to the bridge than to *Uniform*. In where
# people are, it is somewhat nearer to the bridge. In the flows (*OD-TV*) and in the days of single persons, it is about
# half way between the two, because habits that few people share are below the noise. (*VF-TV* compares how much
# time a person spends at each place; *Daily motifs* compares the shapes of days.)
#
# The AUC of the attack on membership (*Density-ratio AUC*) is near one half for both systems. But this attack is
# simple. Shadow models are a stronger attack (`ppmtf attack membership`). On the people flow data of the documentation,
# they find training users of the bridge (AUC .74), but hardly any of `private` (.53; a guess has .50).

# %%
population_maps(made, train, test)

# %%
jump_length_curves({"test": test, **made})

# %% [markdown]
# ## 6. What does a smaller epsilon cost?
#
# Each dot is another model of the same people, with its own noise. For a real release, do not choose epsilon by such a
# picture: it depends on the test users, and each of its models costs its own epsilon. Choose epsilon with other data,
# such as this simulated city with as many people as you have.

# %%
found = {1.0: evaluation.value("tp_tv", "private")}
for epsilon in (0.25, 4.0):
    other = synthesize(fit(train, "private", epsilon=epsilon, public_places=True), people=5000)
    found[epsilon] = evaluate(other, train, test, EvaluationSettings(attacks=False))["tp_tv"]
found = dict(sorted(found.items()))

figure = Figure(figsize=(6.4, 3.6), layout="constrained")
ax = figure.subplots()
ax.plot(list(found), list(found.values()), marker="o", color="#0072B2", label="private")
for name, style in {"bridge": "-.", "training": "--", "uniform": ":"}.items():
    ax.axhline(evaluation.value("tp_tv", name), color="grey", linestyle=style, label=name)
ax.set(xscale="log", xticks=list(found), xlabel="epsilon", ylabel="TP-TV", ylim=(0, None))
ax.set_xticks(list(found), [f"{epsilon:g}" for epsilon in found])
ax.minorticks_off()
ax.legend(frameon=False)
figure

# %% [markdown]
# The noise has the same size for 200 people and for 200,000. So more people help as much as a larger epsilon: twice as
# many people at half the epsilon give traces of about the same quality.
#
# ## 7. Which one, then?
#
# * **Anybody may get the traces, or it is a secret who is in the data**: `private`.
# * **The receiver is bound by a contract, it is no secret who took part, and groups or single days must be right**: the
#   bridge with the privacy test, after you attacked its traces.
# * **Few people**: with fewer than about 100 at epsilon 1, the traces of `private` are hardly better than random
#   places, and `fit` warns. There, a public `prior` helps most, such as a table of venues with coordinates.
#
# On the command line:
#
#     ppmtf fit data/train --system private --set public_places=true --out model
#     ppmtf synthesize model --people 5000 --out people
#     ppmtf release people --model model --out released
