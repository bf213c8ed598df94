# %% [markdown]
# # Several cores, devices and machines
#
# Large cities take time. This notebook shows how several devices or processes share the work, and that the result does
# not depend on their number.

# %%
# Only in Google Colab: install the library.
import subprocess
import sys

if "google.colab" in sys.modules:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "ppmtf_jax"], check=True)

# %% [markdown]
# ## 1. One device for each core
#
# On a CPU, JAX sees one device, which hardly uses more than one core here. `use_all_cores` gives JAX one device for
# each core. Call it before any other use of JAX; the command line calls it for you. On a GPU or TPU there is nothing to
# do: JAX sees the devices.

# %%
import tempfile
import time
from pathlib import Path

from ppmtf_jax import use_all_cores

use_all_cores()

import jax
import numpy as np

from ppmtf_jax import fit, toy_city, use_engine
from ppmtf_jax.data.stored_traces import open_traces

print(jax.devices())

# %% [markdown]
# ## 2. A fit on all devices
#
# Nothing else changes. The seed is given here so that the fit can be repeated below. With real data the seed is part of
# the secret, and the operating system draws it unless you give one.

# %%
folder = Path(tempfile.mkdtemp())
train = toy_city(n_users=300, n_places=30, seed=0).traces
settings = {"rank": 4, "n_sweeps": 6, "zeros": "weighted", "n_zeros": 60}

begin = time.perf_counter()
model = fit(train, "ppmtf", **settings, seed=1)
print(f"{time.perf_counter() - begin:.1f} s on {jax.device_count()} devices, compilation included")

# %% [markdown]
# ## 3. The same result, whatever the number
#
# Each random draw of the sampler belongs to a user, a place or a slot, not to a device. So the factors are the same
# however the work is shared. On two cores, a fit of a large city takes about half the time.

# %%
model = model.trace_model.to_arrays()
again = fit(train, "ppmtf", **settings, seed=1).trace_model.to_arrays()
print(all(np.array_equal(model[name], again[name]) for name in model))

# %% [markdown]
# ## 4. Other processes, or a cluster
#
# Work on parts of the users can be done by other processes of this machine (`processes:2`), or by the workers of a
# cluster of Dask (`dask:tcp://HOST:8786`). They read the parts from a folder. On the command line, the option is
# `--engine`. The model is the same.

# %%
train.save(folder / "train")
stored = open_traces(folder / "train")
models = []
for engine in ("threads", "processes:2"):
    begin = time.perf_counter()
    with use_engine(engine):
        models.append(fit(stored, n_clusters=2, memory="none", seed=1))
    print(f"{engine}: {time.perf_counter() - begin:.1f} s")
print("the same model:", models[0].checksum == models[1].checksum)

# %% [markdown]
# ## 5. Memory
#
# A step that would not fit into memory is refused before it begins, and the error names a setting that would fit:

# %%
from ppmtf_jax import InputError
from ppmtf_jax.runtime.memory import require_memory

try:
    require_memory("fit", 10**13, "Take fewer users, or a lower rank")
except InputError as error:
    print(error)
