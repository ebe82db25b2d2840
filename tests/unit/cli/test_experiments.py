"""roberta sweep, study: tables, dry runs, refusals; whole ones are in tests/integration."""

import re
import shlex

import pytest

from roberta_plugin.cli import build_parser, main
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.experiments.sweeps.sweep import prepare
from tests.conftest import REPOSITORY
from tests.tiny_corpus import write_data_bin
from tests.tiny_study import write_study

SMALL = """\
Table 1, small - static against dynamic masking: 2 variants x 3 seeds, equal tokens

| variant | updates | tokens/update | tokens | epochs | lr | FLOPs |
| --- | --- | --- | --- | --- | --- | --- |
| static | 3,906 | 1,024 | 4e+06 | ? | 0.003 | 5.15e+13 |
| dynamic | 3,906 | 1,024 | 4e+06 | ? | 0.003 | 5.15e+13 |

probe ppl: held-out perplexity, valid split
The data is not here: tokens are those of full blocks.
6 pretrainings of 23,436 updates and 3.09e+14 FLOPs in all
"""
LARGE = """\
Table 1, static against dynamic masking: 2 variants x 4 seeds, equal tokens

| variant | updates | tokens/update | tokens | epochs | lr | FLOPs |
| --- | --- | --- | --- | --- | --- | --- |
| static | 7,995,605 | 16,384 | 1.31e+11 | ? | 0.0001 | 7.88e+19 |
| dynamic | 7,995,605 | 16,384 | 1.31e+11 | ? | 0.0001 | 7.88e+19 |

probe squad2: fine-tuning on squad2, the number of its runs follows from its data, which is not here
probe MNLI: fine-tuning on MNLI, the number of its runs follows from its data, which is not here
probe SST-2: fine-tuning on SST-2, the number of its runs follows from its data, which is not here
The data is not here: tokens are those of full blocks.
8 pretrainings of 63,964,840 updates and 6.3e+20 FLOPs in all
"""


def plan_of(study: str, options: list[str], capsys) -> str:
    assert main(["study", str(REPOSITORY / study), *options]) == 0
    return capsys.readouterr().out


def test_a_dry_run_plans_anywhere_and_writes_nothing(tmp_path, monkeypatch, capsys):
    """As after `git clone`, without data and official files; tests/integration/test_documents.py has it with them."""
    text = (REPOSITORY / "examples" / "README.studies.md").read_text()
    (line,) = re.findall(r"^roberta study .*--dry-run.*$", text, flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    program, command, study, *options = shlex.split(line, comments=True)
    assert [program, command] == ["roberta", "study"]
    assert plan_of(study, options, capsys) == SMALL
    assert plan_of("examples/studies/table1.yaml", ["--dry-run"], capsys) == LARGE
    assert not list(tmp_path.iterdir())


def test_a_device_that_is_not_here_is_refused_before_the_pretrainings_and_not_after(tmp_path, capsys):
    data = write_data_bin(tmp_path / "data")
    study = write_study(tmp_path / "study.yaml", data=data, variants={"a": None})
    for device in ("cuda:99", "nonsense"):
        assert main(["study", str(study), "--output-dir", str(tmp_path / "out"), "--device", device]) == 2
        assert f"--device {device} cannot be used here" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["{", '{"variants": {}}', ""], ids=["cut off", "a part", "empty"])
def test_a_report_of_a_damaged_folder_names_the_file(tmp_path, capsys, content):
    study = write_study(tmp_path / "study.yaml", data=write_data_bin(tmp_path / "data"), variants={"a": None})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.json").write_text(content)
    for options in (["--report-only"], ["--dry-run"], []):
        assert main(["study", str(study), "--output-dir", str(tmp_path / "out"), *options]) == 2
        error = capsys.readouterr().err
        assert "study.json" in error and "delete it, if the study file and its data are as they were" in error


GRID = """
train: {data: DATA, task: roberta_masked_lm, criterion: roberta_masked_lm, arch: fast_roberta_tiny, batch-size: 4}
axes: {lr: [1, 2]}
seeds: [5]
metric: {log: valid, value: ppl, goal: min}
"""


