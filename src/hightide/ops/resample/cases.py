"""The cases of the resample ops; see `hightide.ops.case`."""

from __future__ import annotations

from hightide.ops.case import Case, In, image

CASES = [
    Case("nearest_factors", "aten.upsample_nearest2d.vec", (image, None, [1.6, 2.3]), empty=False),
    Case("nearest_size", "aten.upsample_nearest2d.vec", (image, [9, 5], None), empty=False),
    Case("bilinear_factors", "aten.upsample_bilinear2d.vec", (image, None, False, [1.6, 2.0]), empty=False),
    Case("bilinear_corners", "aten.upsample_bilinear2d.vec", (image, None, True, [2.5, 3.0]), empty=False),
    Case("bilinear_size", "aten.upsample_bilinear2d.vec", (image, [30, 4], False, None), empty=False),
    *(
        Case(
            f"grid_{mode}_{padding}_{corners}",
            "aten.grid_sampler_2d.default",
            (In(("B", 3, 6, "T")), In(("B", "S", "T", 2), low=-1.8, high=1.8), mode, padding, corners),
            tolerance=2e-5,
        )
        for mode in (0, 1)
        for padding in (0, 1, 2)
        for corners in (False, True)
    ),
    Case("pixel_shuffle", "aten.pixel_shuffle.default", (In(("B", 12, "S", "T")), 2)),
    Case("pixel_shuffle_plane", "aten.pixel_shuffle.default", (In((9, "S", 2)), 3)),
    Case("pixel_unshuffle", "aten.pixel_unshuffle.default", (In(("S", 2, 6, 9)), 3)),
    *(
        Case(
            f"grid_bicubic_{padding}_{corners}",
            "aten.grid_sampler_2d.default",
            (In(("B", 3, 6, "T")), In(("B", "S", "T", 2), low=-1.8, high=1.8), 2, padding, corners),
            tolerance=5e-5,
        )
        for padding in (0, 1, 2)
        for corners in (False, True)
    ),
    Case("smooth_smaller", "aten._upsample_bilinear2d_aa.default", (image, [4, 3], False), tolerance=1e-5, empty=False),
    Case(
        "smooth_larger",
        "aten._upsample_bilinear2d_aa.default",
        (image, [30, 11], False, None, None),
        tolerance=1e-5,
        empty=False,
    ),
    Case("smooth_corners", "aten._upsample_bilinear2d_aa.default", (image, [7, 5], True), tolerance=1e-5, empty=False),
]
