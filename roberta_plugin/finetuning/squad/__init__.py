"""SQuAD 1.1 and 2.0: answers that are spans of a passage (paper section 5.2).

reader          official JSON files               -> checked questions, passages, answers and where they are
inputs          a question, a long passage        -> overlapping windows `<s> question </s> </s> part </s>`
prepare         the two above                     -> a prepared folder, one example per window
questions       a prepared split                  -> questions with their answers; span of a window -> text
metrics         given answers and right answers   -> the official exact match and F1, the best threshold
predictions     raw outputs                       -> the best answers of each question over its windows, their files
benchmark       what `finetuning/benchmarks.py` asks of a benchmark
"""
