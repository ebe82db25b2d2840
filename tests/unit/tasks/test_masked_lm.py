"""The pretraining task: files of an epoch, mixtures, ranks, input formats, and what is refused before training."""

import copy
import hashlib
import logging
import shutil
from argparse import Namespace
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf

from roberta_plugin.data.binarize.pipeline import BinarizeSettings, binarize
from roberta_plugin.data.count_baselines import baselines_of
from roberta_plugin.data.manifest import write_manifest
from roberta_plugin.data.mmap_tokens import MmapTokens, MmapTokensWriter
from roberta_plugin.data.pair_counts import count_pairs, spread_windows
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.tokenizers.additions import AddedToken, with_additions
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.tasks import masked_lm
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMTask, packs_by_default
from roberta_plugin.tasks.masked_lm_options import RobertaMaskedLMConfig
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_corpus import write_data_bin
from tests.tiny_tokenizers import train_tokenizer
from tests.unit.fairseq_workarounds.test_hooks import printed

SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}


def make_task(data, **options):
    mode = {} if "input_format" in options else {"sample_break_mode": "complete"}
    settings = {"tokens_per_sample": 32, "seed": 3, **mode, **options}
    return RobertaMaskedLMTask.setup_task(RobertaMaskedLMConfig(data=str(data), **settings))


def load(task, *, epoch=1, combine=True, split="train"):
    task.load_dataset(split, epoch=epoch, combine=combine)
    return task.dataset(split)


@pytest.fixture
def two_corpora(tmp_path):
    large = write_data_bin(tmp_path / "large", num_documents=40, valid_documents=5, seed=1)
    small = write_data_bin(tmp_path / "small", num_documents=8, valid_documents=5, seed=2)
    return large, small


def blocks_seen(task, *, ranks, state=None, iterations=None, batch_size=3):
    """What all ranks of a job see of the epoch, from `state` on, and the state afterwards."""
    seen = []
    for rank in range(ranks):
        dataset = load(task)
        iterator = task.get_batch_iterator(
            dataset, max_sentences=batch_size, num_shards=ranks, shard_id=rank, disable_iterator_cache=True
        )
        if state is not None:
            iterator.load_state_dict(state)
        epoch = iterator.next_epoch_itr()
        for _ in range(len(epoch) - epoch.n if iterations is None else iterations):
            batch = next(epoch)
            seen += batch["id"].tolist() if batch else []
        end_state = iterator.state_dict()
    return seen, end_state


@pytest.mark.parametrize("data", ["{large}", "{large}@1,{small}@1"])
def test_any_number_of_ranks_sees_the_same_blocks_also_after_a_change(two_corpora, data):
    check_ranks(make_task(data.format(large=two_corpora[0], small=two_corpora[1])))


def check_ranks(task):
    """All ranks together see the blocks that one sees, also after a change of their number."""
    load(task)
    expected, _ = blocks_seen(task, ranks=1)
    assert len(expected) > 80
    for ranks in (2, 4):
        assert Counter(blocks_seen(task, ranks=ranks)[0]) == Counter(expected)
    for before, after in ((1, 4), (4, 2), (2, 1)):
        first, state = blocks_seen(task, ranks=before, iterations=6)
        second, _ = blocks_seen(task, ranks=after, state=state, batch_size=5)
        assert 0 < len(first) < len(expected)
        assert Counter(first + second) == Counter(expected)


SWITCHES = [  # an option in mid-epoch, beside others, and whether the epoch's order is another then
    ({}, {"pack_sequences": True}, True),
    ({}, {"seed": 4}, True),
    ({}, {"tokens_per_sample": 31}, True),
    ({}, {"sample_break_mode": "complete_doc"}, True),
    ({}, {"sample_break_mode": "none"}, True),
    ({}, {"data": "{small}"}, True),
    ({}, {"data": "{large},{small}"}, True),
    ({"data": "{large},{small}"}, {"data": "{small},{large}"}, True),
    ({"data": "{large},{small}"}, {"corpus_alpha": 0.3}, True),
    ({"data": "{large}@3,{small}@1"}, {"data": "{large}@2,{small}@1"}, True),
    ({"data": "{large}:{small}"}, {"data": "{large}"}, True),  # in epoch 3
    ({}, {"no_pack_sequences": True}, False),
    ({}, {"pad_to_multiple": 8}, False),
    ({}, {"num_static_masks": 2}, False),
    ({}, {"mask_prob": 0.4}, False),
    ({}, {"update_sequences": 3}, False),
]


