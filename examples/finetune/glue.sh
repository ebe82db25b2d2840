#!/usr/bin/env bash
# GLUE as in the paper's section 5.1: the grid of its Table 10 with five seeds a cell, RTE, STS-B and MRPC from the MNLI
# model, QNLI also as ranking, WNLI as margin ranking; medians on the development sets, ensembles on the test sets, and
# the zip for the leaderboard.
#
#   examples/finetune/glue.sh GLUE-FOLDER TOKENIZER MODEL.pt RUNS [options of `roberta finetune`]
#
# GLUE-FOLDER holds CoLA, SST-2, ... as the benchmark distributes them; TOKENIZER is the folder with encoder.json,
# vocab.bpe and dict.txt of the model. Options go to every task: --parallel 8 --set bf16=true on a node with 8 GPUs,
# --slurm partition=gpu time=4:00:00 gpus_per_node=1 on a cluster, --seeds 1 --only lr=1e-5 for a first look.
set -euo pipefail
if [ $# -lt 4 ]; then
  echo "usage: $0 GLUE-FOLDER TOKENIZER MODEL.pt RUNS [options of roberta finetune]" >&2
  exit 2
fi
raw=$1 tokenizer=$2 model=$3 runs=$4
shift 4

tune() { # task, folder of its files, model to start from, options
  local task=$1 files=$2 start=$3
  shift 3
  roberta finetune "$task" --raw "$raw/$files" --tokenizer "$tokenizer" --model "$start" --output-dir "$runs/$task" "$@"
}

for task in MNLI CoLA SST-2 QQP QNLI WNLI; do
  tune "$task" "$task" "$model" "$@"
done
tune QNLI-ranking QNLI "$model" "$@"
for task in RTE STS-B MRPC; do
  tune "$task" "$task" "$runs/MNLI" "$@"
done

# QNLI's test set is answered by ranking; the development set was measured as classification, too.
tasks=(MNLI CoLA SST-2 QQP QNLI-ranking WNLI RTE STS-B MRPC)
roberta evaluate --results "${tasks[@]/#/$runs/}" --output-dir "$runs/results" --submission "$runs/results/glue.zip"
