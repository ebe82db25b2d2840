"""Comparisons of pretrainings: variants, seeds, probes, and what may be concluded.

study         a study file                   -> everything below, resumable; changes since an earlier start
settings      the study file                 -> variants (cells of a sweep's grid), seeds, probes, budget, paper's rows
plan          variants, their data           -> options, updates, tokens, FLOPs; unequal budgets are refused
probes        pretrained models              -> perplexity on the same masks for all; one sweep of fine-tunings
statistics    values by seed                 -> tests, and what may be concluded
report        plan, values                   -> the dry run; report.md, results.json, curves.png
"""