@pytest.mark.parametrize(("options", "switch", "is_other"), SWITCHES, ids=str)
def test_no_block_is_lost_or_doubled_in_silence_when_an_option_changes_in_mid_epoch(
    two_corpora, caplog, options, switch, is_other
):
    check_switch(two_corpora, caplog, options, switch, is_other=is_other)


def check_switch(two_corpora, caplog, options, switch, *, is_other):
    """An option that changes in mid-epoch makes another order, and a warning says so, or does not."""
    large, small = two_corpora
    orders = []
    for settings in ({"data": "{large}", **options}, {"data": "{large}", **options, **switch}):
        data = settings.pop("data").format(large=large, small=small)
        task = make_task(data, **settings)
        dataset = load(task, epoch=3)
        iterator = task.get_batch_iterator(dataset, max_sentences=4, epoch=3)
        order = dataset.order(3)
        found = order.addresses(0, len(order))
        orders.append([*zip(found.indices.tolist(), dataset.lengths_of(found).tolist(), strict=True)])
        if len(orders) == 1:
            epoch = iterator.next_epoch_itr()
            for _ in range(5):
                next(epoch)
            state = iterator.state_dict()
        else:
            caplog.clear()
            iterator.load_state_dict(state)
    assert (orders[0] != orders[1]) == is_other
    assert ("repeats some text and misses other" in caplog.text) == is_other


def test_what_is_wrong_with_the_command_line_is_refused_by_name(tiny_data_bin, tmp_path):
    (tmp_path / "empty").mkdir()
    words = [str(tiny_data_bin), "--task", RobertaMaskedLMTask.name, "--criterion", "roberta_masked_lm", "--cpu"]
    words += ["--optimizer", "adam", "--lr", "0.1", "--arch", "roberta_base", "--max-tokens", "1000"]
    parsed = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), words)
    whole = convert_namespace_to_omegaconf(parsed)
    for changes, message in (
        ({"task.mask_prob": 1.5}, "--mask-prob .* 1.5"),
        ({"dataset.valid_subset": "dev"}, "dev.idx is missing .*--valid-subset"),
        (
            {"dataset.combine_valid_subsets": True, "dataset.valid_subset": "valid,valid@en"},
            "--combine-valid-subsets makes one split, valid, of all: .* leave out --valid-subset valid,valid@en",
        ),
        ({"dataset.combine_valid_subsets": True}, None),
        ({"common.log_interval": 0}, "--log-interval must be 1"),
        ({"common.fp16": True}, "--fp16 does not work with --cpu.*--bf16"),
        ({"task.data": str(tmp_path / "empty")}, "empty has no dict.txt.*roberta binarize"),
        ({"task.data": f"{tiny_data_bin}:{tmp_path / 'none'}"}, "none does not exist.*roberta binarize"),
        ({"common.fp16": True, "common.fp16_no_flatten_grads": True}, None),
        ({"common.bf16": True}, None),
    ):
        cfg = copy.deepcopy(whole)
        for name, value in changes.items():
            OmegaConf.update(cfg, name, value)
        with pytest.raises((ValueError, OSError), match=message) if message else nullcontext():
            RobertaMaskedLMTask.check_start(cfg)


def test_eos_makes_no_block_of_a_blank_line(tiny_data_bin, caplog):
    """A batch of blank lines would have nothing to predict."""
    with caplog.at_level(logging.INFO):
        dataset = load(make_task(tiny_data_bin, sample_break_mode="eos", tokens_per_sample=32))
    sizes = MmapTokens(str(Path(tiny_data_bin) / "train")).sizes
    assert len(dataset) == (sizes > 1).sum() < len(sizes)
    assert f"{(sizes == 1).sum():,} blank lines are in no block" in caplog.text
    assert all(dataset.__getitems__([*each])["predicted"]["number"] for each in dataset.batches(1, max_sentences=8))


def test_a_mixture_has_exact_shares_and_says_so(two_corpora, caplog):
    large, small = two_corpora
    with caplog.at_level(logging.INFO):
        dataset = load(make_task(f"{large}@1,{small}@3"))
    total = len(dataset)
    num_large = len(dataset.sources[0].blocks)
    order = [index for batch in dataset.batches(1, max_sentences=4) for _, index in batch]
    assert len(order) == total
    from_small = sum(index >= num_large for index in order)
    assert from_small == pytest.approx(0.75 * total, abs=1)
    said = f"{small}: {from_small:,} blocks in an epoch, drawn from its {total - num_large:,}: "
    assert f"{said}{100 * from_small / total:.1f} % of" in caplog.text
    assert max(Counter(order).values()) > 1, "the small corpus is repeated"
    half = len(order) // 2
    assert sum(index >= num_large for index in order[:half]) == pytest.approx(0.75 * half, rel=0.15), "mixed throughout"


