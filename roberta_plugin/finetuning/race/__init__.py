"""Multiple choice: RACE, and other sets with any number of options (paper section 5.3).

reader          official folders, or JSON Lines   -> passages with their questions
prepare         the two above                     -> a prepared folder, one sequence per option
metrics         answers and labels                -> accuracies
predictions     raw outputs                       -> answers, and their file
degenerate_run  sums of the training log          -> whether a training is stuck at chance
benchmark       what `finetuning/benchmarks.py` asks of a benchmark
"""
