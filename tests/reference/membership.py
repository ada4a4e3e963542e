"""From logits to soft memberships: Heaviside approximations, then one membership per task."""

import math

import numpy as np

# EAST allows T = 0.4, where a segment of eq. 4 has width 0 and its slope divides by zero.
# An outer segment keeps at least this share of min(tau, 1 - tau).
OUTER_SHARE = 1e-6


def sigmoid_function(z):
    """1 / (1 + exp(-z)), with the exponential of a negative number only."""
    if z >= 0:
        return 1 / (1 + math.exp(-z))
    return math.exp(z) / (1 + math.exp(z))


def log_sigmoid(z):
    """log(1 / (1 + exp(-z)))."""
    return min(z, 0.0) - math.log1p(math.exp(-abs(z)))


def log_softmax(row):
    """log(e^{z_i} / sum_j e^{z_j}), by log-sum-exp about the largest logit."""
    top = max(row)
    log_sum = math.log(sum(math.exp(z - top) for z in row))
    return np.array([(z - top) - log_sum for z in row], dtype=float)


def softmax(row):
    """p_i = e^{z_i} / sum_j e^{z_j} (EAST, Section 3)."""
    top = max(row)
    exponentials = [math.exp(z - top) for z in row]
    return np.array([e / sum(exponentials) for e in exponentials], dtype=float)


def linear(p, tau, delta=0.2):
    """BtG eq. 5."""
    tau_m = min(tau, 1 - tau)
    m1 = delta / (tau - tau_m / 2)
    m2 = (1 - 2 * delta) / tau_m
    m3 = delta / (1 - tau - tau_m / 2)
    if p < tau - tau_m / 2:
        return p * m1
    if p > tau + tau_m / 2:
        return p * m3 + (1 - delta - m3 * (tau + tau_m / 2))
    return p * m2 + (0.5 - m2 * tau)


def sigmoid(p, tau, k=10.0):
    """BtG, Section 3.1: H^s(k, p, tau)."""
    return sigmoid_function(k * (p - tau))


def tempered(p, tau, temperature=0.2):
    """EAST eq. 4.

    Each line is written from the point it is known to go through, (0, 0), (1, 1) and (tau, 1/2):
    the paper's intercepts 1 - T - m3 (tau + tau_m/2) and 0.5 - m2 tau are the same lines, but
    cancel badly where a slope is large.
    """
    T = temperature
    smaller = min(tau, 1 - tau)
    outer = max(1 - 2.5 * T, OUTER_SHARE) * smaller  # smaller - tau_m/2
    half = min(2.5 * T, 1 - OUTER_SHARE) * smaller  # tau_m/2
    m1 = T / ((tau - smaller) + outer)  # T / (tau - tau_m/2)
    m2 = (1 - 2 * T) / (2 * half)
    m3 = T / ((1 - tau - smaller) + outer)  # T / (1 - tau - tau_m/2)
    if p < tau - half:
        return p * m1
    if p > tau + half:
        return 1 - m3 * (1 - p)
    return 0.5 + m2 * (p - tau)


def heaviside_at(temperature, kind="linear"):
    """The (p, tau) -> H that a name and a temperature stand for; the sigmoid has k = 2 / T."""
    if kind == "linear":
        return lambda p, tau: tempered(p, tau, temperature)
    if kind == "sigmoid":
        return lambda p, tau: sigmoid(p, tau, 2 / temperature)
    raise ValueError(kind)


def binary(logits, tau, heaviside):
    """H(sigmoid(z), tau) per row, the membership in class 1 (BtG eq. 6)."""
    return np.array([heaviside(sigmoid_function(z), tau) for z in logits], dtype=float)


def dynamic_threshold(p):
    """tau_avg(p): the average of the two largest values of p (EAST, Section 4.1)."""
    first, second = sorted(p, reverse=True)[:2]
    return (first + second) / 2


def multiclass_row(row, heaviside):
    """g_T(p): H at the dynamic threshold, then L1 normalisation (EAST eq. 3-5)."""
    p = softmax(row)
    tau = dynamic_threshold(p)
    values = [heaviside(p_i, tau) for p_i in p]
    return np.array([v / sum(values) for v in values], dtype=float)


def multiclass(logits, heaviside):
    """(R, C) memberships, each row summing to 1."""
    logits = np.asarray(logits, dtype=float)
    memberships = np.zeros(logits.shape)
    for r in range(len(logits)):
        memberships[r] = multiclass_row(logits[r], heaviside)
    return memberships


def multilabel(logits, taus, heaviside):
    """Each label a binary problem of its own; `taus` is one threshold, or one per label."""
    logits = np.asarray(logits, dtype=float)
    taus = np.broadcast_to(taus, (logits.shape[1],))
    memberships = np.zeros(logits.shape)
    for label in range(logits.shape[1]):
        memberships[:, label] = binary(logits[:, label], taus[label], heaviside)
    return memberships