def test_alpha_favours_the_small_corpus_and_is_said_to_have_no_effect_where_it_has_none(two_corpora, caplog):
    large, small = two_corpora
    by_size, smoothed = (load(make_task(f"{large},{small}", corpus_alpha=alpha)) for alpha in (1.0, 0.3))
    assert by_size.mixture == [(len(source.blocks), len(source.blocks)) for source in by_size.sources]
    assert smoothed.mixture[1][1] > by_size.mixture[1][1]
    assert sum(count for _, count in smoothed.mixture) == sum(count for _, count in by_size.mixture)
    for data, has_effect in ((f"{large}@1,{small}@1", False), (str(large), False), (f"{large}:{large},{small}", True)):
        caplog.clear()
        make_task(data, corpus_alpha=0.3)
        assert ("--corpus-alpha 0.3 has no effect" in caplog.text) is not has_effect


@pytest.mark.parametrize("combine", [False, True], ids=["valid", "combine-valid-subsets"])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("{large}@1,{small}@3", ["large", "small"]),
        ("{large},{empty},{small}", ["large", "small"]),
        ("{empty}@1,{large}@2:{small}", ["large"]),
        ("{empty}:{small},{large}", ["small", "large"]),
    ],
)
def test_validation_takes_every_block_of_one_turn_whatever_the_weights(two_corpora, tmp_path, data, expected, combine):
    large, small = two_corpora
    empty = write_data_bin(tmp_path / "empty", seed=5)
    (empty / "valid.idx").unlink()
    (empty / "valid.bin").unlink()
    task = make_task(data.format(large=large, small=small, empty=empty))
    valid = load(task, split="valid", combine=combine)
    assert [source.tokens.prefix for source in valid.sources] == [f"{tmp_path / name}/valid" for name in expected]
    order = Counter(index for batch in valid.batches(1, max_sentences=4) for _, index in batch)
    assert order == Counter(range(sum(len(source.blocks) for source in valid.sources)))
    assert len(order) > 10


def test_a_split_that_no_folder_has_is_an_error_that_names_them(two_corpora):
    large, small = two_corpora
    with pytest.raises(FileNotFoundError, match=f"'valid7' .*{large}, {small}.*--valid-subset"):
        load(make_task(f"{large}@1:{small}"), split="valid7", combine=False)
    (small / "train.idx").unlink()
    with pytest.raises(FileNotFoundError, match=r"small/train\.idx does not exist"):
        load(make_task(f"{large},{small}"))


def test_an_empty_split_is_named_with_its_folder(two_corpora):
    large, small = two_corpora
    for split in ("train", "valid"):
        with MmapTokensWriter(small / split, np.uint16):
            pass
    assert len(load(make_task(f"{large},{small}"), split="valid", combine=False)) > 0
    for data, split, said in (
        (
            small,
            "valid",
            r"\(valid\.bin holds no text\).*name another with --valid-subset, or add --disable-validation",
        ),
        (f"{large}@1,{small}@2", "train", ".*or take the folder out of the data"),
    ):
        with pytest.raises(ValueError, match=rf"The split '{split}' of {small} is empty {said}"):
            load(make_task(data), split=split, combine=split == "train")


def test_validation_masks_do_not_depend_on_the_other_turns(two_corpora):
    large, small = two_corpora
    targets = []
    for data in (f"{large}", f"{large}:{small}", f"{large}@5,{small}@1:{small}"):
        dataset = load(make_task(data), split="valid", combine=False)
        blocks = np.arange(len(dataset.sources[0].blocks))
        targets.append(dataset.make_batch(np.ones_like(blocks), blocks)["target"])
    assert (targets[0] != 1).sum() > 20
    assert np.array_equal(targets[0], targets[1]) and np.array_equal(targets[0], targets[2])


