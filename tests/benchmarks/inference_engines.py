"""The engines that `bench_inference` compares: each a process of its own, which answers requests of its standard input.

A request is a line of JSON, {"task", "texts", "batch", "answers"}; the reply is a line with the seconds of wall time, and
with `answers` what the texts were answered by. All engines have the weights of one random model (seed 0) and its ids.

    ours-*            RobertaHub
    pipeline-*        Hugging Face's pipeline, the model in fp32 or bf16
    onnxruntime-*     Hugging Face's encoder as torch exports it; int8: quantize_dynamic, per channel
    ctranslate2-*     the same encoder converted
    openvino-*        the ONNX model, with the hint fp32 or bf16

The last three have the encoder alone: they compute features, for batches that our hub makes.
"""

from __future__ import annotations

import fcntl
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roberta_plugin.conversion.huggingface_parameters import to_hugging_face
from roberta_plugin.conversion.portable import Head
from roberta_plugin.hub import RobertaHub, running
from roberta_plugin.models.precision import set_precision
from tests.conftest import SHARED_DATA
from tests.hugging_face import import_transformers
from tests.hugging_face_pipelines import classifier_of, config_of, masked_lm_of, random_hub, tokenizer_of

LABELS, TAGS = ["contradiction", "neutral", "entailment"], ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
Run = Callable[[list[str], int], Any]
"""Texts and a batch size (positions of a batch, or texts for the pipelines) -> answers."""


def make_hub(size: str, num_layers: int) -> RobertaHub:
    """The random model, cut to its first layers, with a head for classes and one for tags."""
    hub = random_hub(SHARED_DATA / "gpt2_bpe", size=size, heads={"task": len(LABELS)})
    torch.manual_seed(1)
    hub.model.register_head("tags", "token", num_classes=len(TAGS))
    encoder = hub.model.encoder.sentence_encoder
    encoder.layers = encoder.layers[:num_layers]
    hub.model.cfg.encoder_layers = num_layers
    return hub.eval()


