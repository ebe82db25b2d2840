"""Deliberate faults in the arithmetic, the files, the options and the refusals of the package, and who is to notice.

A fault is a piece of code that occurs once in its file, and what takes its place. Where a refactoring moves or rewrites
that piece, its line here is rewritten: `breaks` then says "moved", never "noticed". The tests are files below tests/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

METRICS = (
    "unit/finetuning/kinds/test_metrics.py",
    "parity/test_custom_metrics.py",
    "parity/extensions/test_glue_metrics.py",
)
SQUAD = (
    "unit/finetuning/kinds/test_answer_scores.py",
    "parity/extensions/spans/test_squad_metric.py",
    "unit/extensions/spans",
)
TAGS = (
    "unit/extensions/tagging/test_entities.py",
    "unit/extensions/tagging/test_layout.py",
    "unit/extensions/tagging/test_benchmarks.py",
)
SENTENCES = ("unit/extensions/summaries",)
LOSS = (
    "unit/extensions/texts/test_losses.py",
    "unit/extensions/pronouns/test_losses.py",
    "parity/extensions/pronouns/test_wsc_vs_fairseq.py",
    "parity/extensions/pronouns/test_wnli_vs_superglue.py",
)
VECTORS = (
    "unit/extensions/embeddings/test_training.py",
    "parity/extensions/embeddings/test_losses_vs_sentence_transformers.py",
)
MASKS = ("unit/data/test_dynamic_masking.py", "unit/data/test_masked_lm_dataset.py")
PAIRS = (
    "unit/extensions/bert_pairs/test_pairs.py",
    "parity/extensions/bert_pairs/test_next_sentence_vs_hugging_face.py",
)
RESUME = ("unit/fairseq_workarounds/test_epoch_iterator.py", "unit/fairseq_workarounds/test_resuming.py")
ADAMW = ("unit/optim/test_adamw.py", "unit/fairseq_workarounds/test_half_precision.py")
EXPORT = (
    "unit/conversion",
    "parity/conversion/test_weights_vs_hugging_face.py",
    "parity/conversion/test_models_vs_hugging_face.py",
)
OWN = ("unit/extensions/own_tables",)

FILES, CHECKPOINTS = ("unit/test_files.py",), ("unit/test_checkpoint_files.py",)
SAVING = ("unit/fairseq_workarounds/test_checkpoints.py",)


@dataclass(frozen=True)
class Break:
    """A promise that a copy of the tree does not keep."""

    name: str
    path: str
    """Of the file below roberta_plugin/."""
    before: str
    after: str
    guard: Sequence[str]
    """Tests of which one must notice."""


def faults(path: str, guard: Sequence[str], texts: Mapping[str, tuple[str, str]]) -> list[Break]:
    """Faults of one file that the same tests are to notice, by name: the piece of code, and what takes its place."""
    return [Break(name, path, before, after, guard) for name, (before, after) in texts.items()]


BREAKS = (
    # Metrics.
    *faults("finetuning/kinds/metrics.py", METRICS, {
        "Matthews correlation of the wrong marginals": (
            "(total**2 - answered @ answered)",
            "(total**2 - predicted @ predicted)",
        ),
        "macro-F1 counts labels that do not occur": (
            "float(np.mean(class_f1s(counts)[occurs]))",
            "float(np.mean(class_f1s(counts)))",
        ),
        "equal values have the highest rank": ("(counts + 1) / 2)[group]", "counts)[group]"),
        "average precision from below": ("np.unique(-scores,", "np.unique(scores,"),
        "of equal thresholds the first": ("best[np.abs(thresholds[best] - 0.5).argmin()]", "best[0]"),
        "correlation without the weights": ("x, y = x - share @ x, y - share @ y", "x, y = x - x.mean(), y - y.mean()"),
    }),
    *faults("finetuning/kinds/metrics.py", (*METRICS, "unit/extensions/texts/glue"), {
        "MRPC and QQP by F1 alone": ("return (accuracy(counts) + f1(counts)) / 2", "return f1(counts)"),
    }),
    *faults("finetuning/kinds/metrics.py", (*METRICS, *OWN), {
        "one right label of several is exact": (
            "(answers == predictions).all(axis=1)",
            "(answers == predictions).any(axis=1)",
        ),
    }),
    *faults("extensions/texts/regression.py", (*METRICS, "unit/extensions/texts/glue"), {
        "numbers are not rounded as written": ("*self.official.limits).round(3)", "*self.official.limits)"),
    }),
    *faults("extensions/choices/kind.py", ("unit/extensions/choices",), {
        "accuracy of RACE counts questions without an answer": (
            'groups = {"accuracy": labels >= 0}',
            'groups = {"accuracy": labels >= -1}',
        ),
    }),
    # Calibration and thresholds.
    *faults("extensions/texts/classification.py", ("unit/extensions/texts/test_calibration.py",), {
        "temperature in the wrong direction": (".mean() > 0 else", ".mean() < 0 else"),
        "errors of calibration cancel out": (
            "float(np.abs(surest - right).sum() / len(best))",
            "float(abs((surest - right).sum()) / len(best))",
        ),
    }),
    *faults("extensions/texts/multi_label.py", (*OWN, "parity/test_custom_metrics.py"), {
        "several labels from above the threshold on": (
            "predictions = probabilities >= threshold",
            "predictions = probabilities > threshold + 0.01",
        ),
    }),
    *faults("extensions/spans/metrics.py", SQUAD, {
        "no answer costs nothing in the search of the threshold": ("else -1 if is_given[index] else 0", "else 0"),
    }),
    # Spans.
    *faults("finetuning/kinds/answer_scores.py", SQUAD, {
        "an is no article": (r"\b(a|an|the)\b", r"\b(a|the)\b"),
        "two empty answers are wrong in SQuAD 2.0": ("both_empty = float(may_be_empty)", "both_empty = 0.0"),
    }),
    *faults("extensions/spans/questions.py", SQUAD, {
        "no answer if one window says so": ("float(null[windows].min())", "float(null[windows].max())"),
    }),
    *faults("finetuning/layouts/windows.py", (
        "unit/finetuning/layouts/test_windows.py",
        "unit/extensions/spans/test_squad.py",
    ), {
        "the window with most context to the left": ("np.minimum(left, right) + _LENGTH_BONUS", "left + _LENGTH_BONUS"),
    }),
    *faults("extensions/spans/questions.py", SQUAD, {
        "answers of white space": ("begin[questions.is_blank(window)] = -np.inf", "pass"),
    }),
    # Tags and sentences.
    *faults("extensions/tagging/entities.py", (*TAGS, "parity/extensions/tagging/test_metrics.py"), {
        "entities go on in another type": ("in _OPEN and before[1] == type_:", "in _OPEN:"),
    }),
    *faults("extensions/tagging/entities.py", TAGS, {
        "entities go on in the next sentence": ("& same_type & ~is_first", "& same_type"),
        "an entity of another type is right": (
            "(stop_at[starts] == stops) & (types == (gold[starts] - 1) // 2)",
            "stop_at[starts] == stops",
        ),
        "words without tokens get any label": ("        rows[self.positions == 0] = np.eye(1, rows.shape[1])\n", ""),
    }),
    *faults("extensions/summaries/documents.py", SENTENCES, {
        "summaries repeat trigrams": ("if is_blocking and not seen.isdisjoint(trigrams):", "if False:"),
        "sentences by probability instead of order": (
            "num_words += len(tokens[number])\n    return sorted(chosen)",
            "num_words += len(tokens[number])\n    return chosen",
        ),
    }),
    # Losses.
    *faults("extensions/texts/training.py", LOSS, {
        "weights of labels only in the loss": (
            "return Loss(loss, len(labels) if weights is None else weights[labels].sum())",
            "return Loss(loss, len(labels))",
        ),
        "no label smoothing": (
            'weights, reduction="sum", label_smoothing=criterion.smoothing',
            'weights, reduction="sum"',
        ),
        "none of them is the first sentence": (
            "answers.where(answers < counts, choices.size(1) - 1)",
            "answers.where(answers < counts, 0)",
        ),
    }),
    *faults("extensions/pronouns/training.py", LOSS, {
        "no margin between phrases": ('rivals - right + options["margin_beta"]', "rivals - right"),
    }),
    *faults("extensions/pronouns/kind.py", ("unit/extensions/texts/glue/test_benchmark.py",), {
        "one rival is enough to win": ("np.maximum.reduceat(probabilities", "np.minimum.reduceat(probabilities"),
    }),
    *faults("extensions/embeddings/training.py", VECTORS, {
        "equal texts are wrong answers": ("is_equal[:, :num_examples] |= texts[:, 0] == texts[:, :1]", "pass"),
        "triplets pushed together": ('(options["triplet_margin"] - far)', '(options["triplet_margin"] + far)'),
    }),
    *faults("extensions/choices/training.py", ("unit/extensions/choices",), {
        "even loss of RACE over missing options": ('logs.sum(dim=1) / sample["offsets"].diff()', "logs.mean(dim=1)"),
    }),
    *faults("criterions/masked_lm.py", (
        "unit/criterions/test_masked_lm.py",
        "parity/extensions/bert_pairs/test_next_sentence_vs_hugging_face.py",
    ), {
        "next sentence counts by the batch": (
            "sum_of_task * (sample_size / len(labels))",
            "sum_of_task",
        ),
    }),
    *faults("extensions/spans/training.py", ("unit/extensions/spans",), {
        "spans are learned from the question's tokens too": (
            'first + columns["passage_length"])',
            'first + columns["passage_length"] + 1)',
        ),
    }),
    # Masks, blocks, pairs, order.
    *faults("data/dynamic_masking.py", MASKS, {
        "masks always rounded down": ("is_candidate.sum(axis=1) + uniform)", "is_candidate.sum(axis=1))"),
        "kept and random tokens exchanged": (
            "leave_below = round(recipe.leave_unmasked_prob",
            "leave_below = round(recipe.random_token_prob",
        ),
        "static masks are dynamic": (
            "(passes - 1) % self.num_static_masks + 1 if self.num_static_masks else passes",
            "passes",
        ),
        "a word goes on behind </s>": ("        begins[:, 1:] |= self._ends_word[tokens[:, :-1]]", "        pass"),
        "special tokens are predicted": (
            "is_candidate = ~self._never_masked[tokens]",
            "is_candidate = tokens != self.pad_id",
        ),
    }),
    *faults("data/blocks.py", ("unit/data/test_blocks.py", "parity/test_blocks_vs_fairseq.py"), {
        "blocks across documents": ('SEPARATOR if break_mode == "complete_doc" else None', "None"),
    }),
    *faults("data/block_order.py", ("unit/data/test_block_order.py",), {
        "every epoch takes the same part of a corpus": (
            "self._first_draw[corpora] + (self._epoch - 1) * counts",
            "self._first_draw[corpora]",
        ),
        "batches from short to long": ("rng.permutation(full).reshape(-1)", "full.reshape(-1)"),
    }),
    *faults("extensions/bert_pairs/pairs.py", PAIRS, {
        "the random text is of the same document": ("        other += other >= documents\n", ""),
        "the second text begins a token late": ("columns >= (a + 2)[:, None]", "columns >= (a + 3)[:, None]"),
    }),
    # Optimizer and resuming.
    *faults("optim/adamw.py", ADAMW, {
        "layers learn alike": ('group["lr"] = lr * lr_scale', 'group["lr"] = lr'),
        "small gradients are enlarged": ("(max_norm / (norm + 1e-6)).clamp_(max=1)", "(max_norm / (norm + 1e-6))"),
        "masters are not saved": (
            "            state[master_weights.KEY] = [master.detach() for master in self._masters]",
            "            pass",
        ),
    }),
    *faults("fairseq_workarounds/epoch_iterator.py", RESUME, {
        "a second resume forgets the first": (
            "state[BLOCKS_SEEN] = self._first_block + num_blocks_before(",
            "state[BLOCKS_SEEN] = num_blocks_before(",
        ),
    }),
    *faults("fairseq_workarounds/resuming.py", RESUME, {
        "patience begins anew": (
            "is_of_metric = bool(state) and state.items()",
            "is_of_metric = False and state.items()",
        ),
    }),
    # Files and tokenizers.
    *faults("data/text_inputs.py", ("unit/data/test_text_inputs.py", "unit/data/binarize"), {
        "spaces at the ends of lines stay": ("return [line.strip() for line in lines]", "return list(lines)"),
    }),
    *faults("data/binarize/pipeline.py", (
        "unit/cli/test_text.py",
        "unit/data/binarize",
        "parity/test_binarize_vs_fairseq.py",
    ), {
        "dict.txt in any order of ties": (
            "key=lambda symbol: (-listed[symbol], symbol)",
            "key=lambda symbol: -listed[symbol]",
        ),
    }),
    *faults("data/binarize/parts.py", ("unit/data/binarize",), {
        "documents of two files run together": ("if reading.blank_line_after_files and", "if False and"),
    }),
    *faults("data/text_inputs_lines.py", ("unit/test_tables.py",), {
        "a mark of UTF-8 is part of the first column": ("self._block.removeprefix(BOM)", "self._block"),
    }),
    *faults("data/tokenizers/byte_level_bpe.py", (
        "unit/data/tokenizers/test_byte_level_bpe.py",
        "parity/test_bpe_vs_gpt2.py",
    ), {
        "merges out of their order": (
            "heapq.heappush(heap, (rank, position, first, second))",
            "heapq.heappush(heap, (-rank, position, first, second))",
        ),
    }),
    *faults("data/tokenizers/sentencepiece.py", ("unit/data/tokenizers/test_sentencepiece.py",), {
        "offsets of characters that became several": (
            "np.where(is_part, np.minimum(starts + 1, len(text)), ends)",
            "ends",
        ),
    }),
    # Options, recipes, refusals.
    *faults("finetuning/benchmarks/base.py", ("unit/finetuning", "unit/experiments/test_finetuning_plan.py"), {
        "no warm-up": ("round(self.warm_up * num_updates)", "0"),
    }),
    *faults("settings.py", ("unit/test_settings.py",), {
        "limits of options are not checked": ('value >= has.get("smallest", -math.inf)', "True"),
    }),
    *faults("experiments/sweeps/report.py", ("unit/experiments/sweeps",), {
        "the smallest value is the best cell's ensemble": ('reverse=metric.goal == "max"', "reverse=False"),
    }),
    *faults("finetuning/identity.py", ("unit/finetuning/test_prepared.py",), {
        "data of another kind for a head": (
            '    if _head_of(trained["task"]) != _head_of(prepared.task):\n        raise ValueError(\n            f"{checkpoint} was fine-tuned on',
            '    if False:\n        raise ValueError(\n            f"{checkpoint} was fine-tuned on',
        ),
    }),
    *faults("finetuning/identity.py", ("unit/finetuning/test_prepared.py", "unit/extensions/texts"), {
        "classes of a foreign model in its own order": (
            "return [row for row in rows if row is not None]",
            "return sorted(row for row in rows if row is not None)",
        ),
    }),
    *faults("finetuning/preparation.py", ("unit/cli/test_finetune.py", "unit/finetuning/test_prepared.py"), {
        "data of other files are taken": ('if wanted.raw is not None and prepared.content.get("source"):', "if False:"),
    }),
    *faults("extensions/own_tables/benchmark.py", OWN, {
        "equal texts on both sides of the cut": ('" ".join(text.split()) for text in texts', "texts"),
    }),
    *faults("finetuning/benchmarks/submission.py", (
        "unit/extensions/texts/glue/test_benchmark.py",
        "unit/extensions/texts/superglue/test_superglue.py",
    ), {
        "a submission with two files of a task": ("if len(paths) > 1:", "if False:"),
    }),
    # Conversion.
    *faults("conversion/portable.py", ("unit/conversion", "unit/extensions/texts"), {
        "numbers lose the mean of the labels": ("(bias.double() * factor + shift)", "(bias.double() * factor)"),
    }),
    *faults("extensions/vocabulary_change/change.py", ("unit/extensions/vocabulary_change",), {
        "new words begin as the mean of all": (
            "old[source].float().mean(dim=0) if source else mean",
            "old[source].float().mean(dim=0) if source in kept else mean",
        ),
    }),
    *faults("models/adapters.py", ("unit/models/test_adapters.py", "parity/extensions/peft/test_adapters_vs_peft.py"), {
        "adapters twice as strong when merged": (
            'state[f"{name}.weight"], scale * (b @ a)',
            'state[f"{name}.weight"], 2 * scale * (b @ a)',
        ),
    }),
    *faults("extensions/peft/adapter.py", ("parity/extensions/peft/test_adapters_vs_peft.py",), {
        "adapters of rslora as others": ('rank**0.5 if config.get("use_rslora") else rank', "rank"),
    }),
    *faults("conversion/huggingface_model.py", EXPORT, {
        "two positions too few in config.json": (
            'options["max_positions"] + ROWS_BEFORE_POSITIONS,',
            'options["max_positions"],',
        ),
    }),
    *faults("conversion/huggingface.py", ("parity/extensions/spans/test_questions_vs_hugging_face.py", "unit/conversion"), {
        "questions of an imported model may have no answer": (
            "theirs.task_without_optional if lacks",
            "theirs.task if lacks",
        ),
    }),
    *faults("data/tokenizers/huggingface.py", (
        "parity/conversion/test_tokenizers_vs_hugging_face.py",
        "unit/conversion",
    ), {
        "special symbols of CamemBERT stay where they are": ("            order[one], order[other] = other, one\n", ""),
    }),
    *faults("models/encoder.py", ("unit/models/test_encoder.py", "unit/extensions/bert_pairs/test_pairs.py"), {
        "segments of a packed row go on from sequence to sequence": (
            "        pairs = pairs - pairs.gather(1, torch.arange(tokens.size(1), device=tokens.device) - positions)\n",
            "        pass\n",
        ),
    }),
    *faults("tasks/finetuning.py", ("integration/extensions/texts/test_segments.py",), {
        "fine-tuning begins without the segments of its start": (
            "        number = num_segments_in(start) if start else 0\n",
            "        number = 0\n",
        ),
    }),
    # What survives a fault: python -m tests.campaign tries it with real kills and damage.
    *faults("checkpoint_files.py", CHECKPOINTS, {
        "no checksum of checkpoints": (
            'wrong = archive.testzip() if used is None else _wrong_part(archive, used)',
            'wrong = None',
        ),
        "unfinished files stay": ('            path.unlink()\n', ''),
        "pickled objects are loaded": ('weights_only=True, mmap=is_mapped)', 'weights_only=False, mmap=is_mapped)'),
        "memory is not measured": ('    check_claims(path, content)\n', ''),
    }),
    *faults("files.py", FILES, {
        "checkpoints written in place, no rename": (
            'temporary = path.with_name(f".{path.name}.{_HOST}{secrets.token_hex(3)[1:]}.tmp")\n',
            'temporary = path\n        temporary.unlink(missing_ok=True)\n',
        ),
        "no fsync": ('os.fsync(file.fileno())', 'pass'),
    }),
    *faults("fairseq_workarounds/epoch_iterator.py", RESUME, {
        "resumed one block early": ('self._begin_after(int(seen))', 'self._begin_after(int(seen) - 1)'),
    }),
    *faults("optim/adamw.py", ADAMW, {
        "moments dropped on resume": (
            "super().load_state_dict(_for_fused_adamw(state_dict, settings), optimizer_overrides)",
            'state_dict = {**state_dict, "state": {}}\n        '
            "super().load_state_dict(_for_fused_adamw(state_dict, settings), optimizer_overrides)",
        ),
    }),
    *faults("data/masked_lm_dataset.py", MASKS, {
        "masks drawn by what this process has drawn before": (
            'masked = self.masker.mask(\n            tokens, seed=self._seed_of_shard,',
            'self.drawn = getattr(self, "drawn", 0) + 1\n        '
            "masked = self.masker.mask(\n            tokens, seed=self._seed_of_shard + self.drawn,",
        ),
    }),
    *faults("fairseq_workarounds/half_precision.py", ADAMW, {
        "masters saved as bf16": (
            '[master.detach() for master in _masters(optimizer)]',
            '[master.detach().bfloat16().float() for master in _masters(optimizer)]',
        ),
    }),
    *faults("fairseq_workarounds/checkpoints.py", SAVING, {
        "the older checkpoint is lost before the new one is whole": (
            '            with atomic_write(path) as file:\n',
            '            path.unlink(missing_ok=True)\n            with atomic_write(path) as file:\n',
        ),
        "no lock of the save folder": ('        lock_save_dir(Path(cfg.save_dir))', '        pass'),
        "a full disk is not waited for": ('if wait is None or cause.errno not in _PASSING:', 'if True:'),
    }),
    *faults("fairseq_workarounds/heartbeats.py", ("integration/test_heartbeats.py",), {
        "no watch of lost ranks": ('if _watch or not seconds or', 'if True or _watch or not seconds or'),
    }),
    *faults("finetuning/identity.py", (*RESUME, "unit/finetuning/test_prepared.py"), {
        "another dict.txt is taken": (
            'before, now = {"dict.txt": trained.get("vocabulary")}, {"dict.txt": ours.get("vocabulary")}',
            'before, now = {}, {}',
        ),
    }),
    *faults("launch/resources.py", ("unit/launch",), {
        "secrets are written": ('return _SECRET.search(name.upper()) is not None', 'return False'),
    }),
    *faults("models/checkpoints.py", ("unit/models/test_checkpoints.py",), {
        "any model of fairseq is built": (
            'if name not in (*OUR_MODELS, *FAIRSEQ_MODELS):',
            "if name not in (*OUR_MODELS, *FAIRSEQ_MODELS):\n"  # the options are a second guard
            '        return argparse.Namespace(**{**saved, "arch": name, "max_positions": 64})\n    if False:',
        ),
    }),
    *faults("json_files.py", FILES, {
        "a torn status file is taken for none": (
            '        raise ValueError(f"{path} {defect}: {remedy}.") from error\n',
            '        return None\n',
        ),
    }),
)  # fmt: skip