def test_a_corpus_of_tiny_weight_and_every_file_of_a_corpus_are_seen(two_corpora, caplog):
    large, small = two_corpora
    for suffix in ("bin", "idx"):
        shutil.copy(small / f"valid.{suffix}", small / f"train1.{suffix}")
    task = make_task(f"{large}@1,{small}@1e-9")
    dataset = load(task)
    assert f"The weight of {small} amounts to less than one" in caplog.text
    num_large, num_small = (size for size, _ in dataset.mixture)
    assert dataset.mixture[1][1] == 1
    epochs = [dataset.batches(epoch, max_sentences=9) for epoch in range(1, num_small + 1)]
    seen = {index for batches in epochs for batch in batches for _, index in batch}
    assert seen >= set(range(num_large, num_large + num_small))


def test_folders_take_turns_by_epoch(two_corpora):
    large, small = two_corpora
    task = make_task(f"{large}:{small}")
    prefixes = [load(task, epoch=epoch).sources[0].tokens.prefix for epoch in (1, 2, 3)]
    assert prefixes == [f"{large}/train", f"{small}/train", f"{large}/train"]


def test_further_parts_of_a_split_are_combined_for_training_only_and_long_lines_split(tmp_path, caplog):
    folder = write_data_bin(tmp_path / "data")
    for suffix in ("bin", "idx"):
        shutil.copy(folder / f"valid.{suffix}", folder / f"train1.{suffix}")
    with MmapTokensWriter(folder / "train", np.uint16) as writer:
        writer.write(np.full(100, 9), np.array([100]))
    task = make_task(folder)
    assert [source.tokens.prefix for source in load(task).sources] == [f"{folder}/train", f"{folder}/train1"]
    with caplog.at_level(logging.INFO):
        dataset = load(task, combine=False)
    assert "1 lines were longer than --tokens-per-sample 32 and were split; nothing was dropped" in caplog.text
    assert len(dataset.sources) == 1 and dataset.sizes.tolist() == [32, 32, 32, 8]


def test_whole_words_come_from_the_tokenizer_of_the_data(two_corpora, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"--mask-whole-words: No .*give --tokenizer-folder FOLDER"):
        load(make_task(two_corpora[0], mask_whole_words=True))


def test_whole_words_come_from_fairseqs_bpe_options_where_they_are_given(tmp_path):
    """`--bpe gpt2 --gpt2-encoder-json F --gpt2-vocab-bpe F`, as fairseq's masked_lm wants it; also its other options."""
    write_data_bin(tmp_path / "data", num_documents=4)
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    shutil.copy(tokenizer / "dict.txt", tmp_path / "data")
    words = [str(tmp_path / "data"), "--task", "roberta_masked_lm", "--arch", "fast_roberta_tiny", "--mask-whole-words"]
    words += ["--shorten-method", "none", "--include-index", "--bpe", "gpt2", "--gpt2-vocab-bpe"]
    words += [str(tokenizer / "vocab.bpe"), "--gpt2-encoder-json"]
    for path in (tokenizer / "encoder.json", tmp_path / "no.json"):
        parser = fairseq_options.get_training_parser()
        cfg = convert_namespace_to_omegaconf(fairseq_options.parse_args_and_arch(parser, [*words, str(path)]))
        task = RobertaMaskedLMTask.setup_task(cfg.task)
        if path.exists():
            assert load(task).masker.recipe.whole_words
        else:
            with pytest.raises(FileNotFoundError, match=r"--gpt2-encoder-json .*no.json of --bpe gpt2 cannot be read"):
                load(task)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shorten_method": "truncate"}, "--shorten-method truncate would leave text out"),
        ({"skip_masking": True}, "--skip-masking belongs to data2vec"),
        ({"include_target_tokens": True}, "--include-target-tokens belongs to data2vec"),
    ],
)
def test_impossible_options_are_refused_by_name(tiny_data_bin, options, message):
    with pytest.raises(ValueError, match=message):
        make_task(tiny_data_bin, **options)


