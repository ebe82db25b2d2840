"""Models by name through the real commands: from a hub on the loopback, and back to it."""

import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from roberta_plugin.conversion.convert import ExportSettings, export_model
from tests.forked_training import run_forked
from tests.hub_server import Hub, running_hub
from tests.integration.test_documents import blocks
from tests.shell import shell
from tests.tiny_conversions import write_checkpoint
from tests.tiny_corpus import command, environment
from tests.tiny_glue import write_task

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

pytestmark = pytest.mark.integration

NAME = "org/tiny"


@pytest.fixture(scope="module")
def hub():
    with running_hub() as found:
        yield found


@pytest.fixture(scope="module")
def work(hub, tmp_path_factory) -> Path:
    """A folder to start commands in; the hub has a masked LM and a classifier, with code and a pickle beside them."""
    folder = tmp_path_factory.mktemp("named")
    for name, kind in ((NAME, "masked_lm"), ("org/classifier", "classification")):
        ours = write_checkpoint(folder / kind, kind, max_positions=64)
        theirs = export_model(
            ExportSettings(checkpoint=ours, to="huggingface", output_dir=folder / f"to-{kind}")
        ).folder
        (theirs / "modeling_tiny.py").write_text("raise SystemExit('code of a model has run')\n")
        (theirs / "pytorch_model.bin").write_bytes(b"a pickle")
        hub.add(name, theirs, "main", "v1")
    (folder / "texts.txt").write_text("good <mask> bad\n")
    return folder


def roberta(hub: Hub, work: Path, *arguments: str, **more: str):
    env = {**environment(), **hub.environment(work, **more)}
    return run_forked([*command("roberta"), *arguments], cwd=work, environment=env, timeout=300)


def test_a_model_by_name_answers_is_imported_and_is_found_again_without_a_network(hub, work):
    done = roberta(hub, work, "predict", NAME, "--input", "texts.txt", "--top-k", "2")
    assert done.returncode == 0, done.stderr
    assert "Fetching" in done.stderr, "the library's progress bar"
    asked = len(hub.requests)
    assert not [each for each in hub.requests if each.endswith((".py", ".bin"))]
    offline = roberta(hub, work, "predict", NAME, "--input", "texts.txt", "--top-k", "2", HF_HUB_OFFLINE="1")
    assert (offline.returncode, offline.stdout) == (0, done.stdout)
    assert len(hub.requests) == asked
    unreachable = roberta(
        hub, work, "import", f"{NAME}@v1", "--output-dir", "imported", HF_ENDPOINT="http://127.0.0.1:9"
    )
    assert unreachable.returncode == 2
    assert "no complete model of that name in the cache" in unreachable.stderr, "v1 was not asked for before"
    done = roberta(hub, work, "import", f"{NAME}@v1", "--output-dir", "imported")
    assert done.returncode == 0, done.stderr
    assert {"model.pt", "dict.txt"} <= {path.name for path in (work / "imported").iterdir()}


def test_a_data_set_of_the_hub_is_binarized_with_the_tokenizer_of_a_model(hub, work):
    texts = [f"good {number}\nor bad" for number in range(50)]
    (work / "local.jsonl").write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
    table = pyarrow.table({"text": texts})
    parquet.write_table(table, work / "texts.parquet", row_group_size=20)
    with pyarrow.ipc.new_stream(str(work / "texts.arrow"), table.schema) as stream:
        stream.write_table(table)
    files = {
        "data/all.parquet": (work / "texts.parquet").read_bytes(),
        "saved/a.arrow": (work / "texts.arrow").read_bytes(),
        "saved/state.json": b'{"_data_files": [{"filename": "a.arrow"}]}',
    }
    hub.add("org/texts", files)
    words = ["binarize", "--tokenizer", NAME, "--train", "local.jsonl", "--output-dir", "data-bin", "--workers", "1"]
    urls = ("data/all.parquet", "data/*.parquet", "saved")
    splits = [
        word for number, url in enumerate(urls) for word in ("--split", f"s{number}", f"hf://datasets/org/texts/{url}")
    ]
    done = roberta(hub, work, *words, *splits)
    assert done.returncode == 0, done.stderr
    read = [(work / "data-bin" / f"{split}.bin").read_bytes() for split in ("train", "s0", "s1", "s2")]
    assert len(set(read)) == 1
    words[words.index(NAME)], words[words.index("data-bin")] = "masked_lm", "by-path"
    assert roberta(hub, work, *words).returncode == 0
    assert (work / "by-path" / "train.bin").read_bytes() == read[0]


