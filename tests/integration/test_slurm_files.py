"""What slurm/ ships: options that fairseq-train knows, the paper's numbers, scripts that SLURM runs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from roberta_plugin.data.mmap_tokens import MmapTokens
from roberta_plugin.experiments.sweeps.grid import read_grid
from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.launch.recipe import complete, load_recipe
from roberta_plugin.launch.resources import check_resources, minutes_of
from tests.conftest import REPOSITORY
from tests.slurm_cluster import needs_slurm, slurm_cluster, talking_to, wait_for

pytestmark = pytest.mark.integration
FOLDER = REPOSITORY / "slurm"
# The paper's Table 9; what fairseq calls these.
TABLE_9 = {
    "base": {"encoder_layers": 12, "encoder_embed_dim": 768, "encoder_ffn_embed_dim": 3072, "lr": [6e-4]},
    "large": {"encoder_layers": 24, "encoder_embed_dim": 1024, "encoder_ffn_embed_dim": 4096, "lr": [4e-4]},
}
TABLE_9["base"] |= {"encoder_attention_heads": 12, "warmup_updates": 24_000}
TABLE_9["large"] |= {"encoder_attention_heads": 16, "warmup_updates": 30_000}
SHARED = {
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "weight_decay": 0.01,
    "max_update": 500_000,
    "total_num_update": 500_000,
    "adam_eps": 1e-6,
    "clip_norm": 0.0,
    "tokens_per_sample": 512,
    "mask_prob": 0.15,
    "lr_scheduler": "polynomial_decay",
    "seed": 1,
}
# fairseq's namespace also holds what differs between the two ways of starting; only `roberta launch` saves by the clock.
PLACES = {
    "save_interval_updates",
    "save_dir",
    "distributed_world_size",
    "distributed_port",
    "user_dir",
    "data",
    "batch_size_valid",
}


def options_in(recipe):
    return train_arguments.parse(complete(recipe))


@pytest.mark.parametrize("size", TABLE_9)
def test_a_recipe_has_the_papers_numbers(size):
    recipe = load_recipe(FOLDER / f"pretrain_{size}.yaml", flags={})
    assert (recipe.nodes, recipe.gpus_per_node, recipe.num_gpus) == (128, 8, 1024)
    parsed = vars(options_in(recipe))
    for name, value in {**SHARED, **TABLE_9[size]}.items():
        is_number = isinstance(value, int | float)  # some of fairseq's options are strings until they are used
        found = float(parsed[name]) if is_number else parsed[name]
        assert found == value, name
    assert re.findall(r"[\d.]+", parsed["adam_betas"]) == ["0.9", "0.98"]
    assert parsed["batch_size"] * int(parsed["update_freq"][0]) * recipe.num_gpus == 8192
    assert parsed["bf16"] is True
    assert minutes_of(recipe.time) == 24 * 60
    assert recipe.checkpoint_minutes >= 10
    assert parsed["save_interval_updates"] == 0, "on 1,024 GPUs that would be twice a minute"


@pytest.mark.parametrize("nodes", [1, 4, 32, 128])
def test_the_batch_stays_the_papers_on_fewer_nodes(nodes):
    recipe = load_recipe(FOLDER / "pretrain_base.yaml", flags={"nodes": nodes})
    parsed = options_in(recipe)
    assert parsed.batch_size * int(parsed.update_freq[0]) * 8 * nodes == 8192


def test_every_grid_file_parses_and_its_options_exist():
    paths = sorted(FOLDER.glob("sweep_*.yaml"))
    assert len(paths) >= 2
    for path in paths:
        grid = read_grid(path)
        if grid.slurm:
            check_resources(grid.slurm)
        for run in {run.cell: run for run in grid.runs}.values():
            parsed = train_arguments.parse(run.arguments_in(Path("run"), grid.metric))
            assert parsed.max_update == int(parsed.total_num_update) > int(parsed.warmup_updates) > 0
            assert parsed.save_interval_updates == parsed.validate_interval_updates, "the best update must be saved"


def test_table_3s_rows():
    grid = read_grid(FOLDER / "sweep_table3.yaml")
    rows = {}
    for run in grid.runs:
        parsed = train_arguments.parse(run.arguments_in(Path("run"), grid.metric))
        batch = parsed.batch_size * int(parsed.update_freq[0]) * grid.slurm.gpus_per_node
        rows[run.cell] = (batch, parsed.max_update, parsed.lr)
    assert list(rows.values()) == [(256, 1_000_000, [1e-4]), (2048, 125_000, [7e-4]), (8192, 31_000, [1e-3])]
    assert {run.seed for run in grid.runs} == {"1", "2", "3"}


def stub(folder, name, body):
    """A program of this name in front of the real one."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{body}\n")
    path.chmod(0o755)


