#!/usr/bin/env bash
# The longest of the small recipes (4 layers, 256 wide): the three parts of two_hours.sh in a run of its own, then three longer.
#
#   examples/pretrain/night.sh DATA-BIN [more fairseq-train options]
#
# Works from any folder; DATA-BIN and runs/night start at the current one. Made for some 10 million words and a vocabulary
# of 8,000. Running the same command again resumes. From part 3 on, each part brings the learning rate to 0: after it,
# runs/night/checkpoint_last.pt is a finished model.
# Hardware: best with bf16 (AVX512-BF16 or AMX): 92 minutes of two cores for the first five parts, 90 minutes of one for the
# last; or some four hours of one for all. Memory: 3.3 GB (after 160 updates of the last).
# Results: examples/pretrain/results/small_budgets_cpu1_202611.md.
set -euo pipefail
if [ $# -lt 1 ]; then
  echo "usage: $0 DATA-BIN [fairseq-train options]" >&2
  exit 2
fi
# Learning rates: as in two_hours.sh, then from 1.7e-3, 2e-3 and 2e-3 to 0 (a part's --lr is that of update 1,000, had it
# been there).
exec bash "$(dirname "$0")/growing.sh" night 128 "64 1024 1.5e-3 25000 2500" "64 2048 2.09e-3 17440 9500" \
  "128 4096 5.31e-3 13500 13500" "128 8192 1.59e-2 15000 15000" "128 8192 5.48e-3 23000 23000" \
  "128 16384 1.17e-2 27500 27500" -- "$@"
