"""Many trainings over a grid: on this machine or as one SLURM job array, resumable.

grid    grid file -> cells and runs: axes and seeds
sweep   runs      -> run folders, the report
run     one run: its folder, its state, its fairseq-train, the checkpoints that are kept
local   runs on this machine, several at a time; the display of their progress
slurm   runs as one SLURM job array
report  results   -> table, best cell, plot, ensemble
"""