@pytest.fixture
def grid(tiny_data_bin, tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text(GRID.replace("DATA", str(tiny_data_bin)))
    return path


@pytest.fixture
def sweep(grid, tmp_path):
    """`roberta sweep` of the grid into the folder out, after a change of its text."""

    def run_sweep(*words, old="", new=""):
        grid.write_text(grid.read_text().replace(old, new))
        args = build_parser("sweep").parse_args(["sweep", str(grid), "--output-dir", str(tmp_path / "out"), *words])
        return args.run(args)

    return run_sweep


def test_a_dry_run_shows_every_command_and_writes_nothing(sweep, tiny_data_bin, tmp_path, capsys):
    assert sweep("--dry-run") == 0
    text = capsys.readouterr().out
    assert "# lr-1/seed-5\n" in text
    assert f"fairseq-train {tiny_data_bin} --task roberta_masked_lm" in text
    assert f" --lr 2 --seed 5 --save-dir {tmp_path}/out/lr-2/seed-5/checkpoints --log-format json" in text
    assert "# 2 runs: 2 settings x 1 seeds" in text
    assert not (tmp_path / "out").exists()


def test_a_dry_run_on_slurm_shows_the_job_and_refuses_what_a_submission_would(sweep, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")  # without SLURM
    assert sweep("--dry-run", "--parallel", "3", "--slurm", "time=0:20:00", "partition=cpu", "cpus_per_task=2") == 0
    text = capsys.readouterr().out
    for line in ("array=0-1%2", "cpus-per-task=2", "partition=cpu", "time=20", "job-name=out"):
        assert f"#SBATCH --{line}\n" in text
    assert "gpus" not in text.partition("# the script of the job array")[2].partition("| run")[0].replace(
        "NUM_GPUS", ""
    )
    assert "| run | lr | seed |" in text and "| lr-2/seed-5 | 2 | 5 |" in text
    for words, message in (
        (["partition=cpu"], "have no time limit"),
        (["time=5", "sbatch.cpus-per-task=1"], "follows from other settings: cpus_per_gpu, or cpus_per_task without"),
        (["time=1", "signal_delay=90"], "is not shorter than --time"),
    ):
        with pytest.raises(ValueError, match=message):
            sweep("--dry-run", "--slurm", *words)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_shows_what_trackers_are_told(sweep, capsys):
    assert sweep("--dry-run", old="{data:", new="{wandb-project: mine, data:") == 0
    told = r"^WANDB_NAME=lr-[12]/seed-5 WANDB_RUN_ID=(\w+) WANDB_RESUME=allow WANDB_RUN_GROUP=out \S*fairseq-train "
    assert len(set(re.findall(told, capsys.readouterr().out, flags=re.MULTILINE))) == 2


@pytest.mark.parametrize(("options", "splits"), [("", "valid"), (" disable-validation: true,", "none")])
def test_a_metric_of_a_split_that_no_run_is_validated_on_is_refused_before_the_first_run(
    sweep, grid, tmp_path, options, splits
):
    said = rf"log: 'nope' is no split that setting lr-1 is validated on \({splits}\): name"
    grid.write_text(grid.read_text().replace("{data:", f"{{{options} data:"))
    with pytest.raises(ValueError, match=said):
        sweep(old="log: valid", new="log: nope")
    assert not (tmp_path / "out").exists()
    assert sweep("--dry-run", old="log: nope", new="log: train") == 0


@pytest.mark.parametrize(
    ("words", "new", "message"),
    [
        (["--wait"], "{data:", "--wait goes with --slurm"),
        (["--slurm", "--retries", "1"], "{data:", "--retries has no effect with --slurm"),
        (["--dry-run"], "{user-dir: robezta, data:", r"line 2, .*--user-dir robezta does not exist: correct"),
    ],
)
def test_what_is_refused_and_how(sweep, tmp_path, words, new, message):
    with pytest.raises(ValueError, match=message):
        sweep(*words, old="{data:", new=new)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_refuses_a_folder_that_the_start_would_refuse(sweep, grid, tmp_path):
    prepare(read_grid(grid), tmp_path / "out")
    with pytest.raises(ValueError, match=r"holds a run with other options: --dropout was not given and is 0\.2"):
        sweep("--dry-run", old="{data:", new="{dropout: 0.2, data:")


def test_a_report_of_what_is_there_trains_nothing(sweep, tmp_path, capsys):
    assert sweep("--report-only") == 0
    assert "2 runs: 2 waiting" in capsys.readouterr().out
    assert not list((tmp_path / "out").rglob("log.txt"))
