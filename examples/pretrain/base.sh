#!/usr/bin/env bash
# Pretrain RoBERTa base as in the paper's Table 9 with fairseq-train.
#
#   examples/pretrain/base.sh DATA-BIN [more fairseq-train options]
#
# Works from any folder; DATA-BIN and runs/base start at the current one.
# Hardware: 8 GPUs of 80 GB in one machine. Batch: 8,192 blocks = 8 GPUs x 32 blocks x 32 accumulated; with another
# number of GPUs set UPDATE_FREQ so that the product stays 8,192. Running the same command again resumes.
set -euo pipefail
if [ $# -lt 1 ]; then
  echo "usage: $0 DATA-BIN [fairseq-train options]" >&2
  exit 2
fi
data=$1
shift
plugin=$(roberta user-dir)

exec fairseq-train "$data" --user-dir "$plugin" \
  --task roberta_masked_lm --criterion roberta_masked_lm --arch fast_roberta_base \
  --sample-break-mode complete --tokens-per-sample 512 \
  --optimizer roberta_adamw --adam-betas '(0.9,0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 0.0 \
  --lr-scheduler polynomial_decay --lr 6e-4 --warmup-updates 24000 \
  --total-num-update 500000 --max-update 500000 \
  --batch-size 32 --update-freq "${UPDATE_FREQ:-32}" --bf16 --num-workers 2 --seed 1 \
  --save-dir runs/base/checkpoints --save-interval-updates 1000 --keep-interval-updates 3 --no-epoch-checkpoints \
  --validate-interval-updates 1000 --tensorboard-logdir runs/base/tensorboard --log-format json --log-interval 100 "$@"
