"""Comparisons of pretrainings: variants, seeds, probes, and what may be concluded.

study         a study file                   -> everything below, resumable
settings      the study file                 -> variants, seeds, probes, budget
paper_tables  the numbers of the paper's Tables 1 to 3
plan          variants, their data           -> options, updates, tokens, FLOPs; unequal budgets are refused
formats       data                           -> has it the documents and sentences of the format?
checks        what else is refused before anything runs
costs         plans                          -> FLOPs and hours of the whole
record        the settings of an earlier start, and what has changed
work          the steps: pretrain, measure, fine-tune
perplexity    checkpoint, held-out text      -> perplexity on the same masks for all
tuning        pretrained models, a task      -> one sweep, official metrics of each model
progress      a bar over all work
statistics    values by seed                 -> tests, and what may be concluded
report        values, tests                  -> report.md, results.json
plots         loss curves, bars
"""
