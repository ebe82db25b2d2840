"""Training on a SLURM cluster: from a recipe to a job that survives preemption, time limits and broken nodes.

    options_file.py  YAML -> options -> a command line, for recipes and grid files alike
    recipe.py        config file + flags -> Recipe: fairseq-train's arguments and the resources
    sbatch_options.py  GPUs and any other option of sbatch, for recipes and grid files alike
    batch_size.py    effective batch, number of GPUs -> batch of one GPU, updates to accumulate
    train_arguments.py  fairseq-train's arguments, read by its own parser and completed for the number of GPUs
    checks.py        Recipe -> the refusals that can be made before anything is submitted
    settings_changes.py  ... among them: a run folder goes on with the settings that it began with
    snapshot.py      the code and the config -> the run folder; the job runs what lies there
    submission.py    Recipe -> sbatch script -> job                              ^ on the login node
    ---------------------------------------------------------------------------------------------------
    free_port.py     the batch script looks for a port                           v on the cluster, in order
    rendezvous.py    SLURM's environment -> rank, world size, address            (each rank, down to update_hook.py)
    preflight.py     is every rank there, does every GPU compute, does an all-reduce add up?
    checkpoints.py   run folder -> the newest checkpoint that is whole
    training_job.py  the callable that submitit runs: the above, fairseq-train, then finished or stopped
    preemption.py    a signal -> "stop after this update"
    update_hook.py   after every update: stop, save by the clock, write the status
    restart/         the batch script again: start the job again, or not; its policy.py says when
    status.py        how far each run is: written by rank 0, read by `roberta jobs`
    slurm_commands.py   the questions put to SLURM           json_files.py   damaged files are named

Many trainings, by `roberta sweep`, and their cost, by `roberta plan`:

    grid.py          grid file -> cells: axes and seeds            sweep.py        cells -> run folders, resumable
    sweep_run.py     one run: fairseq-train, its metric            sweep_local.py  several at a time on this machine
    sweep_slurm.py   as one job array on a cluster                 sweep_report.py table, best cell, plot, ensemble
    sweep_progress.py  how far the runs are                        sweep_keep.py   what finished runs keep on disk
    plan_inputs.py   recipe, machine, speed -> inputs              plan.py         inputs -> table over numbers of GPUs
    flops.py  memory.py  network.py                                the formulas, with their sources

For other commands that submit jobs:

    from roberta_plugin.cluster.recipe import Recipe, load_recipe
    from roberta_plugin.cluster.submission import submit

    recipe = Recipe(run_dir=Path("runs/base"), train=("data-bin", "--task", "roberta_masked_lm", ...), nodes=2, ...)
    submission = submit(recipe, dry_run=False)    # ValueError/FileNotFoundError where a check of checks.py fails
    submission.job_id, submission.script, submission.commands      # job_id is None after a dry run
"""