def test_missing_and_disagreeing_dictionaries_are_named(two_corpora):
    large, small = two_corpora
    with pytest.raises(ValueError, match="data folder is missing"):
        make_task("")
    (small / "dict.txt").write_text("other 1\n")
    with pytest.raises(ValueError, match=r"small/dict\.txt differs from .*large/dict\.txt"):
        make_task(f"{large},{small}")
    (small / "dict.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"small has no dict\.txt"):
        make_task(f"{large}:{small}")
    with pytest.raises(FileNotFoundError, match=r"small has no dict\.txt"):
        make_task(small)


def test_a_dictionary_that_does_not_match_the_data_is_found_by_the_first_bad_batch(tmp_path):
    folder = write_data_bin(tmp_path / "data")
    lines = (folder / "dict.txt").read_text().splitlines()
    (folder / "dict.txt").write_text("\n".join(lines[:40]) + "\n")
    task = make_task(folder)
    dataset = load(task)
    assert MmapTokens(folder / "train").tokens.max() >= len(task.dictionary)
    batches = dataset.batches(1, max_sentences=1000)
    with pytest.raises(ValueError, match=r"train\.bin holds the token id \d+ in item \d+ .*dict\.txt does not match"):
        dataset.__getitems__(batches[0])


def test_blocks_that_cannot_fit_are_refused(tiny_data_bin):
    task = make_task(tiny_data_bin)
    dataset = load(task)
    with pytest.raises(ValueError, match=r"--max-tokens \(31\) is smaller than --tokens-per-sample \(32\)"):
        task.get_batch_iterator(dataset, max_tokens=31)
    with pytest.raises(ValueError, match=r"--tokens-per-sample \(32\) exceeds the model's 16 positions"):
        task.get_batch_iterator(dataset, max_sentences=2, max_positions=16)


def test_packed_rows_are_refused_for_a_model_that_would_attend_across(tiny_data_bin):
    task = make_task(tiny_data_bin, pack_sequences=True)
    said = r"--pack-sequences needs a model that keeps the sequences of a row apart, and RobertaModel"
    with pytest.raises(ValueError, match=said):
        task.build_model(Namespace(arch="roberta_base", **SIZES))
    assert task.build_model(Namespace(arch="fast_roberta_tiny", **SIZES)).supports_packing


def shapes_of(data, *, batch, **options):
    """Shapes of the inputs of all batches of three epochs."""
    task, shapes = make_task(data, **options), set()
    for epoch in (1, 2, 3):
        for sample in task.get_batch_iterator(load(task, epoch=epoch), epoch=epoch, **batch).next_epoch_itr():
            parts = (sample["net_input"], sample["net_input"].get("packing", {}), sample["predicted"])
            tensors = {name: value for part in parts for name, value in part.items() if torch.is_tensor(value)}
            tensors.pop("src_lengths")
            numbers = [part.get("max_seqlen") for part in parts]
            shapes.add((*numbers, *((name, tuple(value.shape)) for name, value in sorted(tensors.items()))))
    return shapes


@pytest.mark.parametrize("batch", [{"max_sentences": 8}, {"max_tokens": 256}, {"max_tokens": 100}], ids=str)
@pytest.mark.parametrize("multiple", [256, 8192])
def test_rows_of_a_whole_batch_have_one_shape(two_corpora, batch, multiple):
    """The last ones of an epoch, too, and where the batch is smaller than that for which --pad-to-multiple was given."""
    (shape,) = shapes_of(two_corpora[0], batch=batch, pack_sequences=True, pad_to_multiple=multiple)
    assert ("src_tokens", (1, batch.get("max_tokens", 256))) in shape


def test_padded_blocks_are_not_wider_than_the_longest(two_corpora):
    shapes = shapes_of(two_corpora[0], batch={"max_tokens": 256}, pad_to_multiple=256)
    widths = {dict(shape[3:])["src_tokens"] for shape in shapes}
    assert {width for _, width in widths} == {32} and max(rows for rows, _ in widths) == 8


def masked_batches(folder, *added, text):
    """From text through tokenizer and binarizer to masked batches: vocabulary and tokenizer; targets and whole tokens."""
    (folder / "text.txt").write_text(text)
    train_tokenizer("byte_level_bpe", [folder / "text.txt"], vocab_size=280, folder=folder / "vocabulary")
    tokenizer = with_additions(load_tokenizer(folder / "vocabulary"), list(added))
    vocabulary = Vocabulary.load(folder / "vocabulary" / "dict.txt").extended([each.content for each in added])
    options = {"tokenizer": tokenizer, "vocabulary": vocabulary, "destination": folder / "data", "progress": False}
    binarize([folder / "text.txt"], split="train", settings=BinarizeSettings(workers=1), **options)
    dataset = load(make_task(folder / "data", mask_whole_words=True, tokens_per_sample=128))
    batches = [dataset.__getitems__(addresses) for addresses in dataset.batches(1, max_sentences=8)]
    pairs = [(batch["target"].numpy(), batch["net_input"]["src_tokens"].numpy()) for batch in batches]
    return vocabulary, tokenizer, [(targets, np.where(targets == 1, inputs, targets)) for targets, inputs in pairs]


def test_whole_words_of_real_text_are_predicted_whole(tmp_path):
    text = "The unbelievably extraordinary circumstances notwithstanding, everybody remained uncharacteristically calm.\n\n"
    vocabulary, tokenizer, batches = masked_batches(tmp_path, text=text * 40)
    starts = vocabulary.word_starts(tokenizer)
    num_predicted = num_partial = 0
    for targets, tokens in batches:
        continues = ~starts[tokens] & (tokens > 3)
        both = continues[:, 1:] & (tokens[:, :-1] > 3)
        num_partial += ((targets[:, 1:] != 1) != (targets[:, :-1] != 1))[both].sum()
        num_predicted += (targets != 1).sum()
    assert num_predicted > 100
    assert num_partial == 0


def test_whole_words_of_a_tokenizer_that_did_not_make_the_data_are_refused(tmp_path):
    """Its words begin elsewhere: another one of the same kind and size, and any for fairseq-preprocess's own words."""
    for name, text in (("own", "calm and unbelievably calm\n"), ("other", "quick brown foxes jump\n")):
        (tmp_path / "text.txt").write_text(text * 40)
        train_tokenizer("byte_level_bpe", [tmp_path / "text.txt"], vocab_size=270, folder=tmp_path / name)
    folder, vocabulary = tmp_path / "data", Vocabulary.load(tmp_path / "own" / "dict.txt")
    options = {"vocabulary": vocabulary, "destination": folder, "progress": False}
    tokenizer = load_tokenizer(tmp_path / "own")
    binarize(
        [tmp_path / "text.txt"], split="train", settings=BinarizeSettings(workers=1), tokenizer=tokenizer, **options
    )
    words = write_data_bin(tmp_path / "words")
    (words / "dict.txt").write_text("".join(f"w{line}" for line in (words / "dict.txt").open()))
    assert load(make_task(folder, mask_whole_words=True, tokenizer_folder=str(tmp_path / "own")))
    for data, lacks in ((folder, ""), (words, ", which lacks the symbol 'w1'")):
        with pytest.raises(
            ValueError, match=f"{data} was made with another tokenizer than this one{lacks}. Give that of"
        ):
            load(make_task(data, mask_whole_words=True, tokenizer_folder=str(tmp_path / "other")))


def test_added_tokens_are_words_by_themselves(tmp_path):
    """Also where they touch the text around them, or take the space along: the parts are drawn one by one."""
    new = AddedToken("[E1]"), AddedToken("<R>", lstrip=True, rstrip=True)
    vocabulary, _, batches = masked_batches(tmp_path, *new, text="calm[E1]calm <R> calm\n" * 200)
    apart = {vocabulary.index(each.content): set() for each in new}
    for targets, tokens in batches:
        for row, column in zip(*np.nonzero(np.isin(tokens, [*apart])), strict=True):
            around = targets[row, column - 1 : column + 2] != 1
            apart[tokens[row, column]] |= {(bool(around[1] != around[0]), bool(around[1] != around[2]))}
    assert all({(True, True), (True, False), (False, True)} <= found for found in apart.values())


def test_checkpoints_remember_the_tokenizer_and_the_vocabulary(tmp_path):
    folder = write_data_bin(tmp_path / "bin", num_documents=3, valid_documents=2)
    for tokenizer in (None, {"kind": "byte-level-bpe", "sha256": {"vocab.bpe": "0"}}):
        if tokenizer:
            digest = hashlib.sha256((folder / "dict.txt").read_bytes()).hexdigest()
            write_manifest(folder, {"tokenizer": tokenizer, "dict_sha256": digest}, {})
        task = RobertaMaskedLMTask.setup_task(RobertaMaskedLMConfig(data=str(folder), seed=1))
        assert task.state_dict() == {"data": {"tokenizer": tokenizer, "vocabulary": task.vocabulary.sha256}}


@pytest.fixture
def model():
    return SimpleNamespace(set_epoch=lambda epoch: None)


def validated(task, split, loss):
    """What fairseq logs of a validation."""
    task.get_batch_iterator(task.dataset(split), max_sentences=2)
    stats = {"loss": loss, "num_updates": 7}
    task.post_validate(None, stats, None)
    return stats


def test_validations_have_the_baselines_of_their_split_and_the_end_says_where_they_stand(two_corpora, model, caplog):
    large, small = two_corpora
    for end in (".bin", ".idx"):
        shutil.copy(small / f"train{end}", large / f"valid_other{end}")
    task = make_task(f"{large},{small}", sample_break_mode="none")
    for split in ("valid", "valid_other"):
        load(task, split=split, combine=False)
    load(task)
    with caplog.at_level(logging.INFO):
        for epoch in (1, 2):
            task.begin_epoch(epoch, model)
    assert caplog.text.count("baselines on valid:") == caplog.text.count("baselines on valid_other:") == 1
    splits = {"valid": [large / "valid", small / "valid"], "valid_other": [large / "valid_other"]}
    for split, found in baselines_of([large / "train", small / "train"], splits).items():
        assert task.baselines[split] == found
        stats = validated(task, split, 3.0 if split == "valid" else 20.0)
        assert stats["unigram_loss"] == round(found.unigram, 3) and stats["bigram_loss"] == round(found.bigram, 3)
        assert found.neighbors.both.loss < stats["neighbors_loss"] < found.neighbors.other_alone.loss
    task.get_batch_iterator(task.dataset("train"), max_sentences=2)
    with caplog.at_level(logging.INFO):
        task.end_training()
    levels = {record.message.split(",")[0]: record.levelname for record in caplog.records[-2:]}
    assert levels == {"On valid": "INFO", "On valid_other": "WARNING"}


def test_no_baselines_where_not_wanted_and_none_but_on_the_first_rank(two_corpora, model, monkeypatch):
    folder = two_corpora[0]
    for rank, options in ((0, {"no_baselines": True}), (1, {})):
        monkeypatch.setattr(distributed_utils, "get_global_rank", lambda rank=rank: rank)
        task = make_task(folder, **options)
        load(task, split="valid", combine=False)
        load(task)
        task.begin_epoch(1, model)
        assert validated(task, "valid", 3.0) == {"loss": 3.0, "num_updates": 7}
        task.end_training()
    assert not list(folder.glob("baselines*"))


@pytest.mark.parametrize(
    ("changes", "packs"),
    [
        ({}, True),
        ({"no_pack_sequences": True}, False),
        ({"sample_break_mode": "none"}, False),
        ({"cpu": True}, False),
        ({"bf16": False}, False),
        ({"bf16": False, "fp16": True}, False),
        ({"answer": False}, False),
        ({"cuda": False}, False),
    ],
    ids=str,
)
def test_blocks_are_packed_by_default_where_a_gpu_has_the_kernel(changes, packs, monkeypatch, caplog):
    settings = {"cpu": False, "bf16": True, "fp16": False, "amp": False, "sample_break_mode": "complete", **changes}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: settings.get("cuda", True))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)

    class Model:
        """One that a GPU would pack rows for."""

        @staticmethod
        def prefers_packing(device, dtype):
            return settings.get("answer", True) and device.type == "cuda" and dtype == torch.bfloat16

    with caplog.at_level(logging.INFO):
        assert packs_by_default(Namespace(**settings), Model()) is packs
    assert ("--no-pack-sequences pads them" in caplog.text) is packs
    assert not packs_by_default(Namespace(**settings), object())


