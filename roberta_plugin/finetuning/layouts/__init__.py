"""How long inputs become sequences of tokens, below the kinds that read them.

texts       texts and pairs            -> model inputs; what is read of a text that is too long
windows     question, long passage     -> overlapping windows `<s> question </s> </s> part </s>`
words       words of a text            -> tokens, a split of windows; raw outputs -> the label of each word
sentences   sentences of a document    -> windows, and where the model reads their <s>
"""

LONG_TEXTS = ("head", "tail", "head+tail", "windows")  # what is read of a text that is too long
POOLINGS = ("mean", "max")  # of windows
