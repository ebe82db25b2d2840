"""Cost of a training before it is submitted: FLOPs, time, GPU-hours, memory (`roberta plan`).

    training        recipe, machine, measured speed of one GPU  -> Training: its FLOPs, and its memory on one GPU
    goodput         failures, checkpoints, restarts           -> fraction of time with kept progress
    plan            all of these                              -> a row for each number of GPUs: table, advice, JSON
    equal_compute   a budget, batches                         -> updates and learning rates of equal trainings (Table 3)

The docstrings give the formulas and their sources.
"""
