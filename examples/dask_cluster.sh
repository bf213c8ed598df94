#!/bin/bash
# A scheduler and workers of Dask, and a job whose users are divided among them:
#     examples/dask_cluster.sh examples/bridge.toml 4
# On a cluster, start the workers on its machines, all of which see the same files; the lines between are the same. Dask
# neither authenticates nor encrypts: use a network that you trust.
set -euo pipefail

job=$1 workers=${2:-2} port=${PORT:-8786}
started=()
trap 'kill "${started[@]}" 2>/dev/null || true' EXIT
dask scheduler --host 127.0.0.1 --port "$port" --no-dashboard --no-show & started+=($!)
dask worker "tcp://127.0.0.1:$port" --nworkers "$workers" --nthreads 1 --no-dashboard & started+=($!)
ppmtf run "$job" --quiet --engine "dask:tcp://127.0.0.1:$port"
