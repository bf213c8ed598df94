# %% [markdown]
# # Several cores, devices and machines
#
# Large cities take time. This notebook shows how several devices or processes share the work, that the result does not
# depend on their number, how much time they save on this machine, and how two processes do one fit together.

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
import socket
import tempfile
import time
from pathlib import Path

from ppmtf_jax import FittedModel, use_all_cores

use_all_cores()

import jax
import numpy as np

from ppmtf_jax import fit, toy_city

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
# ## 3. The same fit by two processes
#
# Several processes, on one machine or on machines that share a file system, do one step together. Start each process
# with the same command and its own number; process 0 writes the result. The processes exchange data without encryption,
# so use them on trusted networks only.

# %%
train.save(folder / "train")
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]

command = [sys.executable, "-m", "ppmtf_jax", "fit", str(folder / "train"), "--out", str(folder / "model")]
command += ["--system", "ppmtf", "--seed", "1", "--quiet"]
command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
command += ["--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process"]
processes = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(2)]
for process in processes:
    print(process.communicate()[0], end="")
    assert process.returncode == 0

# %% [markdown]
# ## 4. The same result, whatever the number
#
# Each random draw of the sampler belongs to a user, a place or a slot, not to a device. So the factors are the same
# however the work is shared, except for the last digits of sums that are added in a different order.

# %%
shared = FittedModel.load(folder / "model")
for name, array in model.trace_model.to_arrays().items():
    other = shared.trace_model.to_arrays()[name]
    print(f"{name}: {np.abs(array - other).max() / np.abs(array).max():.1e} of the largest number, at most")

# %% [markdown]
# ## 5. How much time it saves
#
# The devices share the observed cells in a fit, the users in synthesis, and the traces in the privacy test; every
# device has a copy of the factors, which are small. On two cores, a fit of a large city takes about half the time.
# `benchmarks/scale.py` measures seconds and memory of every step for any number of users.
#
# A step that would not fit into memory is refused before it begins, and the error names a setting that would fit:

# %%
from ppmtf_jax import InputError
from ppmtf_jax.runtime.memory import require_memory

try:
    require_memory("fit", 10**13, "Take fewer users, or a lower rank")
except InputError as error:
    print(error)

# %% [markdown]
# `synthesize` and the privacy test take `--coordinator` too. A Python program calls
# `ppmtf_jax.runtime.devices.join_processes` before it uses JAX.
