"""SQuAD 1.1 and 2.0: answers that are spans of a passage (paper section 5.2).

reader          official JSON files               -> checked questions, passages, answers and where they are
prepare         the two above                     -> a prepared folder, one example per window
predictions     raw outputs                       -> the best answers of each question over its windows, their files
benchmark       what `finetuning/benchmarks.py` asks of a benchmark
"""