def test_packing_by_default_keeps_the_order_of_the_epoch(tiny_data_bin):
    """A run that moves between machines sees every block once."""
    padded, packed = make_task(tiny_data_bin), make_task(tiny_data_bin)
    packed.packs = True
    orders = [load(task).order(1).addresses(0, 60).indices.tolist() for task in (padded, packed)]
    assert orders[0] == orders[1]
    assert load(packed).pack and not load(padded).pack


@pytest.mark.parametrize(("name", "mode"), [("full-sentences", "complete"), ("doc-sentences", "complete_doc")])
def test_names_of_the_paper_are_break_modes(name, mode, tiny_data_bin):
    one = load(make_task(tiny_data_bin, input_format=name))
    other = load(make_task(tiny_data_bin, sample_break_mode=mode))
    everything = np.arange(len(one))
    assert len(one) == len(other) > 20
    for mine, theirs in zip(
        one.sources[0].blocks.bounds(everything), other.sources[0].blocks.bounds(everything), strict=True
    ):
        assert np.array_equal(mine, theirs)
    assert load(make_task(tiny_data_bin, input_format=name, sample_break_mode=mode)).longest == one.longest


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"input_format": "doc-sentences", "sample_break_mode": "complete"},
            "contradicts --sample-break-mode complete",
        ),
        ({"input_format": "full-sentences", "sample_break_mode": "eos"}, "contradicts --sample-break-mode eos"),
    ],
)
def test_what_cannot_work_is_refused(settings, sentence, tiny_data_bin):
    with pytest.raises(ValueError, match=sentence):
        make_task(tiny_data_bin, **settings)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"grow_max_tokens": "0:64 30:128"}, [30, 1, None]),
        ({"grow_tokens_per_sample": "0:16 30:32"}, [30, 1, None]),
        ({"grow_tokens_per_sample": "0:16 50:32", "grow_max_tokens": "0:64 30:128"}, [30, 1, 20]),
    ],
    ids=["batches", "blocks", "both"],
)
def test_an_epoch_ends_where_blocks_or_batches_grow(two_corpora, options, left):
    task = make_task(two_corpora[0], **options)
    dataset = load(task)
    found = []
    for updates in (0, 29, 30):
        task.count_updates = lambda updates=updates: updates
        found.append(task.updates_left(dataset))
    assert found == left
    assert task.updates_left(load(task, split="valid")) is None, "a validation has all of its batches"


