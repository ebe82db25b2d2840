"""Many trainings over a grid: on this machine or as one SLURM job array, resumable.

grid          grid file      -> cells and runs: axes and seeds
settings      what the commands can be told
sweep         runs           -> run folders
run           one run: its folder, its state, its fairseq-train
local         runs on this machine, several at a time
slurm         runs as one SLURM job array
waiting       ... until SLURM's queue holds none of them
orphans       trainings that outlived a killed sweep
progress      a bar over all runs, or one line per finished run
keep          which checkpoints of finished runs stay
report        results        -> table, best cell, plot, ensemble
"""
