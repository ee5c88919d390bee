"""Label sets of data sets with many labels."""

UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ",
    "SYM", "VERB", "X",
)  # fmt: skip
SIB200 = ("entertainment", "geography", "health", "politics", "science/technology", "sports", "travel")
CHEMPROT = (
    "ACTIVATOR", "AGONIST", "AGONIST-ACTIVATOR", "AGONIST-INHIBITOR", "ANTAGONIST", "DOWNREGULATOR",
    "INDIRECT-DOWNREGULATOR", "INDIRECT-UPREGULATOR", "INHIBITOR", "PRODUCT-OF", "SUBSTRATE", "SUBSTRATE_PRODUCT-OF",
    "UPREGULATOR",
)  # fmt: skip
