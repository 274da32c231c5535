"""The tables of ExecuTorch's XNNPACK schema: the names of their fields, in the schema's order."""

from __future__ import annotations

from hightide.formats.flatbuffer import Fields

XNN_GRAPH = (
    "version",
    "xnodes",
    "xvalues",
    "num_externs",
    "input_ids",
    "output_ids",
    "constant_buffer",
    "mem_buffer_sizes",
    "constant_data",
)
CONSTANT_OFFSET = ("offset", "size", "named_key")
XVALUE = ("xvalue_union_type", "xvalue_union")
TENSOR_VALUE = ("datatype", "num_dims", "dims", "constant_buffer_idx", "external_id", "flags", "id_out")
QUANTIZED_VALUE = ("tensor_value", "quant_params_type", "quant_params")
VALUES = {"XNNTensorValue": TENSOR_VALUE, "XNNQuantizedTensorValue": QUANTIZED_VALUE}
SCALINGS = {
    "PerChannelQuant": ("scale", "channel_dim", "scale_buffer_idx", "num_scales"),
    "PerTensorQuant": ("scale", "zero_point"),
    "PerTokenDynamicQuant": ("num_nonbatch_dims",),
    "PerChannelGroupQuant": ("scale", "channel_dim", "group_size", "scale_bf16", "scale_buffer_idx", "num_scales"),
}
XNODE = ("xnode_union_type", "xnode_union", "debug_handle", "output_min_max")
OUTPUT_RANGE = ("output_min", "output_max")

FLOATS = {"padding_value", "alpha", "negative_slope"}
LISTS = {"perm", "pre_paddings", "post_paddings", "new_shape", "offsets", "sizes"}

_ONE = ("input_id", "output_id", "flags")
_TWO = ("input1_id", "input2_id", "output_id", "flags")
_CAT = ("axis", "input1_id", "input2_id", "input3_id", "input4_id", "output_id", "flags", "input5_id")
_PADDING = ("padding_top", "padding_right", "padding_bottom", "padding_left")
_CONV = (
    *_PADDING,
    "kernel_height",
    "kernel_width",
    "subsampling_height",
    "subsampling_width",
    "dilation_height",
    "dilation_width",
    "group_input_channels",
    "group_output_channels",
    "groups",
    "adjustment_height",
    "adjustment_width",
    "input1_id",
    "filter_id",
    "bias_id",
    "output_id",
    "flags",
)
_POOL = (
    *_PADDING,
    "pooling_height",
    "pooling_width",
    "stride_height",
    "stride_width",
    "dilation_height",
    "dilation_width",
    *_ONE,
)

NODES: dict[str, Fields] = {
    "Add": _TWO,
    "FullyConnected": ("input1_id", "filter_id", "bias_id", "output_id", "flags"),
    "Softmax": _ONE,
    "Sigmoid": _ONE,
    "StaticTranspose": ("num_dims", "perm", *_ONE),
    "Clamp": _ONE,
    "Conv2d": _CONV,
    "Div": _TWO,
    "StaticResizeBilinear2D": ("new_height", "new_width", *_ONE),
    "StaticConstantPad": ("pre_paddings", "post_paddings", "padding_value", *_ONE),
    "AvgPooling2d": _POOL,
    "Minimum": _TWO,
    "DepthwiseConv2d": _CONV,
    "MaxPooling2d": _POOL,
    "Multiply": _TWO,
    "Subtract": _TWO,
    "Floor": _ONE,
    "Convert": _ONE,
    "GlobalAvgPooling2d": _ONE,
    "StaticReshape": ("num_dims", "new_shape", *_ONE),
    "ArgMaxPooling2d": (
        *_PADDING,
        "pooling_height",
        "pooling_width",
        "input_id",
        "output_value_id",
        "output_index_id",
        "flags",
    ),
    "SquareRoot": _ONE,
    "Ceiling": _ONE,
    "Hardswish": _ONE,
    "LeakyReLU": ("negative_slope", *_ONE),
    "Maximum": _TWO,
    "Negate": _ONE,
    "Square": _ONE,
    "ELU": ("alpha", *_ONE),
    "Abs": _ONE,
    "PReLU": _TWO,
    "Concatenate2": _CAT,
    "Concatenate3": _CAT,
    "Concatenate4": _CAT,
    "StaticSlice": ("num_dims", "offsets", "sizes", *_ONE),
    "ScaledDotProductAttention": ("query_id", "key_id", "value_id", "scale_id", "mask_id", "output_id", "flags"),
    "BatchMatrixMultiply": _TWO,
    "Concatenate5": _CAT,
    "ConvTranspose2d": _CONV,
    "ReciprocalSquareRoot": _ONE,
    "Log": _ONE,
    "Gelu": _ONE,
    "Tanh": _ONE,
    "Exp": _ONE,
    "Sin": _ONE,
    "Copy": _ONE,
    "Cos": _ONE,
}
