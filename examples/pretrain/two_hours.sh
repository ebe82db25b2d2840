#!/usr/bin/env bash
# Pretrain a small RoBERTa (4 layers, 256 wide) in one to two hours of one CPU core, on blocks of 64, then of 128 tokens.
#
#   examples/pretrain/two_hours.sh DATA-BIN [more fairseq-train options]
#
# Works from any folder; DATA-BIN and runs/two_hours start at the current one. Made for some 10 million words and a
# vocabulary of 8,000. Running the same command again resumes.
# Hardware: one CPU core, best with bf16 (AVX512-BF16 or AMX): 41 minutes on a free one, twice that on a busy machine.
# Why these settings: examples/README.pretraining.md.
set -euo pipefail
if [ $# -lt 1 ]; then
  echo "usage: $0 DATA-BIN [fairseq-train options]" >&2
  exit 2
fi
# One training in three parts: each resumes the part before, with the optimizer's state, longer blocks and larger batches.
# Learning rates: 1.5e-3 to 1.4e-3, 1.9e-3 to 1e-3, 1.7e-3 to 0 (a part's --lr is that of update 1,000, had it been
# there).
exec bash "$(dirname "$0")/growing.sh" two_hours 128 "64 1024 1.5e-3 25000 2500" "64 2048 2.09e-3 17440 9500" \
  "128 4096 5.31e-3 13500 13500" -- "$@"
