"""Many trainings: sweeps over a grid, the paper's fine-tuning procedure on top of them, and studies on top of both.

sweeps/             a grid of runs on this machine or as one SLURM job array, resumable
finetune            the paper's procedure: prepare, sweep, evaluate
finetuning_settings the settings of the procedure
finetuning_start    the model that fine-tuning starts from
finetuning_grid     the paper's settings, a model  -> a grid file
cross_validation    folds of own data              -> the procedure for each, mean and spread
inference           checkpoint, a split            -> the model's raw outputs
stored_outputs      raw outputs                    -> a file in the run's folder, and back
evaluation          checkpoints, a prepared folder -> official metrics of each model, median, ensemble
baseline            a constant answer              -> its metrics, and which models are no better
evaluation_report   evaluations                    -> a table beside the paper's numbers
evaluation_details  their details                  -> report.md: intervals, labels, confusion matrix
learning_curve      logs of the best cell          -> a plot of loss and metric
studies/            variants of pretraining, with seeds and probes, compared
"""
