"""Search options of a training with Optuna (`pip install optuna`): each trial is a cell of a sweep, with all its seeds.

    python examples/search.py slurm/sweep_demo.yaml --output-dir runs/search --trials 20

The grid file gives the training, the seeds and the metric; `suggested` gives the axes: change it. The same command
continues: a trial that was stopped resumes from its checkpoints. The study is in OUTPUT-DIR/optuna.db, for
`optuna.load_study` and optuna-dashboard.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import optuna

from roberta_plugin.experiments.settings import SweepSettings
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.experiments.sweeps.sweep import check_options, train_grid


def suggested(trial):
    """Options of fairseq-train; few digits, because they are names of folders."""
    return {
        "lr": f"{trial.suggest_float('lr', 1e-4, 1e-2, log=True):.2g}",
        "weight-decay": f"{trial.suggest_float('weight-decay', 0, 0.2, step=0.01):.2g}",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("grid", type=Path, help="a grid file (slurm/README.md)")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=20, help="in all, with those of earlier calls")
    args = parser.parse_args()
    given = read_grid(args.grid)
    args.output_dir.mkdir(parents=True, exist_ok=True)

    def objective(trial):
        grid = replace(given, axes={name: {value: {name: value}} for name, value in suggested(trial).items()})
        check_options(grid)
        report = train_grid(grid, SweepSettings(grid=args.grid, output_dir=args.output_dir, keep="weights"))
        if report.best_cell is None:
            raise optuna.TrialPruned(f"failed: {report.failures}")
        return report.best_cell["median"]

    goal = {"min": "minimize", "max": "maximize"}[given.metric.goal]
    study = optuna.create_study(
        storage=f"sqlite:///{args.output_dir}/optuna.db", study_name="search", direction=goal, load_if_exists=True
    )
    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):  # stopped
        study.enqueue_trial(trial.params)
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    ended = study.get_trials(states=[optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED])
    study.optimize(objective, n_trials=max(0, args.trials - len(ended)))
    print(f"best value: {study.best_value:.4g} with {study.best_params}")


if __name__ == "__main__":
    main()
