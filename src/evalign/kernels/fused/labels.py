"""The kernels of one logit per label, each a problem of two classes with a threshold.

A tile has the labels down and the rows across, as in `sums`. A binary problem has one label. Per
label there are six sums, of weight by target and membership: tp, fp, actual, negatives, fn, tn.
"""

# Triton compiles this, and a type checker takes it for Python.
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl

from evalign.kernels.fused.step import at_threshold


@triton.jit
def label_sums(
    logits, target, weight, temperature, odds, threshold, partial,
    images, size, z_image, z_class, z_row, w_image, w_row, ignore,
    y_image, y_class, y_row, each_threshold, LABELS: tl.constexpr, WEIGHTED: tl.constexpr,
    CROSS_ENTROPY: tl.constexpr,
    SIGMOID: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The sums of some labels over this program's rows."""
    compute: tl.constexpr = partial.dtype.element_ty
    t = tl.load(temperature).to(compute)
    label = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    tau = tl.load(threshold + label * each_threshold, mask=label < LABELS, other=0.5).to(compute)
    tiles = tl.cdiv(size, ROWS)
    tp = tl.zeros([COLUMNS, ROWS], compute)
    fp = tl.zeros([COLUMNS, ROWS], compute)
    fn = tl.zeros([COLUMNS, ROWS], compute)
    tn = tl.zeros([COLUMNS, ROWS], compute)
    actual = tl.zeros([COLUMNS, ROWS], compute)
    negatives = tl.zeros([COLUMNS, ROWS], compute)
    crosses = tl.zeros([COLUMNS, ROWS], compute)
    counts = tl.zeros([COLUMNS, ROWS], compute)
    for tile in range(tl.program_id(0), images * tiles, tl.num_programs(0)):
        image = tile // tiles
        s = (tile - image * tiles) * ROWS + tl.arange(0, ROWS)[None, :]
        z, y, w = label_rows(
            logits, target, weight, image, s, label, size, z_image, z_class, z_row,
            y_image, y_class, y_row, w_image, w_row, ignore, LABELS, WEIGHTED, compute,
        )  # fmt: skip
        h, _slope = at_threshold(z, tau, t, SIGMOID, EPS)
        positive, negative = w * y, w * (1 - y)
        tp += positive * h
        fn += positive * (1 - h)
        fp += negative * h
        tn += negative * (1 - h)
        actual += positive
        negatives += negative
        counts += tl.where(w > 0, tl.full([], 1, compute), tl.full([], 0, compute))
        if CROSS_ENTROPY:
            z += shift(odds, compute)
            if CROSS_ENTROPY == 2:  # the classes have factors, which stand behind their odds
                negative *= tl.load(odds + 2).to(compute)
                positive *= tl.load(odds + 3).to(compute)
            # A share of 0 is 0 even where the logarithm is infinite.
            crosses += tl.where(positive == 0, 0, positive * _softplus(-z))
            crosses += tl.where(negative == 0, 0, negative * _softplus(z))
    own = partial + tl.program_id(0).to(tl.int64) * (6 * LABELS + 2)
    label = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    real = label < LABELS
    tl.store(own + label, tl.sum(tp, 1), mask=real)
    tl.store(own + LABELS + label, tl.sum(fp, 1), mask=real)
    tl.store(own + 2 * LABELS + label, tl.sum(actual, 1), mask=real)
    tl.store(own + 3 * LABELS + label, tl.sum(negatives, 1), mask=real)
    tl.store(own + 4 * LABELS + label, tl.sum(fn, 1), mask=real)
    tl.store(own + 5 * LABELS + label, tl.sum(tn, 1), mask=real)
    # The next two are asked of binary problems only.
    if CROSS_ENTROPY:
        tl.store(own + 6 * LABELS, tl.sum(tl.sum(crosses, 1), 0))
    if LABELS == 1:
        tl.store(own + 6 * LABELS + 1, tl.sum(tl.sum(counts, 1), 0))


@triton.jit
def label_gradient(
    logits, target, weight, threshold, slopes, outer, grad,
    images, size, z_image, z_class, z_row, w_image, w_row, ignore,
    y_image, y_class, y_row, each_threshold, LABELS: tl.constexpr, WEIGHTED: tl.constexpr,
    CROSS_ENTROPY: tl.constexpr,
    SIGMOID: tl.constexpr, EPS: tl.constexpr, BINARY: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`outer` times the gradient, given the slopes (2, C) of the loss by tp and predicted."""
    compute: tl.constexpr = slopes.dtype.element_ty
    classes = 2 if BINARY else LABELS
    t = tl.load(slopes + 2 * classes + 1)
    scale = tl.load(outer).to(compute)
    label = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[:, None]
    real = label < LABELS
    tau = tl.load(threshold + label * each_threshold, mask=real, other=0.5).to(compute)
    # ∂L/∂H of a row is w·(y·of_tp + of_predicted). In a binary problem what enters the positive
    # class leaves the negative one.
    if BINARY:
        negative = tl.load(slopes)
        of_tp = tl.load(slopes + 1) + negative
        of_predicted = tl.load(slopes + 3) - tl.load(slopes + 2) - negative
    else:
        of_tp = tl.load(slopes + label, mask=real, other=0)
        of_predicted = tl.load(slopes + LABELS + label, mask=real, other=0)
    tiles = tl.cdiv(size, ROWS)
    for tile in range(tl.program_id(0), images * tiles, tl.num_programs(0)):
        image = tile // tiles
        s = (tile - image * tiles) * ROWS + tl.arange(0, ROWS)[None, :]
        z, y, w = label_rows(
            logits, target, weight, image, s, label, size, z_image, z_class, z_row,
            y_image, y_class, y_row, w_image, w_row, ignore, LABELS, WEIGHTED, compute,
        )  # fmt: skip
        _h, slope = at_threshold(z, tau, t, SIGMOID, EPS)
        out = slope * (y * of_tp + of_predicted)
        if CROSS_ENTROPY:
            p = 1 / (1 + tl.exp(-(z + shift(slopes + 2 * classes + 2, compute))))
            cross = p - y
            if CROSS_ENTROPY == 2:
                # The two factors stand behind two odds.
                cross = tl.load(slopes + 8) * (1 - y) * p - tl.load(slopes + 9) * y * (1 - p)
            out += tl.load(slopes + 2 * classes) * cross
        at = grad + image.to(tl.int64) * z_image + s.to(tl.int64) * z_row + label * z_class
        tl.store(at, (out * w * scale).to(grad.dtype.element_ty), mask=real & (s < size))


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
    return z, tl.where(counts, y, 0), w


@triton.jit
def shift(odds, compute: tl.constexpr):
    """The offset of a binary logit."""
    return (tl.log(tl.load(odds + 1)) - tl.log(tl.load(odds))).to(compute)


@triton.jit
def _softplus(x):
    return tl.maximum(x, 0) + tl.log(1 + tl.exp(-tl.abs(x)))
