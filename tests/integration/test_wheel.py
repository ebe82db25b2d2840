"""The wheel in an environment of its own, used outside of the clone."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.tiny_corpus import environment, train_command

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder with the commands of an environment that has the wheel, and this environment's other packages."""
    folder = tmp_path_factory.mktemp("wheel")
    source, made = folder / "source", folder / "environment"
    source.mkdir()
    for name in ("setup.py", "README.md"):
        shutil.copy(REPOSITORY / name, source)
    for name in ("roberta_plugin", "slurm", "examples"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    call([sys.executable, "setup.py", "--quiet", "bdist_wheel"], cwd=source)
    (wheel,) = (source / "dist").iterdir()
    call([sys.executable, "-m", "venv", "--without-pip", str(made)], cwd=folder)
    python = str(made / "bin" / "python")
    call([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", str(wheel)], cwd=folder)
    shutil.rmtree(source)
    (site_packages,) = made.glob("lib/python*/site-packages")
    (site_packages / "others.pth").write_text(sysconfig.get_path("purelib"))  # whose own .pth files are not read
    return made / "bin"


def call(words, *, cwd):
    variables = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=cwd, env=variables, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_plugin_and_its_recipes_are_found_from_any_folder(programs, tmp_path):
    user_dir = Path(call([programs / "roberta", "user-dir"], cwd=tmp_path).strip())
    assert user_dir.is_relative_to(programs.parent) and (user_dir / "models" / "roberta.py").is_file()
    call(["bash", "-c", f'cp -r "$({programs}/roberta user-dir --recipes)"/* .'], cwd=tmp_path)
    for name in (
        "slurm/pretrain_base.yaml",
        "slurm/apptainer.def",
        "examples/finetune/glue.sh",
        "examples/fill_mask.py",
    ):
        assert (tmp_path / name).read_bytes() == (REPOSITORY / name).read_bytes()


@pytest.mark.slow
def test_trainings_start_in_any_folder(programs, tiny_data_bin, tmp_path):
    user_dir = call([programs / "roberta", "user-dir"], cwd=tmp_path).strip()
    options = ["--max-update", "2", "--total-num-update", "10", "--disable-validation"]
    arguments = train_command(tiny_data_bin, tmp_path / "run", *options)[1:]
    arguments[arguments.index("--user-dir") + 1] = user_dir
    log = call([programs / "python", "-m", "fairseq_cli.train", *arguments], cwd=tmp_path)
    assert (tmp_path / "run" / "checkpoint_last.pt").is_file(), log
    recipe = call([programs / "roberta", "user-dir", "--recipes"], cwd=tmp_path).strip() + "/slurm/pretrain_base.yaml"
    shown = [programs / "roberta", "launch", "--config", recipe, "--dry-run", "--", tiny_data_bin]
    assert "--arch fast_roberta_base" in call(shown, cwd=tmp_path)
