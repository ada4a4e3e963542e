"""The kernels of one logit per label, each a problem of two classes with a threshold of ½.

A tile has the labels down and the rows across, as in `sums`. A binary problem has one label. Per
label there are nine sums: tp, fp, actual, negatives, fn and tn of memberships, tp and predicted of
hard labels, and the cross-entropy.
"""

import triton
import triton.language as tl

from evalign.kernels.fused.step import at_half


@triton.jit
def label_sums(
    logits, target, weight, temperature, offsets, partial,
    images, size, z_image, z_class, z_row, w_image, w_row, ignore,
    y_image, y_class, y_row, LABELS: tl.constexpr, WEIGHTED: tl.constexpr,
    CROSS_ENTROPY: tl.constexpr, EPS: tl.constexpr, BINARY: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The sums of some labels over this program's rows."""
    compute: tl.constexpr = partial.dtype.element_ty
    t = tl.load(temperature).to(compute)
    label = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    tiles = tl.cdiv(size, ROWS)
    nothing = tl.zeros([COLUMNS, ROWS], compute)
    tp, fp, fn, tn, actual, negatives = nothing, nothing, nothing, nothing, nothing, nothing
    hard, hard_right, crosses, counts = nothing, nothing, nothing, nothing
    by = t
    if CROSS_ENTROPY:
        by = shift(offsets, label, LABELS, BINARY, compute)
    for tile in range(tl.program_id(0), images * tiles, tl.num_programs(0)):
        image = tile // tiles
        s = (tile - image * tiles) * ROWS + tl.arange(0, ROWS)[None, :]
        z, y, w = label_rows(
            logits, target, weight, image, s, label, size, z_image, z_class, z_row,
            y_image, y_class, y_row, w_image, w_row, ignore, LABELS, WEIGHTED, compute,
        )  # fmt: skip
        h, _slope = at_half(z, t, EPS)
        positive, negative = w * y, w * (1 - y)
        tp += positive * h
        fn += positive * (1 - h)
        fp += negative * h
        tn += negative * (1 - h)
        actual += positive
        negatives += negative
        labelled = z > 0
        hard += tl.where(labelled, w, 0)
        hard_right += tl.where(labelled, positive, 0)
        counts += tl.where(w > 0, tl.full([], 1, compute), tl.full([], 0, compute))
        if CROSS_ENTROPY:
            z += by
            if CROSS_ENTROPY == 2:
                absent, present = factors(offsets, label, LABELS, BINARY, compute)
                negative *= absent
                positive *= present
            # A share of 0 is 0 even where the logarithm is infinite.
            crosses += tl.where(positive == 0, 0, positive * _softplus(-z))
            crosses += tl.where(negative == 0, 0, negative * _softplus(z))
    own = partial + tl.program_id(0).to(tl.int64) * (9 * LABELS + 1)
    label = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    real = label < LABELS
    tl.store(own + label, tl.sum(tp, 1), mask=real)
    tl.store(own + LABELS + label, tl.sum(fp, 1), mask=real)
    tl.store(own + 2 * LABELS + label, tl.sum(actual, 1), mask=real)
    tl.store(own + 3 * LABELS + label, tl.sum(negatives, 1), mask=real)
    tl.store(own + 4 * LABELS + label, tl.sum(fn, 1), mask=real)
    tl.store(own + 5 * LABELS + label, tl.sum(tn, 1), mask=real)
    tl.store(own + 6 * LABELS + label, tl.sum(hard_right, 1), mask=real)
    tl.store(own + 7 * LABELS + label, tl.sum(hard, 1), mask=real)
    tl.store(own + 8 * LABELS + label, tl.sum(crosses, 1), mask=real)
    if BINARY:
        tl.store(own + 9, tl.sum(tl.sum(counts, 1), 0))


@triton.jit
def label_gradient(
    logits, target, weight, slopes, outer, grad,
    images, size, z_image, z_class, z_row, w_image, w_row, ignore,
    y_image, y_class, y_row, LABELS: tl.constexpr, WEIGHTED: tl.constexpr,
    CROSS_ENTROPY: tl.constexpr, EPS: tl.constexpr, BINARY: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`outer` times the gradient, given the slopes (2, C) of the loss by tp and predicted."""
    compute: tl.constexpr = slopes.dtype.element_ty
    classes = 2 if BINARY else LABELS
    t = tl.load(slopes + 2 * classes + 1)
    scale = tl.load(outer).to(compute)
    label = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    real = label < LABELS
    # ∂L/∂H of a row is w·(y·of_tp + of_predicted). In a binary problem what enters the positive
    # class leaves the negative one.
    if BINARY:
        negative = tl.load(slopes)
        of_tp = tl.load(slopes + 1) + negative
        of_predicted = tl.load(slopes + 3) - tl.load(slopes + 2) - negative
    else:
        of_tp = tl.load(slopes + label, mask=real, other=0)
        of_predicted = tl.load(slopes + LABELS + label, mask=real, other=0)
    offsets, by = slopes + 2 * classes + 2, of_tp
    if CROSS_ENTROPY:
        by = shift(offsets, label, LABELS, BINARY, compute)
    tiles = tl.cdiv(size, ROWS)
    for tile in range(tl.program_id(0), images * tiles, tl.num_programs(0)):
        image = tile // tiles
        s = (tile - image * tiles) * ROWS + tl.arange(0, ROWS)[None, :]
        z, y, w = label_rows(
            logits, target, weight, image, s, label, size, z_image, z_class, z_row,
            y_image, y_class, y_row, w_image, w_row, ignore, LABELS, WEIGHTED, compute,
        )  # fmt: skip
        _h, slope = at_half(z, t, EPS)
        out = slope * (y * of_tp + of_predicted)
        if CROSS_ENTROPY:
            p = 1 / (1 + tl.exp(-(z + by)))
            cross = p - y
            if CROSS_ENTROPY == 2:
                absent, present = factors(offsets, label, LABELS, BINARY, compute)
                cross = absent * (1 - y) * p - present * y * (1 - p)
            out += tl.load(slopes + 2 * classes) * cross
        at = grad + image.to(tl.int64) * z_image + s.to(tl.int64) * z_row + label * z_class
        out = tl.where(w == 0, 0, out * w * scale).to(grad.dtype.element_ty)
        tl.store(at, out, mask=real & (s < size))


@triton.jit
def label_rows(
    logits, target, weight, image, s, label, size, z_image, z_class, z_row,
    y_image, y_class, y_row, w_image, w_row, ignore,
    LABELS: tl.constexpr, WEIGHTED: tl.constexpr, compute: tl.constexpr,
):  # fmt: skip
    """Logits, targets and weights of a tile. A label that is ignored has weight 0 and target 0."""
    live = (s < size) & (label < LABELS)
    at = image.to(tl.int64) * z_image + s.to(tl.int64) * z_row + label * z_class
    z = tl.load(logits + at, mask=live, other=0).to(compute)
    at = image.to(tl.int64) * y_image + s.to(tl.int64) * y_row + label * y_class
    y = tl.load(target + at, mask=live, other=0).to(compute)
    counts = live & (y != ignore)
    if WEIGHTED:
        at = image.to(tl.int64) * w_image + s.to(tl.int64) * w_row
        w = tl.where(counts, tl.load(weight + at, mask=s < size, other=0).to(compute), 0)
    else:
        w = tl.where(counts, tl.full([], 1, compute), tl.full([], 0, compute))
    return tl.where(w == 0, 0, z), tl.where(counts, y, 0), w  # padding may hold anything


@triton.jit
def shift(offsets, label, LABELS: tl.constexpr, BINARY: tl.constexpr, compute: tl.constexpr):
    """What the cross-entropy adds to the logits of labels; a binary problem has two offsets."""
    if BINARY:
        return (tl.load(offsets + 1) - tl.load(offsets)).to(compute) + 0 * label.to(compute)
    else:
        return tl.load(offsets + label, mask=label < LABELS, other=0).to(compute)


@triton.jit
def factors(offsets, label, LABELS: tl.constexpr, BINARY: tl.constexpr, compute: tl.constexpr):
    """The factors of absence and presence, which stand behind the offsets; a label has one."""
    if BINARY:
        return tl.load(offsets + 2).to(compute), tl.load(offsets + 3).to(compute)
    else:
        both = tl.load(offsets + LABELS + label, mask=label < LABELS, other=0).to(compute)
        return both, both


@triton.jit
def _softplus(x):
    return tl.maximum(x, 0) + tl.log(1 + tl.exp(-tl.abs(x)))
