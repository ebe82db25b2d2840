"""Models from and for other programs: Hugging Face, fairseq without this plugin, ONNX Runtime.

pretrained                    a file or folder of any format -> a model ready for use (`open_pretrained`)
convert                       `roberta export` and `roberta import` as procedures with typed settings
portable                      a model on its way between formats
heads                         kinds of heads, and their counterparts
number_scale                  a regression's head -> rescaled to the labels

fairseq_checkpoint            checkpoints of any year, run folders   -> portable
fairseq_archive               archives of released models            <-> portable
gpt2_files                    the two files that these archives lack
run_folders                   a folder -> its checkpoint, dict.txt and tokenizer

huggingface                   a folder of Hugging Face               <-> portable, by these parts:
huggingface_folder            files of weights, memory-mapped
huggingface_config            config.json                            <-> options
huggingface_weights           names of parameters
huggingface_tokenizers        tokenizers and ids of symbols          <-> tokenizer.json and its like

onnx_model                    portable                               -> model.onnx
model_card                    README.md of an export
output_folder                 folders that appear when they are complete
"""
