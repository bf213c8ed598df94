# %% [markdown]
# # What do these traces give away?
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# The button opens Colab; upload this notebook there.
#
# Attack traces before you release them. This notebook attacks real traces without names, and then synthetic traces of
# every system. It asks three questions:
#
# * **Whose is it?** Re-identification: the attacker knows some traces of some people.
# * **Was she in the data?** Membership inference: the attacker knows a person's traces, and sees the released traces.
# * **Is it a copy?** Unicity, copied runs and nearest traces: simple measures that need no model.

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
from matplotlib.figure import Figure

from ppmtf_jax import fit, synthesize, toy_city
from ppmtf_jax.attacks.audit import RehearsalSettings, ReidentificationSettings, rehearse, reidentification_attacks
from ppmtf_jax.attacks.copies import check_copies
from ppmtf_jax.attacks.membership import infer_membership
from ppmtf_jax.datasets import read_geolife
from ppmtf_jax.evaluation.plots import roc_curves
from ppmtf_jax.evaluation.plots.numbers import draw_auc

# %% [markdown]
# ## 1. The data
#
# If you have no data, the notebook uses four days of a simulated city. If you have the GPS trajectories of Geolife (the
# folder `Data`, or an archive of it), give its path in `folder`, or in the environment variable `PPMTF_DATA`. The text
# describes the results of the simulated city; the numbers and pictures show your data.

# %%
folder = os.environ.get("PPMTF_DATA", "")

traces = read_geolife(folder)[0] if folder else toy_city(n_users=160, n_places=40, n_days=4, seed=0).traces
train, test = traces.split_users(0.6, seed=0)
print(f"{traces.n_users} users, {traces.n_places} places, {traces.n_events} events")

# %% [markdown]
# ## 2. Real traces without names
#
# We rehearse an attack. Half of the users are the targets: the attacker knows the first half of their days. The other
# users are the strangers. Then the attacker gets all later days of the targets and all days of the strangers, and each
# day has its own pseudonym. Does a given day belong to a given target? The attacker learns where each target goes after
# each place, in three ways:
#
# * **ml**: she counts each person's steps. A step that a person never made gets a probability near 0.
# * **tf**: tensor factorization. The steps of other people fill the gaps.
# * **gstf**: the same, with groups of places; a person visits a whole group or does not visit it.

# %%
rehearsal = rehearse(traces, RehearsalSettings(), seed=0)
estimators = ["ml", "ml floor=1e-3", "tf", "gstf beta=0.3"]
attacks = reidentification_attacks(rehearsal.known, rehearsal.anonymized, estimators)


def row(attack):
    """What there is to know of an attack."""
    low, high = attack.each.auc_interval
    found = {f"found at {rate:.1%}": share for rate, share in attack.each.true_positive_rate.items()}
    numbers = {"AUC": attack.each.auc, **found, "right user": attack.each.accuracy}
    return {name: round(number, 3) for name, number in numbers.items()} | {"AUC, 95 %": f"{low:.2f} to {high:.2f}"}


pd.DataFrame({attack.estimator: row(attack) for attack in attacks}).T

# %% [markdown]
# *AUC* says how often a target's own day looks more like her than a stranger's day does: a guess has one half. *Found
# at 1 %* matters to an attacker who must be right: it is the share of a target's days that she finds at one false alarm
# in a hundred. Movements reveal most of what the pseudonyms hide.

# %%
curves = {attack.estimator: attack.each.roc for attack in attacks}
roc_curves(curves, title="Is this day of traces hers?", logarithmic=True)

# %% [markdown]
# ## 3. Does it help to leave places out?
#
# Before the traces are handed out, some places of each trace are deleted: either at random, or the places whose
# deletion is worst for the attacker. Only somebody who knows what the attacker knows can choose these places.

# %%
deleted = np.array([0, 8, 16])
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
# This hardly helps for days that are spent at home and at work: the remaining events still show where both are. It
# helps more for check-ins with ten places in a trace, if five of them are deleted (`benchmarks/README.md`).
#
# ## 4. Synthetic traces of every system
#
# Now the attacker has the whole training data. She asks from whom each synthetic trace was made, and who was in the
# training data. `training` gives away the data themselves, one of the four days of each person. `uniform` gives away
# nothing; its row shows how far chance alone moves a number away from one half.

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
        "people copied": alarms.n_copied,
        "unique by 4 points": alarms.unicity[3],
    }
pd.DataFrame(attacked).T.round(3)

# %%
roc_curves({name: scores.roc for name, scores in members.items()}, title="Was she in the data?")

# %% [markdown]
# The two questions have different answers. SGD with a few copied events hides poorly from whom a trace was made.
# Without copied events nobody can find the person, but SGD still reveals who was in the data: a step that no training
# user made never occurs in its traces. The bridge and TPM use smoothing, so they reveal less.
#
# ## 5. Conclusions
#
# * Which attack is strongest depends on *your data*: `ppmtf attack reidentify` tries all of them.
# * An attack that fails proves nothing: a better one may come. Differential privacy holds against all attacks. The
#   privacy statement of each release says what is not protected.
# * On the command line: `ppmtf attack reidentify`, `ppmtf attack membership`, `ppmtf attack unicity`.
