"""Models of pictures and of sound."""

from typing import Any

from zoo_member import VMAP, Batch, Member, classes, classified, numbers, tokens, told, words
from zoo_text import BART, SIZES, made

VISION: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 16,
    "patch_size": 4,
    "num_channels": 3,
    "num_labels": 3,
}
STAGES: dict[str, Any] = {"image_size": 16, "num_labels": 3, "num_channels": 3}


def picture_batch() -> Batch:
    return {"pixel_values": numbers(3, 16, 16), "targets": classes()}


def seen(name: str, **sizes: Any) -> Member:
    return Member(build=lambda: made(name, **{**VISION, **sizes}), batch=picture_batch, losses=classified)


def staged(name: str, **sizes: Any) -> Member:
    return Member(build=lambda: made(name, **{**STAGES, **sizes}), batch=picture_batch, losses=classified)


def heard(name: str, **sizes: Any) -> Member:
    return Member(
        build=lambda: made(name, **{**SIZES, "num_labels": 3, **sizes}),
        batch=lambda: {"input_values": numbers(160), "targets": classes()},
        losses=classified,
    )


WAVES: dict[str, Any] = {
    "conv_dim": [8, 8],
    "conv_stride": [5, 2],
    "conv_kernel": [10, 3],
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 8,
    "feat_extract_norm": "layer",
    "conv_bias": True,
    "apply_spec_augment": False,
    "mask_time_prob": 0.0,
}

PICTURES: dict[str, Member] = {
    "ViT": seen("ViTForImageClassification"),
    "DeiT": seen("DeiTForImageClassification"),
    "BEiT": seen("BeitForImageClassification", use_relative_position_bias=True, layer_scale_init_value=0.1),
    "Data2Vec (pictures)": seen(
        "Data2VecVisionForImageClassification", use_relative_position_bias=True, use_absolute_position_embeddings=True
    ),
    "DINOv2": seen("Dinov2ForImageClassification"),
    "Swin": staged(
        "SwinForImageClassification", patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=4, drop_path_rate=0.0
    ),
    "Swin v2": staged(
        "Swinv2ForImageClassification", patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=4, drop_path_rate=0.0
    ),
    "ConvNeXt": staged("ConvNextForImageClassification", patch_size=2, num_stages=2, hidden_sizes=[8, 12], depths=[1, 1]),
    "ConvNeXt v2": staged("ConvNextV2ForImageClassification", patch_size=2, num_stages=2, hidden_sizes=[8, 12], depths=[1, 1]),
    "PoolFormer": staged(
        "PoolFormerForImageClassification",
        num_encoder_blocks=2,
        depths=[1, 1],
        hidden_sizes=[8, 12],
        patch_sizes=[3, 3],
        strides=[2, 2],
        padding=[1, 1],
        mlp_ratio=2.0,
    ),
    "SegFormer": staged(
        "SegformerForImageClassification",
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 12],
        patch_sizes=[3, 3],
        strides=[2, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        drop_path_rate=0.0,
    ),
    "FocalNet": staged(
        "FocalNetForImageClassification", patch_size=2, embed_dim=8, depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3]
    ),
    "Hiera (multi-scale)": staged(
        "HieraForImageClassification",
        image_size=[16, 16],
        patch_size=[3, 3],
        patch_stride=[2, 2],
        patch_padding=[1, 1],
        embed_dim=8,
        depths=[1, 2],
        num_heads=[1, 2],
        query_stride=[2, 2],
        masked_unit_size=[4, 4],
        masked_unit_attention=[True, False],
        num_query_pool=1,
    ),
    "ResNet": staged("ResNetForImageClassification", embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic"),
    "I-JEPA": seen("IJepaForImageClassification"),
    "Wav2Vec 2": heard("Wav2Vec2ForSequenceClassification", **WAVES),
    "HuBERT": heard("HubertForSequenceClassification", **WAVES),
    "WavLM": heard("WavLMForSequenceClassification", **WAVES),
    "AST": Member(
        build=lambda: made(
            "ASTForAudioClassification",
            **{**VISION, "max_length": 24, "num_mel_bins": 12, "patch_size": 4, "frequency_stride": 4, "time_stride": 4},
        ),
        batch=lambda: {"input_values": numbers(24, 12), "targets": classes()},
        losses=classified,
    ),
    "Whisper": Member(
        build=lambda: made(
            "WhisperForConditionalGeneration", **{**SIZES, **BART, "num_mel_bins": 6, "max_source_positions": 8, "max_target_positions": 16}
        ),
        batch=lambda: {"input_features": numbers(6, 16), "decoder_input_ids": tokens(4), "targets": classes(31, 4)},
        losses=words,
    ),
}

told(PICTURES, VMAP, {"WavLM": "attention is one function of all its weights, and keeps the records along another dimension"})
told(
    PICTURES, "refused", {"ResNet": "batch normalisation in training mode mixes records: use nn.GroupNorm, or eval mode"}, "fix_batch_norm"
)
