#!/usr/bin/env bash
# RACE as in the paper's section 5.3 and Table 10: 1e-5, batches of 16 questions, 4 epochs, five seeds. A batch is 64
# sequences of up to 512 tokens: give --set batch-size=4, of which four are accumulated, where a GPU has no
# room for them.
#
#   examples/finetune/race.sh RACE-FOLDER TOKENIZER MODEL.pt RUNS [options of `roberta finetune`]
#
# RACE-FOLDER holds train, dev and test with middle/ and high/ in them; options as in glue.sh.
set -euo pipefail
if [ $# -lt 4 ]; then
  echo "usage: $0 RACE-FOLDER TOKENIZER MODEL.pt RUNS [options of roberta finetune]" >&2
  exit 2
fi
raw=$1 tokenizer=$2 model=$3 runs=$4
shift 4

roberta finetune race --raw "$raw" --tokenizer "$tokenizer" --model "$model" --output-dir "$runs/race" "$@"
