"""Many trainings over a grid: on this machine or as one SLURM job array, resumable.

grid     grid file -> cells and runs: axes and seeds
sweep    runs      -> run folders (`launch/run_folder.py`), trained here, several at a time, or submitted
                      (`launch/submission.py`); their progress
report   results   -> table, best cell, plot, ensemble
"""
