"""The extensions: each folder is one task or capability, with everything that it brings, and can be deleted.

An extension's `__init__.py` is light, because every command reads it: it imports `roberta_plugin.registry` alone. Its
other files import the trunk, which is the rest of the package, and no other extension. Packages of others are
extensions in the same way; `roberta_plugin/registry.py` describes how.

    masks        the answers of the masked LM: fill_mask, score
    texts        labels and numbers of texts and pairs: classification, multi_label, regression; GLUE, XNLI, SuperGLUE
    pronouns     competing phrases in place of a pronoun: WNLI, WSC, WinoGrande
    choices      multiple choice: RACE, COPA, ReCoRD, CommonsenseQA
    spans        answers in a passage: SQuAD
    tagging      a tag for each word: CoNLL-2003, WNUT-17
    summaries    the sentences that sum a document up: CNN/DailyMail
    embeddings   vectors of texts
    own_tables   tables of your own, cut into training and development set
    onnx         graphs for ONNX Runtime, with 8-bit weights as an option
    peft         low-rank adapters in peft's format
    sentence_transformers   vectors of texts for sentence-transformers
    modernbert   Hugging Face's ModernBERT
    character_bpe  character-level BPE on words, as in BERT
    vocabulary_change  new words, or another tokenizer, for a trained model
    studies      comparisons of pretrainings: variants with seeds at an equal budget
    bert_pairs   pretraining on pairs of texts, with segments and next-sentence prediction (Table 2)
"""
