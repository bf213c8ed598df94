# %% [markdown]
# # Your own data
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
# The button opens Colab; upload this notebook there.
#
# Tables of check-ins and of GPS fixes come in many forms. This notebook turns two tables into traces, looks at the
# result, and shows what happens when something in a table is wrong.

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

import numpy as np
import pandas as pd

from ppmtf_jax import InputError, evaluate, fit, read_checkins, synthesize, toy_city
from ppmtf_jax.datasets import Discretization, GridPlaces, StayPoints, keep_shared_places
from ppmtf_jax.evaluation.plots import population_maps

# %% [markdown]
# ## 1. A file as it comes
#
# Somebody exported check-ins from a German spreadsheet: semicolons separate the columns, numbers have decimal commas,
# dates begin with the day, and date and time are separate columns. We make such a file from a simulated city.

# %%
city = toy_city(n_users=150, n_places=60, seed=0).traces
events = city.to_frame().merge(city.places.to_frame(), on="place")
when = pd.Timestamp("2024-05-13") + pd.to_timedelta(events["instant"], unit="h")
table = pd.DataFrame(
    {
        "uid": events["user"],
        "date": when.dt.strftime("%d.%m.%Y"),
        "time": when.dt.strftime("%H:%M"),
        "Latitude": events["latitude"],
        "Longitude": events["longitude"],
        "venue": events["place"],
    }
)
folder = Path(tempfile.mkdtemp())
file = folder / "checkins.csv"
table.to_csv(file, sep=";", decimal=",", index=False, encoding="latin-1")
print(file.read_text("latin-1")[:200])

# %% [markdown]
# ## 2. Read it
#
# You must give only the time zone: no file says in which time zone its times are. The report says how each column was
# understood, and how many rows were left out. Read it once; if a column was understood wrongly, name the right one with
# `columns=`. Places with fewer than five users are left out, because every event there reveals something about these
# few users.

# %%
traces, report = read_checkins(file, time_zone="Europe/Berlin")
print(str(report).replace(f"{folder}/", ""))

# %% [markdown]
# On the command line, `ppmtf import checkins checkins.csv --time-zone Europe/Berlin --check` shows the same and writes
# nothing. It counts the events in each hour of the day: if people seem to be active at night, the time zone is wrong.
#
# ## 3. When something is wrong
#
# The reader guesses nothing, and drops nothing without telling you. An invalid time, an impossible latitude, a user
# without a name: the error lists all problems at once and shows the rows as they are in the file.
# `drop_bad_rows=True` leaves such rows out, and the report says so.

# %%
wrong = table.astype({"uid": object})
wrong.loc[5, "time"] = "noon"
wrong.loc[7, "Latitude"] = 520.0
wrong.loc[9, "uid"] = None
try:
    read_checkins(wrong, time_zone="Europe/Berlin")
except InputError as error:
    print(error)

# %% [markdown]
# ## 4. GPS
#
# A GPS fix every minute is not yet a visit. A *stay point* is where somebody stayed within some metres for some
# minutes. The places are the cells of a grid, whose size is given in metres. Here is one person: at home, on her way,
# at work. Because the table has only one person, cells with a single person must be kept.

# %%
rng = np.random.default_rng(0)
minutes = np.arange(0, 600)
at_work = np.clip((minutes - 240) / 40, 0, 1)  # on her way from minute 240 to 280
fixes = pd.DataFrame(
    {
        "user": "anna",
        "time": pd.Timestamp("2024-05-06 06:00") + pd.to_timedelta(minutes, unit="min"),
        "latitude": 52.50 + 0.05 * at_work + rng.normal(0, 1e-4, len(minutes)),
        "longitude": 13.40 + 0.02 * at_work + rng.normal(0, 1e-4, len(minutes)),
    }
)
grid = Discretization(places=GridPlaces.of_cells(52.4, 52.6, 13.3, 13.5, cell_m=500), min_users_per_place=1)
stays, report = read_checkins(fixes, time_zone="Europe/Berlin", stay_points=StayPoints(), discretization=grid)
print(report)
stays.to_frame()

# %% [markdown]
# 600 fixes became two stays, and the places are cells of 500 m. A stay becomes an event at each hour that it covers.
#
# ## 5. And on to synthetic traces
#
# From here on, the steps are the same for all data: split into training and test users, learn a model, make traces,
# measure them, draw a picture. Only places with at least five training users are kept.

# %%
train, test = keep_shared_places(*traces.split_users(0.8, seed=0))
synthetic = synthesize(fit(train), traces_per_user=1)
evaluation = evaluate(synthetic, train, test)
for column in evaluation.columns:
    print(f"{column}: TP-TV {evaluation.value('tp_tv', column):.2f}")
population_maps({"synthetic": synthetic}, train, test)

# %% [markdown]
# ## 6. What may surprise
#
# * A synthetic trace is a day without a date: it has a place for each hour, even if the real users checked in rarely.
#   Compare shares, not numbers of events.
# * Times without an offset are read as local times of the zone that you name. `times_in="UTC"` says that they are UTC.
# * A few large places give better traces than many places that nobody visits twice: `--check` says if there are too
#   many places.
#
# The notebook `quickstart` shows the privacy test and the release.
