"""One run of fairseq-train: its options, its process, its log.

options_file     YAML files                        -> texts by name -> fairseq-train's arguments; the one reader
resources        resources of a SLURM job          -> options of sbatch; of recipes, grid files and --slurm
job_environment  variables of the submitting shell, of --env, modules, conda; secrets stay out of files
sbatch_options   GPUs, other options               -> options of sbatch
arguments        fairseq-train's arguments: parsed by its own parser
option_checks    options                           -> refused here if fairseq-train would refuse them once started
update_size      options, their data              -> sequences, tokens and predictions of an average update
batch_size       effective batch, number of GPUs  -> batch of one GPU, updates to accumulate
process          a fairseq-train process: started, followed, stopped
log              fairseq's JSON log               -> records and loss curves
slurm_commands   questions to SLURM
"""
