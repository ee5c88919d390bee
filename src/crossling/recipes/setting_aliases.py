"""Names that other libraries give to the settings of a recipe."""

from __future__ import annotations

from crossling.core import settings

_BATCH = "The batch size is set for each objective, in tokens per step. Set mlm.tokens=N, or that of another objective."
_LENGTH = "The length is set for each objective. Set mlm.length=N, or that of another objective."
_DEVICE = "The device is selected automatically. Choose GPUs with the environment variable CUDA_VISIBLE_DEVICES."
_PRECISION = "GPUs train in bfloat16 with float32 weights, CPUs in float32. Omit it, or set precision=fp8."
_MASKING = "The masking rate is set for each objective. Set mlm.rate=0.15, or that of another objective."

# By our key, or by a hint.
_CONVENTIONAL_NAMES = {
    "optimizer.beta1": "adam_beta1 beta1",
    "optimizer.beta2": "adam_beta2 beta2",
    "optimizer.epsilon": "adam_epsilon adam_eps eps epsilon",
    "optimizer.generator_lr_factor": "generator_rate",
    "optimizer.schedule": "lr_scheduler_type lr_scheduler lr_schedule",
    "optimizer.cooldown": "num_decay_steps decay_steps cooldown_steps",
    "model.layers": "num_hidden_layers num_layers n_layers layers",
    "model.width": "hidden_size d_model hidden_dim embed_dim width",
    "model.heads": "num_attention_heads num_heads n_heads heads",
    "model.feed_forward": "intermediate_size ffn_dim d_ff feed_forward",
    "model.activation": "hidden_act hidden_activation activation_function feed_forward_proj",
    "model.biases": "attention_bias mlp_bias norm_bias use_bias bias",
    "model.position": "position_embedding_type rotary rope",
    "model.rope_theta": "rope_theta global_rope_theta rotary_base",
    "model.max_length": "max_position_embeddings max_positions max_length",
    "model.dropout": "hidden_dropout_prob dropout",
    "model.attention_dropout": "attention_probs_dropout_prob attention_dropout",
    "model.init": "initializer_range",
    "model.norm_epsilon": "layer_norm_eps",
    "gradient_checkpointing": "recompute activation_checkpointing grad_checkpointing",
    "xlco.queue": "queue_size queue_length",
    "xlco.temperature": "temperature tau",
    "sampling.text_alpha": "alpha sampling_alpha smoothing",
    "keep_last": "save_total_limit keep_last_epochs keep_interval_updates",
    "keep_best": "metric_for_best_model best_checkpoint_metric",
    _BATCH: "tokens_per_batch",
    _PRECISION: "fp16 bf16 fp8 mixed_precision dtype amp",
    _DEVICE: "device gpu gpus n_gpu use_cpu",
    _MASKING: "mlm_probability masking_rate mask_prob",
}
SETTING_ALIASES = settings.conventional_aliases(
    warmup="optimizer.warmup",
    weight_decay="optimizer.decay",
    clip="optimizer.clip",
    batch=_BATCH,
    length=_LENGTH,
    epochs="A run is set in steps. Set steps=N.",
) | {name: key for key, names in _CONVENTIONAL_NAMES.items() for name in names.split()}
del SETTING_ALIASES["precision"]  # is a setting of a recipe
