"""fairseq-train, started and kept running: on this machine, or on a SLURM cluster through preemption and broken nodes.

    recipes/           the recipes of pretraining of the package, as YAML
    options_file.py    YAML files, over the recipes that they name -> options by name -> fairseq-train's arguments
    arguments.py       fairseq-train's arguments, parsed by its own parser and checked before it starts
    batch_size.py      effective batch, number of GPUs -> batch of one GPU, updates to accumulate; size of an update
    estimate.py        options of a pretraining -> its FLOPs, hours and memory on GPUs, for dry runs
    resources.py       resources and environment of a SLURM job -> options of sbatch; of recipes, grid files and --slurm
    slurm_commands.py  questions to SLURM
    process.py         a fairseq-train process on this machine: started, known to trackers, followed, stopped
    log.py             fairseq's JSON log -> records and loss curves; the end of any log
    run_folder.py      one run, launched or of a sweep: its record, its state, its attempts, its lock
    report.py          report.md of a launched run and its curves; logs and ends of attempts, for people

    recipe.py          config file + flags -> LaunchSettings -> fairseq-train's arguments for the GPUs
    recipe_checks.py   what is refused before a job is submitted
    resume_policy.py   what may change when a run resumes, of each option
    resume_changes.py  two records of a run -> what differs and may not
    submission.py      a recipe, or runs of a sweep -> copy of the code, batch script, job  ^ on the login node
    ---------------------------------------------------------------------------------------------------
    rendezvous.py      a free port; SLURM's environment -> rank, world size, address        v on the cluster, in order
    preflight.py       is every rank there, and does its GPU compute?
    job.py             one rank of a launched run: newest whole checkpoint, fairseq-train; or one run of a sweep
    update_hook.py     after every update: stop, save by the clock, write the status
    restart.py         in the batch script: decide whether the job restarts

From a notebook, or another command that submits jobs:

    from roberta_plugin.launch.recipe import LaunchSettings, load_recipe
    from roberta_plugin.launch.submission import launch

    settings = load_recipe(Path("slurm/pretrain_base.yaml"), flags={"nodes": 4}, train=["data-bin/books"])
    settings = LaunchSettings(output_dir=Path("runs/base"), train=("data-bin", "--arch", ...), nodes=2)  # or so
    submission = launch(settings, dry_run=True)    # ValueError or FileNotFoundError where a check fails
    submission.job_id, submission.script, submission.commands      # job_id is None after a dry run
"""
