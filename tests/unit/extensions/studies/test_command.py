"""`roberta study`: dry runs, refusals, options that would change nothing, and the end by SIGTERM."""

import importlib
import os
import re
import shlex
import signal

import pytest

from roberta_plugin.cli import main
from tests.conftest import REPOSITORY
from tests.tiny_corpus import write_data_bin
from tests.tiny_study import write_study

SMALL = """\
Table 1, small - static against dynamic masking: 2 variants x 3 seeds, equal tokens

| variant | updates | tokens/update | tokens | epochs | lr | FLOPs |
| --- | --- | --- | --- | --- | --- | --- |
| static | 3,906 | 1,024 | 4e+06 | ? | 0.003 | 5.15e+13 |
| dynamic | 3,906 | 1,024 | 4e+06 | ? | 0.003 | 5.15e+13 |

probe ppl: perplexity
The data is not here: tokens are counted for full blocks.
6 pretrainings of 23,436 updates and 3.09e+14 FLOPs in all
"""
LARGE = """\
Table 1, static against dynamic masking: 2 variants x 4 seeds, equal tokens

| variant | updates | tokens/update | tokens | epochs | lr | FLOPs |
| --- | --- | --- | --- | --- | --- | --- |
| static | 7,995,605 | 16,384 | 1.31e+11 | ? | 0.0001 | 7.88e+19 |
| dynamic | 7,995,605 | 16,384 | 1.31e+11 | ? | 0.0001 | 7.88e+19 |

probe squad2: fine-tuning
probe MNLI: fine-tuning
probe SST-2: fine-tuning
The data is not here: tokens are counted for full blocks.
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
def test_a_damaged_record_is_named(tmp_path, capsys, content):
    study = write_study(tmp_path / "study.yaml", data=write_data_bin(tmp_path / "data"), variants={"a": None})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.json").write_text(content)
    for options in (["--dry-run"], []):
        assert main(["study", str(study), "--output-dir", str(tmp_path / "out"), *options]) == 2
        error = capsys.readouterr().err
        assert "study.json" in error and "delete it if the study file and its data are unchanged" in error


@pytest.mark.parametrize("name", ["retries", "gpus-per-run"])
def test_options_without_an_effect_on_slurm_are_refused(name, capsys):
    assert main(["study", "s.yaml", "--slurm", "time=1", f"--{name}", "2"]) == 2
    assert f"--{name} has no effect with --slurm (gpus_per_node under `slurm` in the file" in capsys.readouterr().err


def test_sigterm_stops_trainings_in_order_as_ctrl_c_does(tmp_path, monkeypatch, capsys):
    """Else it would end the command alone, and leave its trainings running."""
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("roberta_plugin.extensions.studies.study")
    monkeypatch.setattr(module, "run_study", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    assert main(["study", "study.yaml"]) == 143
    assert "interrupted: the same command resumes" in capsys.readouterr().err
