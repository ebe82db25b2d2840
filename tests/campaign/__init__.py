"""A fault-injection campaign: what a user's machine does to a run, done on purpose, and counted.

    python -m tests.campaign kills corruption environment hostile --write

    __main__      options; runs the parts and writes results/campaign_<hardware>_<yyyymm>.md
    subjects      what `kills` attacks: how each is started, and what must come out bit-identical
    kills         SIGKILL at random moments and in the middle of checkpoint writes, until the command ends
    corruption    truncated, flipped, zeroed, replaced and emptied files against every command that reads them
    entries       those commands and the files they read
    forks         commands run in forks of a process that has imported everything
    environment   a full disk, a read-only folder, a closed terminal, stopped ranks, killed and stopped workers
    cluster       one job on a real SLURM that loses ranks, nodes, daemons and its time, in fp32 and bf16
    cluster_faults    what happens to it
    hostile       checkpoints that try to run code, against every command that opens a checkpoint
    outcome       counting, and the tables

`tests/integration/test_campaign.py` is a short form of each part. Lost ranks, two trainings in one folder, a disk that is
full for a moment and secrets have tests of their own; `python -m tests.golden breaks` breaks promises on purpose.
"""
