"""The ranks of a job have ended -> requeue the job, or let it end.

    policy.py     how this attempt and earlier ones ended -> the decision; a pure function
    attempts.py   the run folder -> how an attempt ended; the record of all attempts
    carry_out.py  the decision -> SLURM's commands
    __main__.py   the command of the batch script

The batch script runs this folder with `python -I` after srun, on the first node and outside of any container. It
therefore uses the standard library only (Python 3.8 or newer), imports nothing else of this package, and does not
assume that the ranks can reach SLURM. It reads and writes these files in the run folder:

    status.json                the phase rank 0 wrote last: starting, training, stopped (and saved) or finished
    training_started.json      written by rank 0 once the checkpoints are in order: newer checkpoints are progress
    failures/JOB_ATTEMPT.json  the first exception of a rank, and the nodes at fault, as far as known
    attempts.jsonl             how each attempt ended and what followed; `roberta jobs` shows the last one
"""
