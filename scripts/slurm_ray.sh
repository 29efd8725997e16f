#!/usr/bin/env bash
# Runs softbench on all nodes of a SLURM allocation: starts a Ray head on the first node and Ray on the others, waits
# until all have joined, and runs `softbench run` with the arguments given here.
#
#   sbatch --nodes=4 --gpus-per-node=8 --cpus-per-task=64 scripts/slurm_ray.sh \
#     --model org/base-model --tasks capitals,elements --seed 0,1,2 --num-cpus 8 --output-path /shared/out
#
# Submit it from the folder that holds what the arguments name, on a file system that all nodes see, with softbench[ray]
# on the PATH (activate its environment first: SLURM hands the environment on). A job that SLURM ended goes on where it
# stopped when the same line is submitted again. docs/scale_out.md says more.
#SBATCH --job-name=softbench
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --output=softbench-%j.log
set -euo pipefail

if [ $# -eq 0 ] || [ -z "${SLURM_JOB_NODELIST:-}" ]; then
  echo "usage: sbatch [--nodes=N --gpus-per-node=G ...] $0 ARGUMENTS OF softbench run" >&2
  exit 2
fi
seconds_to_join=300

# Two jobs on one machine must not meet: the port follows the job's number.
port=$((20000 + SLURM_JOB_ID % 20000))
# Only who knows this word may use the cluster (Ray 2.5x and later; older ones let anybody).
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN
export RAY_USAGE_STATS_ENABLED=0

# This script runs on the first node; softbench's driver has to run where the head is.
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(hostname --ip-address | awk '{ print $1 }')
cores=${SLURM_CPUS_PER_TASK:-$(nproc)}

trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT

srun --overlap --nodes=1 --ntasks=1 --cpus-per-task="$cores" --nodelist="$head" \
  ray start --head --block --node-ip-address="$address" --port="$port" \
  --num-cpus="$cores" --include-dashboard=false &

others=$((SLURM_JOB_NUM_NODES - 1))
if [ "$others" -gt 0 ]; then
  srun --overlap --nodes="$others" --ntasks="$others" --cpus-per-task="$cores" --exclude="$head" \
    bash -c "until (exec 3<>/dev/tcp/$address/$port) 2>/dev/null; do sleep 1; done
      exec ray start --block --address=$address:$port --num-cpus=$cores" &
fi

python - "$address:$port" "$SLURM_JOB_NUM_NODES" "$seconds_to_join" <<'PYTHON'
import socket
import sys
import time

import ray

address, wanted, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
host, _, port = address.rpartition(":")
until = time.monotonic() + seconds
joined = 0
while joined < wanted:
    if time.monotonic() > until:
        sys.exit(f"error: {joined} of {wanted} nodes joined Ray in {seconds} s; their part of the log says why")
    time.sleep(1)
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        continue
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)
    joined = sum(node["Alive"] for node in ray.nodes())
PYTHON

softbench run --executor ray --ray-address "$address:$port" "$@"
