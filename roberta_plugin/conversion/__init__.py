"""Models from and for other programs: Hugging Face, fairseq without this plugin, and those of extensions.

settings                 settings of `roberta export` and `roberta import`
convert                  the first two as procedures
pretrained               a file or folder of any format -> a portable model, and the model itself
portable                 a model on its way between formats, and its heads
named_models             org/name of the Hugging Face hub, roberta.base and similar names <-> files
model_files              a path -> its format, checkpoint, dict.txt and tokenizer

formats                  the base class of formats of `--to`; `registry.FORMATS` has all
fairseq_format           checkpoints of any year, archives           <-> portable
huggingface              a folder of Hugging Face                    <-> portable, by these parts:
huggingface_model        config.json                                 <-> options, head
huggingface_parameters   their state dict                            <-> ours
families                 differences of other classes than RoBERTa's in these two (`registry.FAMILIES`)
portable_code            any other model of ours, with its code
modeling_roberta_plugin  classes of transformers, which an export copies into its folder
huggingface_tokenizers   a tokenizer                                 ->  tokenizer.json and similar files
fields                   rules for each field of these files
comparison               an imported model and the other program     ->  the same answers, or a refusal
model_card               README.md of an export, with code for transformers
"""
