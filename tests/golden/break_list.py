"""Deliberate faults in the arithmetic, the files, the options and the refusals of the package, and who is to notice.

A fault is a piece of code that occurs once in its file, and what takes its place. Where a refactoring moves or rewrites
that piece, its line here is rewritten: `breaks` then says "moved", never "noticed". The tests are files below tests/.
"""

from __future__ import annotations

from tests.campaign.breaks import Break

METRICS = ("unit/finetuning/kinds/test_metrics.py", "parity/test_custom_metrics.py", "parity/test_glue_metrics.py")
SQUAD = (
    "unit/finetuning/kinds/test_metrics.py",
    "parity/test_squad_metric.py",
    "unit/finetuning/benchmarks/squad",
)
TAGS = (
    "unit/finetuning/kinds/test_entities.py",
    "unit/finetuning/layouts/test_words.py",
    "unit/finetuning/benchmarks/tagging",
)
SENTENCES = ("unit/finetuning/kinds/test_kinds.py", "unit/finetuning/benchmarks/summaries")
LOSS = (
    "unit/criterions/test_sentence_prediction.py",
    "parity/test_wsc_vs_fairseq.py",
    "parity/test_wnli_vs_superglue.py",
)
VECTORS = ("unit/criterions/test_embedding.py", "parity/test_embeddings_vs_sentence_transformers.py")
MASKS = ("unit/data/test_dynamic_masking.py", "unit/data/test_masked_lm_dataset.py")
PAIRS = ("unit/data/test_pairs.py", "parity/test_next_sentence_vs_hugging_face.py")
RESUME = ("unit/fairseq_workarounds/test_epoch_iterator.py", "unit/fairseq_workarounds/test_resuming.py")
ADAMW = ("unit/optim/test_adamw.py", "unit/fairseq_workarounds/test_half_precision.py")
EXPORT = (
    "unit/conversion",
    "parity/conversion/test_weights_vs_hugging_face.py",
    "parity/conversion/test_models_vs_hugging_face.py",
)
OWN = ("unit/finetuning/benchmarks/custom",)

