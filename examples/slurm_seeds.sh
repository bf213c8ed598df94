#!/bin/bash
# One job with ten seeds, as an array: sbatch examples/slurm_seeds.sh examples/ppmtf.toml runs
# Each task copies the job into a folder of its own, with its seed. Seeds that others know void the privacy of what is
# released: use such runs to measure, and release a run whose seed was drawn.
#SBATCH --job-name=ppmtf
#SBATCH --array=0-9
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=04:00:00
set -euo pipefail

job=$(realpath "$1")
folder=$2/$(basename "$job" .toml)-$SLURM_ARRAY_TASK_ID
mkdir -p "$folder"
# A job's paths are relative to its file: give [import] path as an absolute one. A task that is started again continues.
# A seed below the first [table] is a setting of that table, and stays.
{
    echo "seed = $SLURM_ARRAY_TASK_ID"
    awk '/^[ \t]*\[/ { in_table = 1 } in_table || !/^[ \t]*seed[ \t]*=/' "$job"
} > "$folder/job.toml"
export JAX_COMPILATION_CACHE_DIR="$folder/cache" JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
ppmtf run "$folder/job.toml" --quiet
