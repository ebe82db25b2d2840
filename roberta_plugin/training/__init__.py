"""One run of fairseq-train: its options, its process, its log.

arguments        fairseq-train's arguments: parsed by its own parser, completed for a number of GPUs
batch_size       effective batch, number of GPUs  -> batch of one GPU, updates to accumulate
program          the command that starts a training in a process of its own
log              fairseq's JSON log               -> records and loss curves
options_file     YAML files of options             -> options -> arguments; recipes and grids share it
sbatch_options   what a job asks SLURM for, likewise
slurm_commands   questions to SLURM
"""