BREAKS = (
    # Metrics.
    Break(
        "Matthews correlation of the wrong marginals",
        "finetuning/kinds/metrics.py",
        "(total**2 - answered @ answered)",
        "(total**2 - predicted @ predicted)",
        METRICS,
    ),
    Break(
        "macro-F1 counts labels that do not occur",
        "finetuning/kinds/metrics.py",
        "float(np.mean(class_f1s(counts)[occurs]))",
        "float(np.mean(class_f1s(counts)))",
        METRICS,
    ),
    Break(
        "equal values have the highest rank",
        "finetuning/kinds/metrics.py",
        "(counts + 1) / 2)[group]",
        "counts)[group]",
        METRICS,
    ),
    Break(
        "average precision from below",
        "finetuning/kinds/metrics.py",
        "np.unique(-scores,",
        "np.unique(scores,",
        METRICS,
    ),
    Break(
        "of equal thresholds the first",
        "finetuning/kinds/metrics.py",
        "best[np.abs(thresholds[best] - 0.5).argmin()]",
        "best[0]",
        METRICS,
    ),
    Break(
        "MRPC and QQP by F1 alone",
        "finetuning/kinds/metrics.py",
        "return (accuracy(counts) + f1(counts)) / 2",
        "return f1(counts)",
        (*METRICS, "unit/finetuning/benchmarks/glue"),
    ),
    Break(
        "correlation without the weights",
        "finetuning/kinds/metrics.py",
        "x, y = x - share @ x, y - share @ y",
        "x, y = x - x.mean(), y - y.mean()",
        METRICS,
    ),
    Break(
        "one right label of several is exact",
        "finetuning/kinds/metrics.py",
        "(answers == predictions).all(axis=1)",
        "(answers == predictions).any(axis=1)",
        (*METRICS, *OWN),
    ),
    Break(
        "numbers are not rounded as written",
        "finetuning/kinds/regression.py",
        "*self.official.limits).round(3)",
        "*self.official.limits)",
        (*METRICS, "unit/finetuning/benchmarks/glue"),
    ),
    Break(
        "accuracy of RACE counts questions without an answer",
        "finetuning/kinds/multiple_choice.py",
        'groups = {"accuracy": labels >= 0}',
        'groups = {"accuracy": labels >= -1}',
        ("unit/finetuning/kinds/test_kinds.py", "unit/finetuning/benchmarks/race"),
    ),
    # Calibration and thresholds.
    Break(
        "temperature in the wrong direction",
        "finetuning/kinds/classification.py",
        ".mean() > 0 else",
        ".mean() < 0 else",
        ("unit/finetuning/kinds/test_calibration.py",),
    ),
    Break(
        "errors of calibration cancel out",
        "finetuning/kinds/classification.py",
        "float(np.abs(surest - right).sum() / len(best))",
        "float(abs((surest - right).sum()) / len(best))",
        ("unit/finetuning/kinds/test_calibration.py",),
    ),
    Break(
        "several labels from above the threshold on",
        "finetuning/kinds/multi_label.py",
        "predictions = probabilities >= threshold",
        "predictions = probabilities > threshold + 0.01",
        (*OWN, "parity/test_custom_metrics.py"),
    ),
    Break(
        "no answer costs nothing in the search of the threshold",
        "finetuning/kinds/metrics.py",
        "else -1 if is_given[index] else 0",
        "else 0",
        SQUAD,
    ),
    # Spans.
    Break("an is no article", "finetuning/kinds/metrics.py", r"\b(a|an|the)\b", r"\b(a|the)\b", SQUAD),
    Break(
        "two empty answers are wrong in SQuAD 2.0",
        "finetuning/kinds/metrics.py",
        'both_empty=float(task == "squad2")',
        "both_empty=0.0",
        SQUAD,
    ),
    Break(
        "no answer if one window says so",
        "finetuning/kinds/questions.py",
        "float(null[windows].min())",
        "float(null[windows].max())",
        (*SQUAD, "unit/criterions/test_finetuning.py"),
    ),
    Break(
        "the window with most context to the left",
        "finetuning/layouts/windows.py",
        "np.minimum(left, right) + _LENGTH_BONUS",
        "left + _LENGTH_BONUS",
        ("unit/finetuning/layouts/test_windows.py", "unit/finetuning/benchmarks/squad/test_squad.py"),
    ),
    Break(
        "answers of white space",
        "finetuning/kinds/questions.py",
        "begin[questions.is_blank(window)] = -np.inf",
        "pass",
        SQUAD,
    ),
    # Tags and sentences.
    Break(
        "entities go on in another type",
        "finetuning/kinds/entities.py",
        "in _OPEN and before[1] == type_:",
        "in _OPEN:",
        (*TAGS, "parity/test_tagging_metrics.py"),
    ),
    Break(
        "entities go on in the next sentence",
        "finetuning/kinds/entities.py",
        "& same_type & ~is_first",
        "& same_type",
        TAGS,
    ),
    Break(
        "an entity of another type is right",
        "finetuning/kinds/entities.py",
        "(stop_at[starts] == stops) & (types == (gold[starts] - 1) // 2)",
        "stop_at[starts] == stops",
        TAGS,
    ),
    Break(
        "words without tokens get any label",
        "finetuning/kinds/entities.py",
        "        rows[self.positions == 0] = np.eye(1, rows.shape[1])\n",
        "",
        TAGS,
    ),
    Break(
        "summaries repeat trigrams",
        "finetuning/kinds/documents.py",
        "if is_blocking and not seen.isdisjoint(trigrams):",
        "if False:",
        SENTENCES,
    ),
    Break(
        "sentences by probability instead of order",
        "finetuning/kinds/documents.py",
        "num_words += len(tokens[number])\n    return sorted(chosen)",
        "num_words += len(tokens[number])\n    return chosen",
        SENTENCES,
    ),
    # Losses.
    Break(
        "weights of labels only in the loss",
        "criterions/losses.py",
        "return Loss(loss, len(labels) if weights is None else weights[labels].sum())",
        "return Loss(loss, len(labels))",
        LOSS,
    ),
    Break(
        "no label smoothing",
        "criterions/losses.py",
        'weights, reduction="sum", label_smoothing=criterion.smoothing',
        'weights, reduction="sum"',
        LOSS,
    ),
    Break(
        "none of them is the first sentence",
        "criterions/losses.py",
        "answers.where(answers < counts, choices.size(1) - 1)",
        "answers.where(answers < counts, 0)",
        LOSS,
    ),
    Break(
        "no margin between phrases",
        "criterions/losses.py",
        'rivals - right + options["margin_beta"]',
        "rivals - right",
        LOSS,
    ),
    Break(
        "one rival is enough to win",
        "finetuning/kinds/phrase_ranking.py",
        "np.maximum.reduceat(probabilities",
        "np.minimum.reduceat(probabilities",
        ("unit/finetuning/benchmarks/glue/test_benchmark.py",),
    ),
    Break(
        "equal texts are wrong answers",
        "criterions/losses.py",
        "is_equal[:, :num_examples] |= texts[:, 0] == texts[:, :1]",
        "pass",
        VECTORS,
    ),
    Break(
        "triplets pushed together",
        "criterions/losses.py",
        '(options["triplet_margin"] - far)',
        '(options["triplet_margin"] + far)',
        VECTORS,
    ),
    Break(
        "even loss of RACE over missing options",
        "criterions/losses.py",
        'logs.sum(dim=1) / sample["offsets"].diff()',
        "logs.mean(dim=1)",
        ("unit/criterions/test_finetuning.py",),
    ),
    Break(
        "next sentence counts by the batch",
        "criterions/masked_lm.py",
        'next_sentence * (sample_size / len(sample["next_sentence"]))',
        "next_sentence",
        ("unit/criterions/test_masked_lm.py", "parity/test_next_sentence_vs_hugging_face.py"),
    ),
    Break(
        "spans are learned from the question's tokens too",
        "criterions/losses.py",
        'first + columns["passage_length"])',
        'first + columns["passage_length"] + 1)',
        ("unit/criterions/test_finetuning.py",),
    ),
    # Masks, blocks, pairs, order.
    Break(
        "masks always rounded down",
        "data/dynamic_masking.py",
        "is_candidate.sum(axis=1) + uniform)",
        "is_candidate.sum(axis=1))",
        MASKS,
    ),
    Break(
        "kept and random tokens exchanged",
        "data/dynamic_masking.py",
        "leave_below = round(recipe.leave_unmasked_prob",
        "leave_below = round(recipe.random_token_prob",
        MASKS,
    ),
    Break(
        "static masks are dynamic",
        "data/dynamic_masking.py",
        "(passes - 1) % self.num_static_masks + 1 if self.num_static_masks else passes",
        "passes",
        MASKS,
    ),
    Break(
        "a word goes on behind </s>",
        "data/dynamic_masking.py",
        "        begins[:, 1:] |= self._ends_word[tokens[:, :-1]]",
        "        pass",
        MASKS,
    ),
    Break(
        "special tokens are predicted",
        "data/dynamic_masking.py",
        "is_candidate = ~self._never_masked[tokens]",
        "is_candidate = tokens != self.pad_id",
        MASKS,
    ),
    Break(
        "blocks across documents",
        "data/blocks.py",
        'SEPARATOR if break_mode == "complete_doc" else None',
        "None",
        ("unit/data/test_blocks.py", "parity/test_blocks_vs_fairseq.py"),
    ),
    Break(
        "every epoch takes the same part of a corpus",
        "data/block_order.py",
        "self._first_draw[corpora] + (self._epoch - 1) * counts",
        "self._first_draw[corpora]",
        ("unit/data/test_block_order.py",),
    ),
    Break(
        "batches from short to long",
        "data/block_order.py",
        "rng.permutation(full).reshape(-1)",
        "full.reshape(-1)",
        ("unit/data/test_block_order.py",),
    ),
    Break(
        "the random text is of the same document", "data/pairs.py", "        other += other >= documents\n", "", PAIRS
    ),
    Break(
        "the second text begins a token late",
        "data/pairs.py",
        "columns >= (a + 2)[:, None]",
        "columns >= (a + 3)[:, None]",
        PAIRS,
    ),
    # Optimizer and resuming.
    Break("layers learn alike", "optim/adamw.py", 'group["lr"] = lr * lr_scale', 'group["lr"] = lr', ADAMW),
    Break(
        "small gradients are enlarged",
        "optim/adamw.py",
        "(max_norm / (norm + 1e-6)).clamp_(max=1)",
        "(max_norm / (norm + 1e-6))",
        ADAMW,
    ),
    Break(
        "masters are not saved",
        "optim/adamw.py",
        "            state[master_weights.KEY] = [master.detach() for master in self._masters]",
        "            pass",
        ADAMW,
    ),
    Break(
        "a second resume forgets the first",
        "fairseq_workarounds/epoch_iterator.py",
        "state[BLOCKS_SEEN] = self._first_block + num_blocks_before(",
        "state[BLOCKS_SEEN] = num_blocks_before(",
        RESUME,
    ),
    Break(
        "patience begins anew",
        "fairseq_workarounds/resuming.py",
        "is_of_metric = bool(state) and state.items()",
        "is_of_metric = False and state.items()",
        RESUME,
    ),
    # Files and tokenizers.
    Break(
        "spaces at the ends of lines stay",
        "data/text_inputs.py",
        "return [line.strip() for line in lines]",
        "return list(lines)",
        ("unit/data/test_text_inputs.py", "unit/data/binarize"),
    ),
    Break(
        "dict.txt in any order of ties",
        "data/binarize/pipeline.py",
        "key=lambda symbol: (-listed[symbol], symbol)",
        "key=lambda symbol: -listed[symbol]",
        ("unit/cli/test_text.py", "unit/data/binarize", "parity/test_binarize_vs_fairseq.py"),
    ),
    Break(
        "documents of two files run together",
        "data/binarize/parts.py",
        "if reading.blank_line_after_files and",
        "if False and",
        ("unit/data/binarize",),
    ),
    Break(
        "a mark of UTF-8 is part of the first column",
        "data/text_inputs_tables.py",
        "self._block.removeprefix(BOM)",
        "self._block",
        ("unit/test_tables.py",),
    ),
    Break(
        "merges out of their order",
        "data/tokenizers/byte_level_bpe.py",
        "heapq.heappush(heap, (rank, position, first, second))",
        "heapq.heappush(heap, (-rank, position, first, second))",
        ("unit/data/tokenizers/test_byte_level_bpe.py", "parity/test_bpe_vs_gpt2.py"),
    ),
    Break(
        "offsets of characters that became several",
        "data/tokenizers/sentencepiece.py",
        "np.where(is_part, np.minimum(starts + 1, len(text)), ends)",
        "ends",
        ("unit/data/tokenizers/test_sentencepiece.py",),
    ),
    # Options, recipes, refusals.
    Break(
        "no warm-up",
        "finetuning/benchmarks/base.py",
        "round(self.warm_up * num_updates)",
        "0",
        ("unit/finetuning", "unit/experiments/test_finetuning_plan.py"),
    ),
    Break(
        "limits of options are not checked",
        "settings.py",
        'value >= has.get("smallest", -math.inf)',
        "True",
        ("unit/test_settings.py",),
    ),
    Break(
        "the smallest value is the best cell's ensemble",
        "experiments/sweeps/report.py",
        'reverse=metric.goal == "max"',
        "reverse=False",
        ("unit/experiments/sweeps",),
    ),
    Break(
        "data of another kind for a head",
        "finetuning/identity.py",
        '    if theirs != ours:\n        raise ValueError(\n            f"{checkpoint} was fine-tuned on',
        '    if False:\n        raise ValueError(\n            f"{checkpoint} was fine-tuned on',
        ("unit/finetuning/test_prepared.py",),
    ),
    Break(
        "classes of a foreign model in its own order",
        "finetuning/identity.py",
        "return [theirs.index(name) for name in ours]",
        "return [ours.index(name) for name in theirs]",
        ("unit/finetuning/test_prepared.py", "unit/experiments/test_finetune.py"),
    ),
    Break(
        "data of other files are taken",
        "finetuning/preparation.py",
        'if wanted.raw is not None and prepared.content.get("source"):',
        "if False:",
        ("unit/cli/test_finetune.py", "unit/finetuning/test_prepared.py"),
    ),
    Break(
        "equal texts on both sides of the cut",
        "finetuning/benchmarks/custom.py",
        '" ".join(text.split()) for text in texts',
        "texts",
        OWN,
    ),
    Break(
        "a submission with two files of a task",
        "finetuning/benchmarks/submission.py",
        "if len(paths) > 1:",
        "if False:",
        (
            "unit/finetuning/benchmarks/glue/test_benchmark.py",
            "unit/finetuning/benchmarks/superglue/test_superglue.py",
        ),
    ),
    # Conversion.
    Break(
        "numbers lose the mean of the labels",
        "conversion/portable.py",
        "(bias.double() * factor + shift)",
        "(bias.double() * factor)",
        EXPORT[:1],
    ),
    Break(
        "new words begin as the mean of all",
        "conversion/vocabulary_change.py",
        "old[source].float().mean(dim=0) if source else mean",
        "old[source].float().mean(dim=0) if source in kept else mean",
        EXPORT[:1],
    ),
    Break(
        "adapters twice as strong when merged",
        "models/adapters.py",
        'state[f"{name}.weight"], scale * (b @ a)',
        'state[f"{name}.weight"], 2 * scale * (b @ a)',
        ("unit/models/test_adapters.py", "parity/conversion/test_adapters_vs_peft.py"),
    ),
    Break(
        "adapters of rslora as others",
        "conversion/peft_adapter.py",
        'rank**0.5 if config.get("use_rslora") else rank',
        "rank",
        ("parity/conversion/test_adapters_vs_peft.py",),
    ),
    Break(
        "two positions too few in config.json",
        "conversion/huggingface_model.py",
        'options["max_positions"] + ROWS_BEFORE_POSITIONS,',
        'options["max_positions"],',
        EXPORT,
    ),
    Break(
        "questions of an imported model may have no answer",
        "conversion/huggingface.py",
        'data_task = "squad1"',
        "pass",
        ("parity/conversion/test_questions_vs_hugging_face.py", "unit/conversion"),
    ),
    Break(
        "special symbols of CamemBERT stay where they are",
        "data/tokenizers/huggingface.py",
        "            order[one], order[other] = other, one\n",
        "",
        ("parity/conversion/test_tokenizers_vs_hugging_face.py", "unit/conversion"),
    ),
    Break(
        "segments of a packed row go on from sequence to sequence",
        "models/encoder.py",
        "        pairs = pairs - pairs.gather(1, torch.arange(tokens.size(1), device=tokens.device) - positions)\n",
        "        pass\n",
        ("unit/models/test_encoder.py", "unit/data/test_pairs.py"),
    ),
    Break(
        "fine-tuning begins without the segments of its start",
        "tasks/finetuning.py",
        "        number = num_segments_in(start) if start else 0\n",
        "        number = 0\n",
        ("integration/test_segments.py",),
    ),
)
