# %% [markdown]
# # What do these traces give away?
#
# Nobody should release what was not attacked. This notebook attacks real traces without names, then synthetic ones of
# every system, and asks three questions of them:
#
# * **Whose is it?** Re-identification: the attacker knows some traces of some people.
# * **Was she in the data?** Membership inference: the attacker knows a person's traces, and sees what was released.
# * **Is it a copy?** Simple alarms, which need no model.

# %%
# Only in Google Colab: install the library.
import subprocess
import sys

if "google.colab" in sys.modules:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "ppmtf_jax"], check=True)

# %%
# %matplotlib inline
import os

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ppmtf_jax import fit, synthesize, toy_city
from ppmtf_jax.attacks.audit import ReidentificationSettings, reidentification_attacks
from ppmtf_jax.attacks.copies import check_copies
from ppmtf_jax.attacks.membership import infer_membership
from ppmtf_jax.attacks.splits import RehearsalSettings, rehearse
from ppmtf_jax.datasets import read_geolife
from ppmtf_jax.evaluation.plots import roc_curves
from ppmtf_jax.evaluation.plots.attacks import draw_auc

# %% [markdown]
# ## 1. The data
#
# Without any data, a simulated city of four days. With the GPS trajectories of Geolife (the folder `Data`, or an
# archive of it), say so in `folder`, or in the environment variable `PPMTF_DATA`. What the text says is said of the
# city; the numbers and pictures are those of your data.

# %%
folder = os.environ.get("PPMTF_DATA", "")

traces = read_geolife(folder)[0] if folder else toy_city(n_users=160, n_places=40, n_days=4, seed=0).traces
train, test = traces.split_users(0.6, seed=0)
print(f"{traces.n_users} users, {traces.n_places} places, {traces.n_events} events")

# %% [markdown]
# ## 2. Real traces without names
#
# A rehearsal: of half of the users, the targets, the attacker knows the first half of their days. Then all later days,
# and all days of the other users, the strangers, are handed out with every day under a pseudonym of its own. Is a given
# day that of a given target? The attacker learns where each target goes after each place, in three ways:
#
# * **ml**: counts. What a person never did is held to be all but impossible.
# * **tf**: tensor factorization. What others do fills the gaps.
# * **gstf**: the same, with places in groups that a person goes to or does not.

# %%
rehearsal = rehearse(traces, RehearsalSettings(), seed=0)
estimators = ["ml", "ml floor=1e-3", "tf", "gstf beta=0.3"]
attacks = reidentification_attacks(rehearsal.known, rehearsal.anonymized, estimators)


def row(attack):
    """What there is to know of an attack."""
    low, high = attack.each.auc_interval
    found = {f"found at {rate:.1%}": share for rate, share in attack.each.true_positive_rate.items()}
    return {"AUC": attack.each.auc, "95 %": f"{low:.2f} to {high:.2f}", **found, "right user": attack.each.accuracy}


pd.DataFrame({attack.estimator: row(attack) for attack in attacks}).T

# %% [markdown]
# *AUC* is how often a target's own day looks more like her than a stranger's day does: one half would be a guess.
# *Found at 1 %* is what matters to somebody who accuses: how many of her days are found if one in a hundred accusations
# is wrong. Most of what a name hides, movements tell.

# %%
curves = {attack.estimator: attack.each.roc for attack in attacks}
roc_curves(curves, title="Is this day of traces hers?", logarithmic=True)

# %% [markdown]
# ## 3. Does it help to leave places out?
#
# Before traces are handed out, some places of each are deleted: at random, or those whose absence hurts the attacker
# most, which only somebody can do who knows what the attacker knows.

# %%
deleted = np.array([0, 4, 8, 16])
lines = {}
for how in ("random", "worst"):
    for estimator in ("ml floor=1e-3", "tf"):
        of_number = []
        for n_deleted in deleted.tolist():
            settings = ReidentificationSettings(n_deleted=n_deleted, deletion=how)
            [attack] = reidentification_attacks(rehearsal.known, rehearsal.anonymized, [estimator], settings)
            of_number.append(attack.each.auc)
        lines[f"{estimator}, {how}"] = np.array(of_number)
figure = Figure(figsize=(5, 3.4), layout="constrained")
draw_auc(figure.subplots(), deleted, lines, label="places deleted of each day").legend(frameon=False)
figure

# %% [markdown]
# Of days that are spent at home and at work it hardly helps: what is left still says where both are. It is otherwise
# with check-ins at ten places a trace, of which five are deleted (`benchmarks/README.md`).
#
# ## 4. Synthetic traces of every system
#
# Now the attacker has the whole training data, and asks from whom each synthetic trace was made; and, the other
# question, who of all people was in the training data. `training` gives the data themselves away, one day of each
# person's four; `uniform` gives away nothing, and what it shows is how far from one half chance goes.

# %%
# Zeros are given less weight in a city this small, and 40 sweeps do for a look.
ppmtf = {} if folder else {"zeros": "weighted", "n_zeros": 300, "n_sweeps": 40}
systems = {"training": {}, "ppmtf": ppmtf, "sgd": {"n_copied": 4}, "bridge": {}, "tpm": {}, "uniform": {}}
made = {system: synthesize(fit(train, system, seed=0, **given), seed=0) for system, given in systems.items()}
attacked, members = {}, {}
for system, synthetic in made.items():
    identity = reidentification_attacks(train, synthetic, ["ml floor=1e-3"])[0].each
    members[system] = infer_membership(synthetic, train, test, "density_ratio")
    alarms = check_copies(synthetic, train, test)
    attacked[system] = {
        "whose: AUC": identity.auc,
        "right user": identity.accuracy,
        "in the data: AUC": members[system].roc.auc,
        "found at 1 %": members[system].roc.true_positive_rate_at(0.01),
        "longest copied run": alarms.copied_run.mean,
        "of strangers": alarms.copied_run.held_out_mean,
        "unique by 4 points": alarms.unicity[3],
    }
pd.DataFrame(attacked).T.round(3)

# %%
roc_curves({name: scores.roc for name, scores in members.items()}, title="Was she in the data?")

# %% [markdown]
# The two questions have different answers. SGD with a few copied events is poor at hiding whose a trace is; without
# them nobody could say, but who was in the data it tells all the same: a step that nobody made never occurs in its
# traces. The bridge and TPM smooth.
#
# ## 5. What to make of it
#
# * The strongest attack is that which is strongest *on your data*: `ppmtf attack reidentify` tries all of them.
# * An attack that fails proves nothing: a better one may come. What holds against all of them is differential privacy,
#   and what each statement of a release says is not protected.
# * On the command line: `ppmtf attack reidentify`, `ppmtf attack membership`, `ppmtf attack unicity`.
