"""Multiple choice: RACE, and other sets with any number of options. The map of this package.

reader        official folders, or JSON Lines of our own definition   -> passages with their questions
inputs        passage, question, option                               -> `<s> passage </s> </s> question+option </s>`
prepare       the two above                                           -> a prepared folder, an option a sequence
metrics       raw outputs of one model or several                     -> answers, accuracies, predictions
degenerate_run  sums of the training log                                -> whether a training is stuck at chance
benchmark         what `roberta prepare`, `finetune` and `evaluate` ask for
"""
