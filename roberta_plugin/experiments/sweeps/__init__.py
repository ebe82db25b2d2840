"""Many trainings over a grid: on this machine or as one SLURM job array, resumable.

grid     grid file -> cells and runs: axes and seeds
sweep    runs      -> run folders (`launch/run_folder.py`), trained here or submitted (`launch/submission.py`)
running  runs in progress: several at a time on this machine, or in SLURM's queue; the display of their progress
report   results   -> table, best cell, plot, ensemble
"""