COUNTS = {"arch": "fast_roberta_tiny", "encoder_normalize_before": True, "init_attention": "counts", **SIZES}


def test_initial_weights_are_from_the_counts_of_the_training_text_alone(tiny_data_bin, caplog):
    """A checkpoint's model is built without them, for it has weights of its own."""
    caplog.set_level(logging.INFO)
    torch.manual_seed(1)
    first = make_task(tiny_data_bin).build_model(Namespace(**COUNTS)).state_dict()
    counted = MmapTokens(tiny_data_bin / "train").num_tokens
    assert f"initial weights from counts of {counted:,} tokens, in " in caplog.text
    torch.manual_seed(1)
    same = make_task(tiny_data_bin).build_model(Namespace(**COUNTS)).state_dict()
    assert all(torch.equal(first[name], same[name]) for name in first)
    caplog.clear()
    torch.manual_seed(1)
    opened = make_task(tiny_data_bin).build_model(Namespace(**COUNTS), from_checkpoint=True).state_dict()
    torch.manual_seed(1)
    random = make_task(tiny_data_bin).build_model(Namespace(**COUNTS | {"init_attention": "random"})).state_dict()
    assert all(torch.equal(opened[name], random[name]) for name in random) and "counts" not in caplog.text
    table = "encoder.sentence_encoder.embed_tokens.weight"
    assert not torch.equal(first[table], random[table])


