"""Many trainings: sweeps over a grid, and the paper's fine-tuning procedure on top of them.

settings          of the commands
sweeps/           a grid of runs on this machine or as one SLURM job array, resumable
starting_model    checkpoint                     -> weights and options of the model, which data must fit
finetuning_grid   settings, prepared data, model -> the paper's grid, with what the settings change
finetuning_plan   settings                       -> model, data and grid that fit each other
finetune          plan                           -> sweep, evaluation of the best cell; also for folds
inference         checkpoint, a split            -> the model's raw outputs
evaluation        checkpoints, a prepared folder -> official metrics of each model, median, ensemble, baseline
evaluation_report evaluations                    -> a table beside the paper's numbers, report.md
"""