def tagger_of(transformers: Any, hub: RobertaHub) -> Any:
    """RobertaForTokenClassification with the hub's weights."""
    model = transformers.RobertaForTokenClassification(config_of(transformers, hub, id2label=dict(enumerate(TAGS))))
    head = Head(kind="tagging", name="tags", num_outputs=len(TAGS))
    missing, unexpected = model.load_state_dict(to_hugging_face({"model": hub.model.state_dict()}, head), strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    return model.eval()


def ours(hub: RobertaHub, precision: str) -> dict[str, Run]:
    """Our hub."""
    set_precision(hub.model, precision, torch.device("cpu"))
    return {
        "features": lambda texts, most: [f[0] for f in hub.extract_features(texts, max_tokens=most)],
        "masks": lambda texts, most: [f[0].token for f in hub.fill_mask(masked(texts), max_tokens=most)],
        "classes": lambda texts, most: hub.predict("task", texts, max_tokens=most).argmax(1).tolist(),
        "tags": lambda texts, most: [x.argmax(1).tolist() for x in hub.predict("tags", texts, max_tokens=most)],
    }


def pipelines(hub: RobertaHub, precision: str) -> dict[str, Run]:
    """Hugging Face's pipelines; only the first task that is asked for is in memory."""
    transformers = import_transformers()
    transformers.logging.set_verbosity_error()
    tokenizer = tokenizer_of(transformers, hub)
    made: dict[str, Any] = {}

    def pipeline(task: str) -> Any:
        if task not in made:
            made.clear()
            model = {
                "features": lambda: masked_lm_of(transformers, hub).roberta,
                "masks": lambda: masked_lm_of(transformers, hub),
                "classes": lambda: classifier_of(transformers, hub, "task", labels=LABELS),
                "tags": lambda: tagger_of(transformers, hub),
            }[task]()
            model = model.bfloat16() if precision == "bf16" else model
            names = ("feature-extraction", "fill-mask", "text-classification", "token-classification")
            name = dict(zip(("features", "masks", "classes", "tags"), names, strict=True))[task]
            made[task] = transformers.pipeline(name, model=model, tokenizer=tokenizer, device="cpu")
        return made[task]

    def features(texts: list[str], size: int) -> list[Any]:
        return [f[0, 0].float() for f in pipeline("features")(texts, batch_size=size, return_tensors=True)]

    return {
        "features": features,
        "masks": lambda texts, size: [
            found[0]["token_str"] for found in pipeline("masks")(masked(texts), batch_size=size)
        ],
        "classes": lambda texts, size: [
            LABELS.index(found["label"]) for found in pipeline("classes")(texts, batch_size=size)
        ],
        "tags": lambda texts, size: list(pipeline("tags")(texts, batch_size=size)),
    }


def encoder(hub: RobertaHub, name: str, precision: str, folder: Path) -> dict[str, Run]:
    """An engine that has the encoder alone."""
    make = {"onnxruntime": _onnxruntime, "ctranslate2": _ctranslate2, "openvino": _openvino}[name]
    compute = make(hub, precision, folder)

    def run(texts: list[str], most: int) -> list[Any]:
        sequences = hub.codec.sequences(texts)
        return running.map_batches(
            hub.model,
            sequences,
            lambda batch: list(compute(batch)[:, 0]),
            pad_id=1,
            device=torch.device("cpu"),
            max_tokens=most,
        )

    return {"features": run}


def _onnx(hub: RobertaHub, folder: Path) -> Path:
    """Hugging Face's encoder as an ONNX file, exported once."""
    path = folder / "model.onnx"
    if path.is_file():
        return path
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = masked_lm_of(import_transformers(), hub).roberta

    class Graph(torch.nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
            return model(ids, attention_mask=mask)[0]

    ids = torch.full((2, 8), 5)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    folder.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        torch.onnx.export(
            Graph().eval(),
            (ids, torch.ones_like(ids)),
            folder / "made.onnx",
            input_names=["ids", "mask"],
            dynamic_shapes=(sizes, sizes),
            opset_version=18,
            dynamo=True,
            external_data=False,
        )
    proto = onnx.load(folder / "made.onnx")
    del proto.graph.value_info[:]
    onnx.save(proto, folder / "made.onnx")
    quantize_dynamic(folder / "made.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8, per_channel=True)
    (folder / "made.onnx").rename(path)
    return path


def _feed(batch: running.Batch) -> tuple[Any, Any]:
    return batch.tokens.numpy(), batch.tokens.ne(1).long().numpy()


def _onnxruntime(hub: RobertaHub, precision: str, folder: Path) -> Callable[[running.Batch], Any]:
    import onnxruntime

    path = _onnx(hub, folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    path = path if precision == "fp32" else folder / "int8.onnx"
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return lambda batch: session.run(None, dict(zip(names, _feed(batch), strict=True)))[0]


def _openvino(hub: RobertaHub, precision: str, folder: Path) -> Callable[[running.Batch], Any]:
    import openvino

    options = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "NUM_STREAMS": 1}
    hint = {"fp32": "f32", "bf16": "bf16"}[precision]
    model = openvino.Core().compile_model(_onnx(hub, folder), "CPU", {"INFERENCE_PRECISION_HINT": hint, **options})
    return lambda batch: np.array(model(_feed(batch))[0])


def _ctranslate2(hub: RobertaHub, precision: str, folder: Path) -> Callable[[running.Batch], Any]:
    import ctranslate2
    from ctranslate2.converters import TransformersConverter

    made = folder / "ctranslate2"
    if not (made / "model.bin").is_file():
        transformers, source = import_transformers(), folder / "huggingface"
        masked_lm_of(transformers, hub).roberta.save_pretrained(source)
        tokenizer = tokenizer_of(transformers, hub)
        tokenizer.add_tokens([f"madeupword{number:04d}" for number in range(len(hub.vocabulary) - len(tokenizer))])
        tokenizer.save_pretrained(source)
        config = json.loads((source / "config.json").read_text())  # its converter reads an entry that is gone
        (source / "config.json").write_text(json.dumps({**config, "position_embedding_type": "absolute"}))
        TransformersConverter(str(source)).convert(str(made), force=True)
    kind = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8_float32"}[precision]
    model = ctranslate2.Encoder(str(made), compute_type=kind, intra_threads=torch.get_num_threads())

    def compute(batch: running.Batch) -> Any:
        rows = [row[:length].tolist() for row, length in zip(batch.tokens, batch.lengths, strict=True)]
        return np.array(model.forward_batch(rows).last_hidden_state)

    return compute


def masked(texts: list[str]) -> list[str]:
    """The texts with a mask at the end."""
    return [f"{text} <mask>." for text in texts]


def serve(engine: str, num_layers: int, num_threads: int, folder: Path) -> None:
    """Answer requests until the input ends; the first line says that the engine is ready."""
    torch.set_num_threads(num_threads)
    name, _, precision = engine.partition("-")
    hub = make_hub("base", num_layers)
    own = folder / f"layers{num_layers}"
    makers = {"ours": ours, "pipeline": pipelines}
    if name in makers:
        runs = makers[name](hub, precision)
    else:
        own.mkdir(parents=True, exist_ok=True)
        with open(own / "lock", "w") as lock:  # engines start at once, and several need the same converted file
            fcntl.flock(lock, fcntl.LOCK_EX)
            runs = encoder(hub, name, precision, own)
    reply({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        texts = request["texts"]
        with torch.inference_mode():
            started, cpu = time.perf_counter(), time.process_time()
            found = runs[request["task"]](texts, request["batch"])
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answers = list(found) if request["answers"] else None
        reply({"seconds": seconds, "cpu": cpu, "megabytes": megabytes, "answers": answers})


def reply(content: dict[str, Any]) -> None:
    """A line for the benchmark; other output of the engines goes to stderr."""
    OUTPUT.write(json.dumps(content, default=lambda value: value.tolist()) + "\n")  # tensors, arrays and their numbers
    OUTPUT.flush()


if __name__ == "__main__":
    OUTPUT, sys.stdout = sys.stdout, sys.stderr
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
