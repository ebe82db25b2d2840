"""Many trainings: sweeps over a grid, the paper's fine-tuning procedure on top of them, and studies on top of both.

grid                grid file                      -> cells and runs: axes and seeds
sweep               runs                           -> run folders, resumable
sweep_run           one run: its folder, its state, its fairseq-train
sweep_local         runs on this machine, several at a time
sweep_slurm         runs as one SLURM job array
sweep_orphans       trainings that outlived a killed sweep
sweep_progress      a bar over all runs, or one line per finished run
sweep_keep          which checkpoints of finished runs stay
sweep_report        results                        -> table, best cell, plot, ensemble
finetune            the paper's procedure: prepare, sweep, evaluate
finetuning_settings the settings of the procedure
finetuning_start    the model that fine-tuning starts from
finetuning_grid     the paper's settings, a model  -> a grid file
inference           checkpoint, a split            -> the model's raw outputs
stored_outputs      raw outputs                    -> a file in the run's folder, and back
evaluation          checkpoints, a prepared folder -> official metrics of each model, median, ensemble
evaluation_report   evaluations                    -> a table and a plot beside the paper's numbers
evaluation_details  their details                  -> report.md: intervals, labels, confusion matrix
learning_curve      logs of the best cell          -> a plot of loss and metric
cross_validation    folds of own data              -> the procedure for each, mean and spread

paper_tables        the numbers of the paper's Tables 1 to 3
study               a study file                   -> everything below, resumable
study_settings      the study file                 -> variants, seeds, probes, budget
study_plan          variants, their data           -> options, updates, tokens, FLOPs; unequal budgets are refused
study_formats       data                           -> has it the documents and sentences of the format?
study_checks        what else is refused before anything runs
study_costs         plans                          -> FLOPs and hours of the whole
study_record        the settings of an earlier start, and what has changed
study_work          the steps: pretrain, measure, fine-tune
study_perplexity    checkpoint, held-out text      -> perplexity on the same masks for all
study_tuning        pretrained models, a task      -> one sweep, official metrics of each model
study_progress      a bar over all work
study_statistics    values by seed                 -> tests, and what may be concluded
study_report        values, tests                  -> report.md, results.json
study_plots         loss curves, bars
"""
