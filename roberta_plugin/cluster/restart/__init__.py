"""The ranks of a job have ended -> the job starts again, or stays ended.

    policy.py     how an attempt ended + how earlier ones did -> what follows: the policy, a pure function
    attempts.py   the run folder -> how an attempt ended; the record of all attempts
    carry_out.py  the decision -> SLURM's commands
    __main__.py   the command of the batch script

The batch script runs this folder after srun, on the first node and outside of any container, by `python -I`. So all of
it uses the standard library alone (Python 3.8 or newer), imports nothing else of this package, and does not assume that
the ranks can talk to SLURM. What it knows of an attempt lies in the run folder:

    status.json                what rank 0 last wrote: starting, training, stopped (and saved) or finished
    training_started.json      written by rank 0 when it has put the checkpoints in order: what is newer is progress
    failures/JOB_ATTEMPT.json  the first exception of a rank, and the nodes that the pre-flight named
    attempts.jsonl             how each attempt ended and what followed; `roberta jobs` shows the last one
"""
