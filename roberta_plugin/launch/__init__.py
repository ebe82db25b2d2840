"""Training on a SLURM cluster: from a recipe to a job that survives preemption, time limits and broken nodes.

    recipe.py        config file + flags -> LaunchSettings: fairseq-train's arguments and the resources
    arguments.py     LaunchSettings -> fairseq-train's arguments, completed for the number of GPUs
    checks.py        LaunchSettings -> the refusals that can be made before anything is submitted
    settings_changes.py  ... among them: a run folder keeps the settings that it began with
    snapshot.py      the code and the config -> the run folder; the job runs what lies there
    batch_script.py  LaunchSettings -> what the batch script does before and after the ranks
    submission.py    LaunchSettings -> sbatch script -> job                      ^ on the login node
    ---------------------------------------------------------------------------------------------------
    node_local.py    the batch script copies code and environment to the nodes   v on the cluster, in order
    late_nodes.py    ... names the nodes where that takes too long
    free_port.py     ... and looks for a port
    rendezvous.py    SLURM's environment -> rank, world size, address            (each rank, down to update_hook.py)
    preflight.py     is every rank there, does every GPU compute, does an all-reduce add up?
    checkpoints.py   run folder -> the newest checkpoint that is whole
    job.py           the callable that submitit runs: the above, fairseq-train, then finished or stopped
    preemption.py    a signal -> "stop after this update"
    update_hook.py   after every update: stop, save by the clock, write the status
    torchrun.py      the same where there is no SLURM: one rank that torchrun has started
    restart/         the batch script again: start the job again, or not; its policy.py says when
    status.py        progress of each run: written by rank 0, read by `roberta jobs`
    run_logs.py      logs and ends of attempts, for people
    report.py        report.md and its curves, at the end of a run

From a notebook, or another command that submits jobs:

    from roberta_plugin.launch.recipe import LaunchSettings, load_recipe
    from roberta_plugin.launch.submission import launch

    settings = load_recipe(Path("slurm/pretrain_base.yaml"), flags={"nodes": 4}, train=["data-bin/books"])
    settings = LaunchSettings(output_dir=Path("runs/base"), train=("data-bin", "--arch", ...), nodes=2)  # or so
    submission = launch(settings, dry_run=True)    # ValueError or FileNotFoundError where a check of checks.py fails
    submission.job_id, submission.script, submission.commands      # job_id is None after a dry run
"""
