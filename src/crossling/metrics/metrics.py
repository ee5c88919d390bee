"""The metrics by name. Beside those of the public scripts stand corrections, under a protocol of their own."""

from __future__ import annotations

from crossling.metrics import answering, classification, tagging, values
from crossling.metrics.metric import Metric

XTREME, GLUE, SQUAD2 = "xtreme", "glue", "squad-2.0"

METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", XTREME, classification.right, values.share),
    "chunk-f1": Metric("f1", XTREME, tagging.chunked, values.f1),
    "squad-f1": Metric("f1", XTREME, answering.f1_by(answering.squad_words), values.share),
    "squad-exact-match": Metric("exact_match", XTREME, answering.exact_by(answering.squad_words), values.share),
    "mlqa-f1": Metric("f1", XTREME, answering.f1_by(answering.mlqa_words), values.share),
    "mlqa-exact-match": Metric("exact_match", XTREME, answering.exact_by(answering.mlqa_words), values.share),
    "squad2-f1": Metric("f1", SQUAD2, answering.squad2_f1, values.share),
    "squad2-exact-match": Metric("exact_match", SQUAD2, answering.squad2_exact, values.share),
    "glue-accuracy": Metric("accuracy", GLUE, classification.right, values.share),
    "glue-f1": Metric("f1", GLUE, classification.positives, values.f1),
    "matthews": Metric("matthews", GLUE, classification.binary, values.matthews),
    "pearson": Metric("pearson", GLUE, classification.moments, values.correlation),
    "spearman": Metric("spearman", GLUE, classification.ranks, values.correlation),
    # Corrections.
    "token-accuracy": Metric("accuracy", "tokens", tagging.tokens, values.share),
    "characters-f1": Metric("f1", "characters", answering.f1_by(answering.character_words), values.share),
}
