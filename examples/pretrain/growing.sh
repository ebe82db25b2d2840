#!/usr/bin/env bash
# Pretrain a small RoBERTa (4 layers, 256 wide) on one CPU core, with blocks and batches that grow from part to part.
#
#   examples/pretrain/growing.sh NAME MAX-POSITIONS "BLOCK BATCH LR TOTAL-UPDATES LAST-UPDATE" ... -- DATA-BIN [more options]
#
# half_hour.sh, two_hours.sh and night.sh call it. All parts are one training in runs/NAME: each resumes the part before, with the
# optimizer's state; fairseq-train warns that the length of blocks has changed, which is meant here. Ctrl-C saves and stops;
# `kill` must reach fairseq-train, not only this shell.
set -euo pipefail

usage() {
  echo "usage: $0 NAME MAX-POSITIONS \"BLOCK BATCH LR TOTAL-UPDATES LAST-UPDATE\" ... -- DATA-BIN [fairseq-train options]" >&2
  exit 2
}

refuse() {
  echo "$0: $1" >&2
  exit 2
}

[ $# -ge 5 ] || usage
name=$1
positions=$2
shift 2
parts=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  parts+=("$1")
  shift
done
[ $# -ge 2 ] && [ ${#parts[@]} -gt 0 ] || usage
data=$2
shift 2
case $data in -*) refuse "the first argument is DATA-BIN, the folder of the binarized text, got '$data'." ;; esac

# Every part is checked before the first is trained.
[[ $positions =~ ^[0-9]+$ ]] || refuse "MAX-POSITIONS is '$positions': give a number."
before=0
for part in "${parts[@]}"; do
  [[ $part =~ ^[0-9]+\ [0-9]+\ ([0-9]+\.?[0-9]*|\.[0-9]+)(e-?[0-9]+)?\ [0-9]+\ [0-9]+$ ]] ||
    refuse "the part '$part' must be five numbers: BLOCK BATCH LR TOTAL-UPDATES LAST-UPDATE."
  read -r block batch lr total_updates last_update <<<"$part"
  [[ $block =~ [1-9] && ${lr%e*} =~ [1-9] ]] || refuse "BLOCK and LR of the part '$part' must be above 0."
  [ "$block" -le "$positions" ] || refuse "the part '$part' has blocks of more than MAX-POSITIONS, $positions tokens."
  [ "$block" -le "$batch" ] || refuse "the part '$part' has blocks that are longer than its batches."
  [ "$before" -lt "$last_update" ] || refuse "the part '$part' must end after update $before, where the part before ends."
  [ "$last_update" -le "$total_updates" ] ||
    refuse "the part '$part' ends after TOTAL-UPDATES, where its learning rate has come to 0."
  before=$last_update
done
for option in "$@"; do
  case ${option%%=*} in
    --max-update | --total-num-update | --tokens-per-sample | --max-tokens | --batch-size | --lr | --max-positions)
      refuse "${option%%=*} is set by the parts: call growing.sh with parts of your own."
      ;;
    --max-epoch | --stop-time-hours | --stop-min-lr | --patience)
      refuse "${option%%=*} would end one part early, and the next would begin: stop with Ctrl-C, and start again."
      ;;
    --restore-file) refuse "--restore-file would undo the part before: use --finetune-from-model." ;;
  esac
done

plugin=$(roberta user-dir)
number=0
for part in "${parts[@]}"; do
  read -r block batch lr total_updates last_update <<<"$part"
  number=$((number + 1))
  echo "part $number of ${#parts[@]}: blocks of $block, batches of $batch tokens, to update $last_update"
  fairseq-train "$data" --user-dir "$plugin" --cpu --matmul-precision medium \
    --task roberta_masked_lm --criterion roberta_masked_lm --arch fast_roberta \
    --encoder-layers 4 --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-attention-heads 4 \
    --encoder-normalize-before --init-std width --init-attention neighbors --zero-init-residual --dropout 0.0 \
    --attention-dropout 0.0 --max-positions "$positions" \
    --sample-break-mode complete --tokens-per-sample "$block" --max-tokens "$batch" --mask-prob 0.3 \
    --optimizer roberta_adamw --adam-betas '(0.9,0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 0.0 \
    --lr-scheduler polynomial_decay --lr "$lr" --warmup-updates 1000 --total-num-update "$total_updates" \
    --max-update "$last_update" --num-workers 0 --seed 1 --save-dir "runs/$name" --save-interval-updates 1000 \
    --keep-interval-updates 1 --no-epoch-checkpoints --max-tokens-valid 8192 --max-valid-steps 5 --log-format json \
    --log-interval 100 "$@"
done