@pytest.mark.parametrize(("data", "times"), [("{}/,{}", (1, 1)), ("{}:{}", (1, 1)), ("{}@1,{}@1", None)])
def test_counts_are_of_a_mixture_as_the_training_reads_it(two_corpora, data, times, monkeypatch):
    counted = {}
    monkeypatch.setattr(masked_lm, "begin_with_counts", lambda _, pairs: counted.update(pairs))
    make_task(data.format(*two_corpora)).build_model(Namespace(**COUNTS | {"encoder_attention_heads": 4}))
    files = [MmapTokens(folder / "train") for folder in two_corpora]
    vocabulary = Vocabulary.load(two_corpora[0] / "dict.txt")
    whole = sum(file.num_tokens for file in files)
    times = times or [whole / 2 / file.num_tokens for file in files]
    assert times == (1, 1) or times[1] > 2 * times[0], "guard: the small one is read more often"
    for distance in (1, 2):
        alone = [count_pairs(spread_windows([file], 2**20), vocabulary, distance=distance) for file in files]
        expected = sum(each.toarray() * factor for each, factor in zip(alone, times, strict=True))
        assert np.allclose(counted[distance].toarray(), expected, rtol=0.02)


TWO_RANKS = """
import sys
import torch
import torch.distributed as dist
from roberta_plugin.tasks.masked_lm import take_first_ranks_weights

def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(rank)
    model = torch.nn.Linear(3, 2)
    before = model.weight.tolist()
    take_first_ranks_weights(model)
    torch.save([before, model.weight.tolist(), model.bias.tolist()], f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.start_processes(work, args=(sys.argv[1],), nprocs=2, start_method="fork")
"""


def test_all_ranks_begin_with_the_first_ones_weights(tmp_path):
    """Legacy DDP sends none, and processors of other kinds compute others from the same counts."""
    printed(TWO_RANKS, str(tmp_path), fork_of="plugin")
    (first, *weights), (second, *others) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert first != second and weights == others and weights[0] == first
