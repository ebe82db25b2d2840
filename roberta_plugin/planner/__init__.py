"""Cost of a training before it is submitted: FLOPs, time, GPU-hours, memory (`roberta plan`).

    training   recipe, machine, measured speed of one GPU  -> Training: its FLOPs, and its memory on one GPU
    plan       Training, failures and restarts             -> a row for each number of GPUs: table, advice, JSON

The docstrings give the formulas and their sources.
"""
