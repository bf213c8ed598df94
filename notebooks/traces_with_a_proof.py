# %% [markdown]
# # Traces with a proof
#
# The traces of this notebook are differentially private: everybody whose data was used is protected with all her
# traces, against anybody, whatever she knows. The notebook goes from data to a folder that could be handed to anyone.
# Then it compares the traces with those of the bridge, the default, which has no such proof, and shows how the traces
# depend on epsilon.
#
# The page *Which guarantee do I need?* of the documentation explains the guarantee and its limits.

# %%
# Only in Google Colab: install the library.
import subprocess
import sys
import tempfile
from pathlib import Path

if "google.colab" in sys.modules:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "ppmtf_jax"], check=True)

# %%
# %matplotlib inline
import pandas as pd
import rich
from matplotlib.figure import Figure

from ppmtf_jax import (
    Evaluation,
    EvaluationSettings,
    evaluate,
    fit,
    make_release,
    save_release,
    synthesize,
    toy_city,
)
from ppmtf_jax.evaluation.plots import jump_length_curves, population_maps
from ppmtf_jax.evaluation.tables import format_table

# %% [markdown]
# ## 1. Public places
#
# The people of a simulated city are seen at every hour of three days. For the guarantee, the list of places may not
# depend on them: if a list contains only places that somebody visited, it tells that somebody was there. Here the list
# is public, because the simulator makes the places before the people.
#
# You can import your own data onto a table of places from elsewhere, or onto the cells of a grid. All places of the
# table, and all cells, are kept, also those that nobody visits:
#
#     ppmtf import checkins my.csv --time-zone Europe/Berlin --place-table places.csv --out data
#     ppmtf import checkins my.csv --time-zone Europe/Berlin --grid 52.3,52.7,13.1,13.8,20,20 \
#         --min-users-per-place 1 --out data
#
# Test users, whose data no model sees, serve to measure how good the traces are. They get no guarantee here, and the
# split is not covered by the guarantee. If you measure nothing, learn from everybody.

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
# The model knows no users. All that it learned are noisy sums over users. In each sum, a user weighs at most 1, however
# many events she has. The ledger lists the sums and what each of them cost. Losses are measured in rho, which adds up;
# epsilon and delta follow from the total.

# %%
(ledger,) = model.trace_model.ledger()["relations"]
print("Neighbours, which are hard to tell apart:", ledger["relation"])
pd.DataFrame(ledger["mechanisms"]).set_index("mechanism")[["rho"]].round(5)

# %% [markdown]
# The folder of the model may be published. The noise comes from the operating system's secure source and has no seed:
# if you run the notebook again, all numbers below change a little. But a second model of the same people costs a second
# epsilon.
#
# ## 3. Synthetic people
#
# You choose how many people you want. Each is a new person, who stands for nobody, and each trace covers one day, the
# period of this time grid. However many you make, they cost nothing more, because the data is not read again.

# %%
people = synthesize(model, people=5000)
people

# %% [markdown]
# ## 4. Release
#
# There is no privacy test and no key: no trace was made from a real person's trace, so there is no link to protect. The
# statement says what holds, with the guarantee first.

# %%
folder = Path(tempfile.mkdtemp())
save_release(make_release(people, model), folder / "released")
print(*sorted(path.name for path in (folder / "released").iterdir()), sep=", ")
print()
print((folder / "released" / "PRIVACY.txt").read_text())

# %% [markdown]
# ## 5. How good are the traces?
#
# The bridge makes traces without such a proof. (`memory="anchors"` gives its people a home and a second place, and
# saves the search for the best memory.) The table compares both with the *test* users. *Training* shows the real traces
# of the training users, about the best that is possible; *Uniform* shows random places.
#
# This table, and every picture below, reads the real data again. Differential privacy does not cover it: keep it to
# yourself.

# %%
made = {"private": people, "bridge": synthesize(fit(train, memory="anchors"))}
evaluation = evaluate(made, train, test)
ROWS = ["tp_tv", "od_tv", "jump_tv", "stay_difference", "distinct_w1", "return_difference", "window_vf_tv"]
ROWS += ["daily_motif_tv", "density_ratio_auc", "mia_advantage", "mia_chance", "reid_rate"]
shown = [row for row in evaluation.rows() if row.quantity.name in ROWS]
rich.print(format_table(Evaluation.of_rows(evaluation.columns, shown)))

# %% [markdown]
# *TP-TV* says where people are at each hour, *OD-TV* from where to where they go, *Jump-TV* how far. `private` is much
# nearer to the bridge than to *Uniform* in how far people go and how many places they visit, and nearer in where they
# are. The flows and the days of single persons (*Window VF-TV*: how much time they spend where; *Daily motifs*: the
# shape of a day) are about half way between the two: what few people share is below the noise.
#
# The attack on membership (*Density-ratio AUC*) is near one half for both: it is a simple attack. Shadow models are
# stronger (`ppmtf attack membership`). In the data of the documentation, they find the training users of the bridge
# (AUC .74), and hardly those of `private` (.53; a guess has .50).

# %%
population_maps(made, train, test)

# %%
jump_length_curves({"test": test, **made})

# %% [markdown]
# ## 6. What does a smaller epsilon cost?
#
# Each dot is another model of the same people, with its own noise. For a real release, do not choose epsilon by this
# picture: it reads the test users, and each of its models costs its own epsilon. Use other data, such as this simulated
# city with as many people as you have.

# %%
found = {1.0: evaluation.value("tp_tv", "private")}
for epsilon in (0.5, 2.0, 8.0):
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
# The noise has the same size for 200 people and for 200,000, so more people help as much as a larger epsilon: twice as
# many people at half the epsilon give about the same picture.
#
# ## 7. Which one, then?
#
# * **Anybody may get the traces, or it is a secret who is in the data**: `private`.
# * **The receiver is bound by contract, and groups or single days must be right**: the bridge with its privacy test,
#   after you attacked its traces.
# * **Few people**: with fewer than about 100, the people of `private` are hardly better than random places at epsilon
#   1, and `fit` warns. A public `prior`, such as a table of venues with coordinates, helps most there.
#
# On the command line:
#
#     ppmtf fit data/train --system private --set public_places=true --out model
#     ppmtf synthesize model --people 5000 --out people
#     ppmtf release people --model model --out released
