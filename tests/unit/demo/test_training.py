import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import roberta_plugin
from roberta_plugin.demo import training
from roberta_plugin.demo.steps import DemoFolder, DemoSettings
from roberta_plugin.demo.training import Plan, make_plan, train_command
from roberta_plugin.training.log import Record, show_on


class Bar:
    """What `show` needs of a tqdm bar."""

    def __init__(self):
        self.n = self.initial = 0
        self.postfix = {}

    def update(self, count):
        self.n += count

    def set_postfix(self, values, refresh):
        self.postfix = values


@pytest.fixture
def run(tmp_path):
    return DemoFolder(DemoSettings(output_dir=tmp_path, seed=7))


def option(command, name):
    assert command.count(name) == 1, name
    return command[command.index(name) + 1]


def test_the_command_is_the_real_one_with_the_plugin_in_use(run):
    command = train_command(run, num_updates=1000, extra={"--save-dir": "there"})
    assert Path(command[0]).name == "fairseq-train"
    assert Path(option(command, "--user-dir")) == Path(roberta_plugin.__file__).parent
    assert command[1] == str(run.data_bin)
    assert option(command, "--seed") == "7"
    assert option(command, "--save-dir") == "there"


def test_the_learning_rate_ends_with_the_training(run):
    command = train_command(run, num_updates=1000, extra={})
    assert option(command, "--max-update") == option(command, "--total-num-update") == "1000"
    assert 0 < int(option(command, "--warmup-updates")) < 200


def plan_for(*, budget_s, seconds_per_update=0.05):
    return make_plan(seconds_per_update, budget_s=budget_s, valid_batches=20, threads=2)


def test_the_plan_fills_the_time_and_not_more():
    plan = plan_for(budget_s=300)
    in_training = plan.num_updates * plan.seconds_per_update
    validation = (plan.num_validations + 1) * 20 * training.FORWARD_SHARE * 0.05
    assert plan.num_validations == training.MAX_VALIDATIONS
    assert 0.85 * 300 < in_training + validation < 0.95 * 300
    assert in_training + validation < plan.stop_after_s < 300


@pytest.mark.parametrize("seconds_per_update", [0.05, 0.5, 1.0])
def test_a_slow_machine_validates_less_often_and_still_trains_most_of_the_time(seconds_per_update):
    plan = plan_for(budget_s=300, seconds_per_update=seconds_per_update)
    assert plan.num_updates * seconds_per_update > 0.65 * 300
    assert 1 <= plan.num_validations <= training.MAX_VALIDATIONS


@pytest.mark.parametrize("seconds_per_update", [0.05, 5.0])
def test_a_minimum_of_updates_is_made_whatever_the_budget(seconds_per_update):
    plan = plan_for(budget_s=0.5, seconds_per_update=seconds_per_update)
    assert plan.num_updates == training.MIN_UPDATES
    assert plan.stop_after_s >= training.SLOWDOWN * training.MIN_UPDATES * seconds_per_update


def test_a_plan_survives_the_steps_file():
    plan = plan_for(budget_s=300)
    assert Plan(**json.loads(json.dumps(plan._asdict()))) == plan


@pytest.mark.parametrize(("one", "two", "expected"), [(0.1, 0.06, 2), (0.1, 0.9, 1)])
def test_the_plan_uses_as_many_threads_as_are_faster(run, monkeypatch, one, two, expected):
    speeds = {1: one, 2: two}
    monkeypatch.setattr(training, "thread_choices", lambda: [2, 1])
    monkeypatch.setattr(training, "measure_speed", lambda run, threads, seconds: speeds[threads])
    monkeypatch.setattr(training, "MmapTokens", lambda prefix: SimpleNamespace(num_tokens=512))
    plan = training.plan_training(run)
    assert plan.threads == expected
    assert plan.seconds_per_update == speeds[expected]


@pytest.mark.parametrize(
    ("setting", "cores", "expected"),
    [("3", 8, [3]), ("", 2, [2, 1]), ("", 1, [1]), ("", 64, [training.MAX_THREADS, 1])],
)
def test_thread_choices(monkeypatch, setting, cores, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    monkeypatch.setattr(training, "num_cores", lambda: cores)
    assert training.thread_choices() == expected


def test_the_bar_follows_the_updates_and_shows_the_last_values():
    bar = Bar()
    show_on(bar, Record("train_inner", {"num_updates": 10, "loss": 9.126, "wps": 12345.6}))
    show_on(bar, Record("valid", {"num_updates": 10, "loss": 9.0, "accuracy": 12.34}))
    show_on(bar, Record("train_inner", {"num_updates": 20, "loss": 8.5, "wps": 12000}))
    assert bar.n == 20
    assert bar.postfix == {"loss": "8.50", "tokens/s": "12,000", "valid accuracy": "12.3 %"}


def test_a_resumed_run_counts_only_its_own_updates_as_speed():
    bar = Bar()
    show_on(bar, Record("train_inner", {"num_updates": 510, "loss": 9.0, "wps": 1}))
    assert bar.initial == bar.n == 510
    show_on(bar, Record("train_inner", {"num_updates": 520, "loss": 9.0, "wps": 1}))
    assert (bar.initial, bar.n) == (510, 520)


def log_line(update):
    return f'x | train_inner | {{"num_updates": "{update}", "loss": "9.0"}}\n'


def test_a_training_without_a_checkpoint_is_an_error(run, monkeypatch):
    monkeypatch.setattr(training, "lines_of", lambda command, **options: (line for line in [log_line(10)]))
    with pytest.raises(ChildProcessError, match="no checkpoint"):
        training.pretrain(run, plan_for(budget_s=60))


def test_a_training_that_had_ended_keeps_its_number_of_updates(run, monkeypatch):
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "checkpoint_last.pt").touch()
    run.train_log.write_text(log_line(80) + log_line(90) + "done training\n")
    monkeypatch.setattr(training, "lines_of", lambda command, **options: (line for line in ["nothing is done\n"]))
    assert training.pretrain(run, plan_for(budget_s=60))["num_updates"] == 90


def test_a_training_that_ends_before_it_began_gives_no_speed(run, monkeypatch):
    monkeypatch.setattr(training, "lines_of", lambda command, **options: (line for line in ["nothing\n"]))
    with pytest.raises(ChildProcessError, match="speed"):
        training.measure_speed(run, threads=1, seconds=5)


def test_a_burst_of_other_work_does_not_change_the_measured_speed(run, monkeypatch):
    clock = iter([105.0, 106.0, 107.0, 120.0])  # of each record: 20 updates a second, once 1.5
    lines = [log_line(update) for update in (20, 40, 60, 80, 100)]
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(training, "lines_of", lambda command, **options: (line for line in lines))
    assert training.measure_speed(run, threads=1, seconds=12) == pytest.approx(0.05)
    assert next(clock, None) is None, "the measurement did not end when its time was up"
