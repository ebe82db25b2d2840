"""Own data: tables of texts and labels in, tuned and evaluated models out (`roberta finetune custom`).

options         what a user can change
splits          examples                        -> training and development set, by a hash of the text
prepare         the above, and a tokenizer      -> a prepared folder
bootstrap       a metric                        -> its confidence interval
predictions     decisions of a model            -> their file
recipe          size of the data                -> the grid of trainings
benchmark       what `finetuning/benchmarks.py` asks of a benchmark
"""
