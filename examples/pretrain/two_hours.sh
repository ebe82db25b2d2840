#!/usr/bin/env bash
# Pretrain a small RoBERTa (4 layers, 256 wide) in an hour and a half of one CPU core, on blocks that grow from 32 to 128 tokens.
#
#   examples/pretrain/two_hours.sh DATA-BIN [more fairseq-train options]
#
# Works from any folder; DATA-BIN and runs/two_hours start at the current one. Made for some 10 million words and a
# vocabulary of 8,000. Running the same command again resumes.
# Hardware: one CPU core, best with bf16 (AVX512-BF16 or AMX). Why these settings: examples/README.pretraining.md.
set -euo pipefail
if [ $# -lt 1 ]; then
  echo "usage: $0 DATA-BIN [fairseq-train options]" >&2
  exit 2
fi
data=$1
shift
plugin=$(cd "$(dirname "$0")/../../roberta_plugin" && pwd)

# One training in three parts: each resumes the part before, with the optimizer's state, longer blocks and larger batches.
# Learning rates: 1.5e-3 to 1.1e-3, 1.8e-3 to 6e-4, 9e-4 to 0 (a part's --lr is that of update 1,000, had it been there).
for part in "32 512 1.5e-3 56000 14000" "64 2048 4e-3 24500 21000" "128 4096 8e-3 23500 23500"; do
  read -r block batch lr total_updates last_update <<<"$part"
  fairseq-train "$data" --user-dir "$plugin" --cpu --matmul-precision medium \
    --task roberta_masked_lm --criterion roberta_masked_lm --arch fast_roberta \
    --encoder-layers 4 --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-attention-heads 4 \
    --encoder-normalize-before --init-std width --dropout 0.0 --attention-dropout 0.0 --max-positions 128 \
    --sample-break-mode complete --tokens-per-sample "$block" --max-tokens "$batch" --mask-prob 0.3 \
    --optimizer roberta_adamw --adam-betas '(0.9,0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 0.0 \
    --lr-scheduler polynomial_decay --lr "$lr" --warmup-updates 1000 --total-num-update "$total_updates" \
    --max-update "$last_update" --num-workers 0 --seed 1 --save-dir runs/two_hours --save-interval-updates 1000 \
    --keep-interval-updates 1 --no-epoch-checkpoints --max-tokens-valid 8192 --max-valid-steps 5 --log-format json \
    --log-interval 100 "$@"
done