def run_script(name, *words, tmp_path, **variables):
    environment = {**os.environ, **variables, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", str(FOLDER / name), *words],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def words_of_fairseq(stdout):
    words = shlex.split(stdout)
    return words[words.index("fairseq-train") + 1 :]


@pytest.mark.parametrize("size", TABLE_9)
def test_a_batch_script_and_its_recipe_train_the_same(size, tmp_path):
    stub(tmp_path / "bin", "srun", 'printf "%q " "$@"')
    done = run_script(
        "pretrain.sbatch", size, "data-bin/pretrain", tmp_path=tmp_path, SLURM_NTASKS="1024", SLURM_JOB_ID="31"
    )
    assert done.returncode == 0, done.stderr
    words = words_of_fairseq(done.stdout)
    by_script = vars(train_arguments.parse(words))
    by_recipe = vars(options_in(load_recipe(FOLDER / f"pretrain_{size}.yaml", flags={})))
    differing = {name for name in by_recipe if by_script[name] != by_recipe[name]} - PLACES
    assert not differing
    assert (by_script["distributed_world_size"], by_script["distributed_port"]) == (1024, 10_031)
    assert by_script["data"] == "data-bin/pretrain"


@pytest.mark.parametrize(("tasks", "batch_size", "update_freq"), [(8, 8, 128), (16, 32, 16), (1024, 4, 2)])
def test_a_batch_script_accumulates_to_8192(tasks, batch_size, update_freq, tmp_path):
    stub(tmp_path / "bin", "srun", 'printf "%q " "$@"')
    done = run_script(
        "pretrain.sbatch",
        *("base", "d", "--max-update", "7"),
        tmp_path=tmp_path,
        SLURM_NTASKS=str(tasks),
        SLURM_JOB_ID="1",
        BATCH_SIZE=str(batch_size),
    )
    parsed = train_arguments.parse(words_of_fairseq(done.stdout))
    assert (parsed.batch_size, parsed.update_freq[0], parsed.max_update) == (batch_size, update_freq, 7)


def test_a_batch_script_refuses_what_does_not_add_up(tmp_path):
    stub(tmp_path / "bin", "srun", "echo started")
    done = run_script("pretrain.sbatch", "base", "d", tmp_path=tmp_path, SLURM_NTASKS="24", SLURM_JOB_ID="1")
    assert done.returncode == 2
    assert "24 GPUs x 8 sequences do not divide 8192" in done.stderr
    assert "started" not in done.stdout
    assert run_script("pretrain.sbatch", "base", tmp_path=tmp_path).returncode == 1
    assert run_script("pretrain.sbatch", "huge", "d", tmp_path=tmp_path).returncode == 2


def test_binarize_needs_no_merge_and_may_run_again(shared_text, tmp_path):
    """Two parts of three files, one of them again: all tokens of the whole, in data-bins that train together."""
    stub(tmp_path / "bin", "roberta", f'exec {shlex.quote(sys.executable)} -m roberta_plugin.cli "$@"')
    files, tokenizer = shared_text
    (tmp_path / "files.txt").write_text("\n".join(map(str, files)) + "\n\n")
    words = ["2", str(tmp_path / "files.txt"), str(tokenizer), str(tmp_path / "parts"), "--workers", "1"]
    for task in ("0", "1"):
        done = run_script("binarize.sbatch", *words, tmp_path=tmp_path, SLURM_ARRAY_TASK_ID=task)
        assert done.returncode == 0, done.stderr
    parts = [tmp_path / "parts" / f"part-{task}-of-2" for task in (0, 1)]
    before = (parts[0] / "train.bin").stat().st_mtime_ns
    assert run_script("binarize.sbatch", *words, tmp_path=tmp_path, SLURM_ARRAY_TASK_ID="0").returncode == 0
    assert (parts[0] / "train.bin").stat().st_mtime_ns == before, "a part that was done was done again"

    from roberta_plugin.cli import main

    order = [files[0], files[2], files[1]]
    whole = ["--train", *map(str, order), "--output-dir", str(tmp_path / "whole"), "--workers", "1", "--no-progress"]
    assert main(["binarize", "--tokenizer", str(tokenizer), *whole]) == 0
    found = [token for part in parts for token in MmapTokens(part / "train").tokens.tolist()]
    assert found == MmapTokens(tmp_path / "whole" / "train").tokens.tolist()
    assert len(found) > 100


def test_binarize_says_what_is_wrong(tmp_path):
    (tmp_path / "files.txt").write_text("a.txt\n")
    words = ["2", str(tmp_path / "files.txt"), "tokenizer", str(tmp_path / "parts")]
    done = run_script("binarize.sbatch", *words, tmp_path=tmp_path, SLURM_ARRAY_TASK_ID="2")
    assert (done.returncode, "Array task 2 of 2 parts" in done.stderr) == (2, True)
    done = run_script("binarize.sbatch", *words, tmp_path=tmp_path, SLURM_ARRAY_TASK_ID="1")
    assert (done.returncode, "has no file for part 1" in done.stdout) == (0, True)


@pytest.fixture(scope="module")
def shared_text(tmp_path_factory):
    """Three text files and a tokenizer made from them."""
    from roberta_plugin.cli import main

    folder = tmp_path_factory.mktemp("text")
    files = []
    for number in range(3):
        files.append(folder / f"{number}.txt")
        files[-1].write_text("".join(f"line {i} of file {number}, a plain sentence.\n" for i in range(40)))
    words = ["--vocab-size", "300", "--output-dir", str(folder / "tokenizer")]
    assert main(["tokenizer", "train", "--input", *map(str, files), *words]) == 0
    return files, folder / "tokenizer"


@needs_slurm
def test_a_real_slurm_starts_a_rank_for_each_gpu(tmp_path_factory, monkeypatch):
    """Two of the 128 nodes; a stub in the place of fairseq-train writes what each rank was told."""
    folder = tmp_path_factory.mktemp("slurm")
    body = 'echo "$SLURM_PROCID $SLURM_LOCALID $CUDA_VISIBLE_DEVICES $*" > ' + str(folder / "told-$SLURM_PROCID")
    stub(folder / "bin", "fairseq-train", body)
    with slurm_cluster(folder, num_nodes=2) as cluster, talking_to(cluster):
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        job = cluster.call(
            *("sbatch", "--parsable", "--nodes=2", "--cpus-per-task=1", f"--output={folder}/job.log"),
            *("--export=ALL,PATH=" + os.environ["PATH"], str(FOLDER / "pretrain.sbatch"), "large", "some-data"),
        ).strip()
        wait_for(lambda: not cluster.call("squeue", "--noheader").strip(), 60, "the job's end")
        assert cluster.state(job) == "COMPLETED", (folder / "job.log").read_text()
    told = {int(path.name.split("-")[1]): path.read_text().split(maxsplit=3) for path in folder.glob("told-*")}
    assert sorted(told) == list(range(16))
    assert all(int(local) == rank % 8 for rank, (_, local, _, _) in told.items())
    assert {gpus for _, _, gpus, _ in told.values()} == {"0,1,2,3,4,5,6,7"}
    assert len({words for _, _, _, words in told.values()}) == 1
    parsed = train_arguments.parse(shlex.split(told[0][3]))
    assert parsed.distributed_world_size == 16
    assert parsed.batch_size * parsed.update_freq[0] * 16 == 8192
