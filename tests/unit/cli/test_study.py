"""`roberta study`: the README's dry run, and what is refused at once; whole studies: tests/integration/test_study.py."""

import re
import shlex

import pytest

from roberta_plugin.cli import main
from tests.conftest import REPOSITORY
from tests.tiny_corpus import write_data_bin
from tests.tiny_study import write_study


def plan_of(study: str, options: list[str], capsys) -> str:
    assert main(["study", str(REPOSITORY / study), *options]) == 0
    return capsys.readouterr().out


def test_the_dry_run_of_the_readme_plans_anywhere_and_writes_nothing(tmp_path, monkeypatch, capsys):
    """As after `git clone`, without data and official files; tests/integration/test_documents.py has it with them."""
    text = (REPOSITORY / "examples" / "README.studies.md").read_text()
    (line,) = re.findall(r"^roberta study .*--dry-run.*$", text, flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    program, command, study, *options = shlex.split(line, comments=True)
    assert [program, command] == ["roberta", "study"]
    printed = plan_of(study, options, capsys)
    assert "2 variants x 3 seeds, equal tokens" in printed
    assert "The data is not here: tokens are those of full blocks." in printed
    assert re.search(r"^6 trainings, .* FLOPs \(pretraining .*, fine-tuning 0\.00e\+00\)$", printed, flags=re.MULTILINE)
    assert not list(tmp_path.iterdir())


def test_a_plan_says_that_the_flops_of_a_probe_without_data_are_not_in_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    printed = plan_of("examples/studies/table1.yaml", ["--dry-run"], capsys)
    assert "probe SST-2: fine-tuning on SST-2, data not prepared: its FLOPs are not in the sum" in printed
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
    for options in (["--report-only"], []):
        assert main(["study", str(study), "--output-dir", str(tmp_path / "out"), *options]) == 2
        error = capsys.readouterr().err
        assert "study.json" in error and "delete this folder" in error
