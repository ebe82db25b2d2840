"""SQuAD 1.1 and 2.0: answers that are spans of a passage (paper section 5.2). The map of this package.

reader      official JSON files                       -> checked questions, passages, answers and their places
inputs      a question, a passage too long for it     -> overlapping windows `<s> question </s> </s> part </s>`
prepare     the two above                             -> a prepared folder, a window an example
questions   a prepared split                          -> questions with their answers; span of a window -> text
metrics     answers given and right ones              -> the official exact match and F1, and the best threshold
predictions raw outputs of one model or several       -> the best answers of each question over its windows
benchmark       what `roberta prepare`, `finetune` and `evaluate` ask for
"""
