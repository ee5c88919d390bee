"""Register all crossling models with the Auto classes of `transformers`.

`crossling.model.lazy_registration` imports this module when a crossling configuration is first loaded.
"""

from __future__ import annotations

import transformers

from crossling.model.config import CrosslingConfig
from crossling.model.encoder_decoder import CrosslingForConditionalGeneration
from crossling.model.encoder_model import CrosslingModel
from crossling.model.heads import CrosslingForMaskedLM, CrosslingForPreTraining
from crossling.model.task_heads import (
    CrosslingForMultipleChoice,
    CrosslingForQuestionAnswering,
    CrosslingForSequenceClassification,
    CrosslingForTokenClassification,
)

AUTO_CLASSES = {
    transformers.AutoModel: CrosslingModel,
    transformers.AutoModelForMaskedLM: CrosslingForMaskedLM,
    transformers.AutoModelForMultipleChoice: CrosslingForMultipleChoice,
    transformers.AutoModelForPreTraining: CrosslingForPreTraining,
    transformers.AutoModelForQuestionAnswering: CrosslingForQuestionAnswering,
    transformers.AutoModelForSeq2SeqLM: CrosslingForConditionalGeneration,
    transformers.AutoModelForSequenceClassification: CrosslingForSequenceClassification,
    transformers.AutoModelForTokenClassification: CrosslingForTokenClassification,
}

transformers.AutoConfig.register(CrosslingConfig.model_type, CrosslingConfig)
transformers.AutoTokenizer.register(CrosslingConfig, fast_tokenizer_class=transformers.PreTrainedTokenizerFast)
for _auto_class, _model_class in AUTO_CLASSES.items():
    _auto_class.register(CrosslingConfig, _model_class)
