"""The mathematics of the papers, written slowly in numpy: the opponent every fast path must match.

float64, loops over rows and classes, one equation per function. Nothing here imports the package
under test, so an error would have to be made twice to go unseen.

Conventions: `logits` are rows (R, C), or a vector (R,) for a binary problem; `targets` are rows of
class probabilities (R, C), a vector of probabilities of class 1 (R,) for a binary problem, or a
matrix of 0..1 (R, L) for a multilabel one; `weights` has one entry per row (R,), and for a
multilabel problem may also have one per element (R, L), where 0 leaves the element out.
A confusion is a d x d array (rows true), or for a multilabel problem a list of 2 x 2 arrays.
"""
