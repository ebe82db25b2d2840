"""Cost of a training before it is submitted: FLOPs, time, GPU-hours, memory (`roberta plan`).

    inputs     recipe, machine, measured speed of one GPU  -> Training
    flops      shape of the model                          -> parameters, FLOPs per token
    memory     shape, precision, batch                     -> bytes on one GPU
    machines   a file; gradients                           -> machine; seconds of an all-reduce
    goodput    failures, checkpoints, restarts             -> fraction of time with kept progress
    plan       all of these                                -> a row for each number of GPUs: table, advice, JSON
    equal_compute   a budget, batches                      -> updates and learning rates of equal trainings (Table 3)

The docstrings give the formulas and their sources.
"""
