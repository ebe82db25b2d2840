"""What decides beside the weights: the run, its exports and the code of the card give the same answers."""

import json
import re
import subprocess
import sys

import pytest
import torch

from roberta_plugin.conversion.convert import ExportSettings, ImportSettings, export_model, import_model
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.hugging_face import import_transformers
from tests.tiny_predictors import write_finetuning, write_predictor

transformers = import_transformers()
LONG = "so it is good, or bad, and " * 4  # longer than the models read
TEXTS = ["good", "so it is good, or bad", "a bad good one", "bad bad bad bad", LONG]
QUESTIONS = [("who?", "It was Ann, so."), ("good?", "it is bad or good"), ("what?", "bad"), ("is it?", "It is so.")]
OWN = {"max_length": 30, "text_column": "text", "text_pair_column": None, "label_column": ["label"], "id_column": None}
MULTI_LABEL = {"task": "custom", "settings": {"kind": "multi_label", "labels": ["a", "b", "c"], **OWN}}
NUMBERS = {
    "single": {"threshold": 0.4, "temperature": 0.5},
    "classification": {"temperature": 2.0},
    "multi_label": {"threshold": 0.45},
    "regression": {},
    "question_answering": {"null_threshold": 0.5},
    "multiple_choice": {},
    "tagging": {},
    "fill_mask": {},
}


LOOPS = {  # the examples in the code of a card, and those that take their place
    "question_answering": ('question, passage = "Who wrote it?", "It was Ann who wrote it."\n', "question, passage", QUESTIONS),
    "tagging": ('text = "Ann lives in Oslo."\n', "text", [TEXTS[0], *TEXTS[2:4]]),  # a comma is a word of its own
}  # fmt: skip


def records_of(name):
    return {
        "classification": [{"text": text, "text_pair": "it is so"} for text in TEXTS],
        "regression": [{"text": text, "text_pair": LONG} for text in TEXTS],
        "question_answering": [{"question": question, "context": text} for question, text in QUESTIONS],
        "multiple_choice": [{"context": text, "question": "is it", "options": ["good", "bad"]} for text in TEXTS],
        "fill_mask": [{"text": f"{text} <mask>"} for text in TEXTS[:4]],
    }.get(name, [{"text": text} for text in TEXTS])


def answers(folder, name):
    return list(iterate_predictions(PredictSettings(model=folder, device="cpu"), records_of(name)))


