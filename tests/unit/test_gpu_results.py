"""Reports of a GPU become the results file and a row of the README's table, which its tests accept."""

import re
import shutil

import pytest

from tests.benchmarks.bench_gpu import ladder
from tests.benchmarks.gpu_results import publish
from tests.benchmarks.training_steps import Step
from tests.conftest import REPOSITORY
from tests.refusals import refused

HEAD = "# GPU report\n\nNVIDIA H200; Python 3.12.1, torch 2.11.0, cuDNN 91900.\n\nCommand: `x`\n\n"
STEPS = """## base, 64 x 512 tokens, bf16, dropout 0.1, of attention 0.1

| side | tokens/s | ms (min-max) | MFU % | HFU % | GiB | x fairseq |
| --- | --- | --- | --- | --- | --- | --- |
| ours, packed rows | 500,000 | 65.5 (65.0-66.0) | 30.1 | 29.0 | 20.0 | - |
| fairseq | 250,000 | 131.1 (130.0-132.0) | 15.1 | - | 30.0 | 1.00 |
| ours, packed rows, compiled | 600,000 | 54.6 (54.0-55.0) | 36.2 | 35.0 | 18.0 | 2.40 |
| Hugging Face | 400,000 | 81.9 (81.0-83.0) | 24.0 | - | 25.0 | 1.60 |
| Hugging Face, compiled | not finished in 100 s | | | | | |
| ours, packed rows, compiled, products in fp8 | 800,000 | 41.0 (40.0-42.0) | 48.0 | 47.0 | 18.0 | 3.20 |
| ours, packed rows, 8 blocks | 900,000 | 4.5 (4.4-4.6) | 54.0 | 53.0 | 9.0 | 3.60 |

"""


@pytest.fixture
def copy(tmp_path):
    """What is written to, of the repository."""
    for name in ("README.md", "tests/benchmarks/results/README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    return tmp_path


def report(folder, text, name="a.md"):
    (folder / name).write_text(text)
    return folder / name


def test_two_reports_become_a_file_and_a_row_of_both_tables_once(copy):
    paths = [report(copy, HEAD + STEPS), report(copy, HEAD + "## Kernels\n\n| a | b |\n", "b.md")]
    path = publish(paths, copy)
    assert publish(paths, copy) == path
    text = path.read_text()
    assert text.count("600,000") == text.count("## Kernels") == 1 and re.fullmatch(r"gpu_h200_\d{6}.md", path.name)
    result = "2.40 times fairseq's speed, 1.50 times Hugging Face's best"
    assert f"{result}; the share of the GPU's peak (MFU) is 36.2 %." in text
    for page, target in (
        ("README.md", f"tests/benchmarks/results/{path.name}"),
        (path.with_name("README.md"), path.name),
    ):
        rows = [line for line in (copy / page).read_text().splitlines() if "pretraining steps on a GPU" in line]
        assert rows == [f"| faster pretraining steps on a GPU (base, NVIDIA H200, bf16) | {result} | [GPU]({target}) |"]
        assert "not measured" not in (copy / page).read_text().split("## Measured")[-1].split("\n|")[0]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            ["# GPU report\n\nCPU (a rehearsal: the numbers mean nothing); x\n" + STEPS],
            "no rehearsal: these are of CPU",
        ),
        ([HEAD + STEPS, HEAD.replace("H200", "A100")], "on one GPU, .*: these are of NVIDIA A100, NVIDIA H200"),
        ([HEAD], "no table of base with steps of ours, fairseq and Hugging Face: run `bench_gpu --only steps`"),
        (["notes"], "these are of none"),
    ],
)
def test_reports_that_measure_nothing_are_refused_and_nothing_is_written(copy, texts, said):
    before = (copy / "README.md").read_text()
    paths = [report(copy, text, f"{number}.md") for number, text in enumerate(texts)]
    refused(said, publish, paths, copy)
    assert (copy / "README.md").read_text() == before


def test_a_page_without_a_place_for_the_row_is_named_and_nothing_is_written(copy):
    page = copy / "tests" / "benchmarks" / "results" / "README.md"
    page.write_text("# Results\n")
    before = (copy / "README.md").read_text()
    refused("results/README.md has no row that begins with", publish, [report(copy, HEAD + STEPS)], copy)
    assert (copy / "README.md").read_text() == before and [path.name for path in page.parent.iterdir()] == ["README.md"]


def test_rows_of_the_bench_are_those_that_the_results_look_for():
    names = [name for name, _ in ladder(Step())]
    assert {"ours, packed rows", "fairseq", "Hugging Face"} <= set(names)
    assert any("cudnn" in name for name, _ in ladder(Step(attention_dropout=0.0))) > any("cudnn" in n for n in names)