def test_a_model_by_name_is_fine_tuned_and_evaluated(hub, work):
    write_task(work / "raw", "SST-2", train=16, dev=8, test=4)
    words = ["--model", NAME, "--raw", "raw", "--output-dir", "tuned", "--quick", "--epochs", "1", "--max-length", "40"]
    done = roberta(hub, work, "finetune", "SST-2", *words)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "HTTP Request" not in done.stderr
    start = json.loads((work / "tuned" / "finetune.yaml").read_text())["train"]["finetune-from-model"]
    assert Path(start).parent.is_relative_to(work / "hf" / "assets" / "roberta_plugin")
    assert Path(start).name == "model.pt"
    made = Path(start).stat().st_mtime_ns
    again = roberta(hub, work, "finetune", "SST-2", *words, HF_HUB_OFFLINE="1")
    assert (again.returncode, Path(start).stat().st_mtime_ns) == (0, made), again.stderr

    hub.add(
        "org/tuned",
        export_model(ExportSettings(checkpoint=work / "tuned", to="huggingface", output_dir=work / "to-tuned")).folder,
    )
    card = ModelCard((work / "to-tuned" / "README.md").read_text()).data
    assert (card.base_model, card.datasets) == (NAME, ["nyu-mll/glue"])
    assert {(each.dataset_config, each.dataset_split, each.metric_type) for each in card.eval_results} == {
        ("sst2", "validation", "accuracy")
    }
    words = ["--data", "tuned/data", "--output-dir", "evaluated", "--split", "valid"]
    done = roberta(hub, work, "evaluate", *words, "--checkpoint", "org/tuned")
    assert done.returncode == 0, done.stderr
    by_name = json.loads((work / "evaluated" / "evaluation_valid.json").read_text())["members"][0]["metrics"]
    trained = json.loads((work / "tuned" / "results" / "evaluation_valid.json").read_text())["members"][0]["metrics"]
    assert by_name == pytest.approx(trained, abs=1e-3)


def test_an_export_is_uploaded_by_the_command_and_a_token_is_asked_for_first(hub, work):
    words = ["export", "org/classifier", "--to", "huggingface", "--output-dir", "export", "--push", "me/copy"]
    refused = roberta(hub, work, *words)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"roberta export: --push me/copy: {hub.url} accepts no token of yours (")
    assert not (work / "export").exists()
    done = roberta(hub, work, *words, "--language", "en", "--license", "mit", HF_TOKEN="hf_write")
    assert done.returncode == 0, done.stderr
    assert f"uploaded: {hub.url}/me/copy/commit/" in done.stdout
    card = ModelCard((work / "export" / "README.md").read_text()).data
    assert (card.base_model, card.language, card.license) == ("org/classifier", ["en"], "mit")


def test_the_documents_names_and_upload_run_as_written(hub, work, monkeypatch):
    hub.models["FacebookAI/roberta-base"] = hub.models[NAME]
    for name, value in hub.environment(work, HF_TOKEN="hf_write").items():
        monkeypatch.setenv(name, value)
    (names,) = blocks("examples/README.python.md", "names")
    shell(names, work)
    assert (work / "imported" / "roberta-base" / "model.pt").is_file()
    (upload,) = blocks("examples/README.conversion.md", "upload")
    shell(upload.replace("runs/tour", "masked_lm").replace("ORG/NAME", "me/tour"), work)
    assert hub.models["me/tour"].is_private
