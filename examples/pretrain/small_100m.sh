#!/usr/bin/env bash
# Pretrain a small RoBERTa (4 layers, 128 wide, 512 positions) on 100 million tokens with one CPU core: 22,000 updates on
# blocks of 128 tokens, then 2,500 on blocks of 512, in the proportions of BERT (Devlin et al. 2019, appendix A.2).
#
#   examples/pretrain/small_100m.sh DATA-BIN [more fairseq-train options]
#
# Works from any folder; DATA-BIN and runs/small_100m start at the current one. The model is
# runs/small_100m/512/checkpoint_last.pt. A batch has 4,096 tokens. Running the same command again resumes.
# Hardware: one CPU core with bf16; hours. Its fine-tuning: python -m tests.benchmarks.bench_applications.
set -euo pipefail
if [ $# -lt 1 ]; then
  echo "usage: $0 DATA-BIN [fairseq-train options]" >&2
  exit 2
fi
data=$1
shift
plugin=$(cd "$(dirname "$0")/../../roberta_plugin" && pwd)

fairseq-train "$data" --user-dir "$plugin" --cpu --bf16 \
  --task roberta_masked_lm --criterion roberta_masked_lm --arch fast_roberta_tiny \
  --encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-attention-heads 2 \
  --dropout 0.0 --attention-dropout 0.0 --max-positions 512 --tokens-per-sample 128 --max-tokens 4096 \
  --optimizer roberta_adamw --adam-betas '(0.9,0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 0.0 \
  --lr-scheduler polynomial_decay --lr 1e-3 --warmup-updates 1000 --total-num-update 22000 --max-update 22000 \
  --num-workers 0 --seed 1 --save-dir runs/small_100m/128 --save-interval-updates 1000 --keep-interval-updates 1 \
  --no-epoch-checkpoints --validate-interval-updates 2000 --max-valid-steps 50 --log-format json --log-interval 100 "$@"
fairseq-train "$data" --user-dir "$plugin" --cpu --bf16 \
  --task roberta_masked_lm --criterion roberta_masked_lm --arch fast_roberta_tiny \
  --encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-attention-heads 2 \
  --dropout 0.0 --attention-dropout 0.0 --max-positions 512 --tokens-per-sample 512 --max-tokens 4096 \
  --optimizer roberta_adamw --adam-betas '(0.9,0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 0.0 \
  --lr-scheduler polynomial_decay --lr 4e-4 --warmup-updates 200 --total-num-update 2500 --max-update 2500 \
  --num-workers 0 --seed 1 --save-dir runs/small_100m/512 --save-interval-updates 1000 --keep-interval-updates 1 \
  --no-epoch-checkpoints --validate-interval-updates 2000 --max-valid-steps 50 --log-format json --log-interval 100 \
  --finetune-from-model runs/small_100m/128/checkpoint_last.pt "$@"