def rounded(value):
    """Numbers within the parity of exports."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [(key, rounded(each)) for key, each in items]
    return pytest.approx(value, abs=2e-5) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of fine-tunings, whose thresholds lie between the probabilities of the examples."""
    folder, runs = tmp_path_factory.mktemp("runs"), {}
    for name, numbers in NUMBERS.items():
        (folder / f"{name}-model").mkdir()
        model = write_predictor(folder / f"{name}-model", "classification" if name == "multi_label" else name)
        state = torch.load(model / "model.pt", weights_only=False)
        if name == "multi_label":
            state["task_state"] = {"data": MULTI_LABEL}
            torch.save(state, model / "model.pt")
        middle = {}
        if name in ("single", "multi_label", "question_answering"):  # where half of the examples lie on each side
            plain = answers(model, name)
            found = [list(each["probabilities"].values())[1] for each in plain] if name != "question_answering" else []
            values = sorted(found or [each["no_answer_probability"] for each in plain])
            limit = (values[len(values) // 2] + values[len(values) // 2 - 1]) / 2
            if name == "single":  # of probabilities of divided logits
                odds = (limit / (1 - limit)) ** (1 / numbers["temperature"])
                limit = odds / (1 + odds)
            middle = {next(each for each in numbers if "threshold" in each): limit}
        runs[name] = write_finetuning(folder / name, model, {**numbers, **middle})
    return runs


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    return {
        name: export_model(ExportSettings(checkpoint=run, to="huggingface", output_dir=folder / name))
        for name, run in runs.items()
    }


@pytest.mark.parametrize("name", NUMBERS)
def test_an_export_answers_as_its_run_and_so_does_its_import(runs, exported, tmp_path, name):
    wanted = answers(runs[name], name)
    done = exported[name]
    import_model(ImportSettings(source=done.folder, output_dir=tmp_path / "imported"))
    export_model(ExportSettings(checkpoint=tmp_path / "imported", to="huggingface", output_dir=tmp_path / "again"))
    folders = [done.folder, tmp_path / "imported", tmp_path / "again"]
    if name == "single":
        pytest.importorskip("onnxscript")
        export_model(ExportSettings(checkpoint=runs[name], to="onnx", output_dir=tmp_path / "onnx"))
        folders.append(tmp_path / "onnx")
    for folder in folders:
        assert rounded(answers(folder, name)) == [(n, rounded(each)) for n, each in enumerate(wanted)], folder
    theirs = transformers.AutoConfig.from_pretrained(done.folder)
    assert getattr(theirs, "decides_by", {}).keys() == NUMBERS[name].keys(), "what transformers saves keeps them"
    has_numbers = bool(NUMBERS[name])
    assert any("evaluated with" in note for note in done.notes) is has_numbers
    for file in ("config.json", "conversion.json"):
        entry = json.loads((done.folder / file).read_text()).get("decides_by")
        assert (entry or {}).keys() == NUMBERS[name].keys()


@pytest.fixture(scope="module")
def printed(exported):
    """What the code of each card prints for the examples, in one fresh process."""
    blocks = {}
    for name, done in exported.items():
        (code,) = re.findall(r"```python\n(.*?)```", (done.folder / "README.md").read_text(), flags=re.DOTALL)
        code = code.replace('"FOLDER"', repr(str(done.folder)))
        if name in LOOPS:
            line, names, values = LOOPS[name]
            assert line in code
            setup, _, rest = code.partition(line)
            rest = "".join(f"    {each}\n" for each in rest.splitlines())
            code = f"{setup}for {names} in {values!r}:\n{rest}"
        elif name == "multiple_choice":
            example = '"She opens the hood.", "Then, she", ["drives.", "looks at the engine."]'
            code = code.replace(example, repr((LONG, "is it", ["good", "bad"])))
        else:
            texts = records_of(name)
            texts = texts if name in ("classification", "regression") else [each["text"] for each in texts]
            example = r'\[\{"text": "A text.*?\}\]|\["A text.*?\]|"A text.*?"'
            code, number = re.subn(example, repr(texts).replace("\\", "\\\\"), code)
            assert number == 1
        blocks[name] = code
    program = (
        "import contextlib, io, json, sys\nfound = {}\n"
        "for name, code in json.load(sys.stdin).items():\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out:\n        exec(code, {})\n"
        "    found[name] = out.getvalue()\nprint(json.dumps(found))"
    )
    done = subprocess.run([sys.executable, "-c", program], input=json.dumps(blocks), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_code_of_the_card_gives_the_answers_of_predict(runs, printed):
    lines = {name: text.splitlines() for name, text in printed.items()}
    wanted = {name: answers(run, name) for name, run in runs.items()}
    for name in ("single", "classification"):
        assert len({each["label"] for each in wanted["single"]}) == 2
        assert [line.split()[0] for line in lines[name]] == [each["label"] for each in wanted[name]]
        shown = [float(line.split()[1]) for line in lines[name]]
        assert shown == pytest.approx([each["probability"] for each in wanted[name]], abs=1e-4)
    found = [sorted(json.loads(line.replace("'", '"'))) for line in lines["multi_label"]]
    assert found == [each["labels"] for each in wanted["multi_label"]]
    assert len(set(map(str, found))) > 1
    scores = [float(each) for each in re.findall(r"'score': ([-\d.e]+)", printed["regression"])]
    assert scores == pytest.approx([each["score"] for each in wanted["regression"]], abs=1e-4)
    assert lines["question_answering"][1::2] == [each["answer"] for each in wanted["question_answering"]]
    null = [each["no_answer_probability"] for each in wanted["question_answering"]]
    assert [float(each) for each in lines["question_answering"][::2]] == pytest.approx(null, abs=1e-4)
    assert "" in lines["question_answering"][1::2]
    tags = [tag for number in (0, 2, 3) for tag in wanted["tagging"][number]["tags"]]
    assert [line.split()[1] for line in lines["tagging"]] == tags
    (line,) = lines["multiple_choice"]
    assert line.split()[0] == wanted["multiple_choice"][4]["option"]
