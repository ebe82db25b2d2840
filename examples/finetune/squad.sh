#!/usr/bin/env bash
# SQuAD 1.1 and 2.0 as in the paper's section 5.2 and Table 10: 1.5e-5, batches of 48 windows, 2 epochs, five seeds.
#
#   examples/finetune/squad.sh SQUAD-FOLDER TOKENIZER MODEL.pt RUNS [options of `roberta finetune`]
#
# SQUAD-FOLDER holds train-v1.1.json, dev-v1.1.json, train-v2.0.json and dev-v2.0.json; options as in glue.sh.
set -euo pipefail
if [ $# -lt 4 ]; then
  echo "usage: $0 SQUAD-FOLDER TOKENIZER MODEL.pt RUNS [options of roberta finetune]" >&2
  exit 2
fi
raw=$1 tokenizer=$2 model=$3 runs=$4
shift 4

for task in squad2 squad1; do
  roberta finetune "$task" --raw "$raw" --tokenizer "$tokenizer" --model "$model" --output-dir "$runs/$task" "$@"
done
roberta evaluate --results "$runs/squad1" "$runs/squad2" --output-dir "$runs/results"
