"""One run of fairseq-train: its options, its process, its log.

options_file     YAML files                        -> texts by name -> fairseq-train's arguments; the one reader
resources        resources of a SLURM job          -> options of sbatch; of recipes, grid files and --slurm
job_environment  variables of the submitting shell, of --env, modules, conda; secrets stay out of files
arguments        fairseq-train's arguments: parsed by its own parser; refused here if it would refuse them once started
batch_size       effective batch, number of GPUs   -> batch of one GPU, updates to accumulate; size of an average update
process          a fairseq-train process: started, followed, stopped
trackers         folder of a run                   -> its name, group and id in Weights & Biases, as variables
log              fairseq's JSON log                -> records and loss curves; the end of any log
slurm_commands   questions to SLURM
"""
