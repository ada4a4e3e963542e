"""Rules for other class shares, estimated or given, and a warning for unreliable estimates."""

import warnings

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from evalign.decisions import fit_decision
from evalign.decisions.calibration import calibration_gap, estimated_shares
from tests.unit.test_decisions import problem, value

MEANS = {
    2: torch.tensor([[0.0, 0.0], [1.5, 0.5]]).double(),
    3: torch.tensor([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]]).double(),
}
OLD = {2: [0.9, 0.1], 3: [0.8, 0.15, 0.05]}
NEW = {2: [0.5, 0.5], 3: [0.2, 0.3, 0.5]}


def gaussian(rows, prior, seed, trained_on=None):
    """Make the exact logits of normal classes, for the shares that the model was trained on."""
    generator = torch.Generator().manual_seed(seed)
    prior = torch.tensor(prior).double()
    means = MEANS[len(prior)]
    y = torch.multinomial(prior, rows, replacement=True, generator=generator)
    x = means[y] + torch.randn(rows, 2, generator=generator).double()
    distance = ((x.unsqueeze(1) - means) ** 2).sum(-1)
    old = prior if trained_on is None else torch.tensor(trained_on).double()
    return old.log() - distance / 2, y


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("decision", ["tuned", "expected"])
@pytest.mark.parametrize("given", [False, True])
def test_what_a_shift_costs_is_regained(classes, decision, given):
    metric = "f1" if classes == 2 else "f1_macro"
    old, new = OLD[classes], NEW[classes]
    logits, y = gaussian(4000, old, 0)
    rule = fit_decision(logits, y, metric=metric, decision=decision)
    fresh, _ = gaussian(4000, new, 1, trained_on=old)
    test, labels = gaussian(20_000, new, 2, trained_on=old)
    ideal_rows, ideal_y = gaussian(20_000, new, 3, trained_on=old)
    ideal = fit_decision(ideal_rows, ideal_y, metric=metric)
    adapted = rule.adapt(fresh, class_prior=new if given else None)
    stale, now, best = (value(metric, one(test), labels, classes) for one in (rule, adapted, ideal))
    assert best - stale > 0.02  # there is something to regain
    assert best - now < 0.2 * (best - stale)
    # The old share of the rare class, by its 200 to 400 labels, is known to a tenth of itself.
    assert adapted.class_prior.tolist() == pytest.approx(new, abs=1e-9 if given else 0.06)
    assert adapted.source == "adapted"


def test_the_correction_is_that_of_bayes():
    """The adapted probabilities are those of a model that was trained with the new shares."""
    old, new = OLD[3], NEW[3]
    rule = fit_decision(gaussian(5000, old, 0)[0], metric="f1_macro", decision="expected")
    rows, _ = gaussian(50, new, 1, trained_on=old)
    exact, _ = gaussian(50, new, 1)
    fixed = rule.adapt(rows, class_prior=new)
    ratio = torch.tensor(old).double() / rule.class_prior  # the shares of its rows are off a little
    expected = (exact + ratio.log()).softmax(1)
    torch.testing.assert_close(fixed.probabilities(rows), expected)


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_as_before_change_no_share(classes):
    old = OLD[classes]
    rule = fit_decision(gaussian(1000, old, 0)[0], metric="f1_macro", decision="expected")
    changed = 0
    for seed in range(20):
        rows, _ = gaussian(1500, old, 1 + seed)
        same = rule.adapt(rows)
        changed += not torch.equal(same.class_prior, rule.class_prior)
        if torch.equal(same.class_prior, rule.class_prior):
            again = fit_decision(rows, metric="f1_macro", decision="expected")
            assert torch.allclose(same.gain, again.gain)
    assert changed <= 2  # the test's level is 0.01


def test_estimates_are_most_likely():
    """No other shares have a larger likelihood, on a grid."""
    rows, _ = gaussian(500, NEW[3], 0, trained_on=OLD[3])
    old, eta = torch.tensor(OLD[3]).double(), rows.softmax(1)
    found = estimated_shares(eta, old, rows=10**9)
    grid = torch.cartesian_prod(*[torch.linspace(0.01, 0.99, 99).double()] * 2)
    grid = torch.cat([grid, 1 - grid.sum(1, keepdim=True)], 1)
    grid = torch.cat([grid[grid[:, 2] > 0], found.unsqueeze(0)])
    likelihood = (eta / old @ grid.T).log().sum(0)
    assert likelihood.argmax() == len(grid) - 1


def test_shares_change_where_their_likelihood_is_beyond_chance():
    """The ratio of likelihoods is by hand, with the best share by scipy's search."""
    old, known = OLD[2], []
    for seed in range(30):
        rows, _ = gaussian(300, [0.78, 0.22], seed, trained_on=old)
        eta = rows.softmax(1)
        ratio = eta.numpy() / old

        def loss(share, ratio=ratio):
            return -np.log(ratio @ [1 - share, share]).sum()

        best = optimize.minimize_scalar(loss, bounds=(1e-6, 1 - 1e-6), method="bounded")
        beyond = -2 * best.fun / (1 + 300 / 900) > stats.chi2.isf(0.01, 1)
        found = estimated_shares(eta, torch.tensor(old).double(), rows=900)
        assert found[1].item() == pytest.approx(best.x if beyond else old[1], abs=1e-5)
        known.append(beyond)
    assert 5 < sum(known) < 25


def test_many_labels():
    logits, y = gaussian(6000, OLD[2], 0)
    z, labels = (logits[:, 1] - logits[:, 0]).view(3000, 2), y.view(3000, 2)
    rule = fit_decision(z, labels, metric="f1_macro")
    fresh, _ = gaussian(3000, NEW[2], 1, trained_on=OLD[2])
    same, _ = gaussian(3000, OLD[2], 2)
    rows = torch.stack([fresh[:, 1] - fresh[:, 0], same[:, 1] - same[:, 0]], 1)
    adapted = rule.adapt(rows)
    assert adapted.class_prior[0].item() == pytest.approx(0.5, abs=0.06)
    assert adapted.class_prior[1] == rule.class_prior[1]
    given = rule.adapt(rows, class_prior=[0.5, 0.1])
    assert given.class_prior.tolist() == [0.5, 0.1]
    # By Bayes' rule, label by label.
    now, then = torch.tensor([0.5, 0.1]).double(), rule.class_prior
    before = rule.probabilities(rows)
    present, absent = before * now / then, (1 - before) * (1 - now) / (1 - then)
    torch.testing.assert_close(given.probabilities(rows), present / (present + absent))


def test_a_gap_that_chance_explains_is_none():
    logits, y = problem(3, 500)
    target, ones = torch.eye(3).double()[y], torch.ones(500, 1).double()
    assert calibration_gap(logits.softmax(1), target, ones) == 0
    off, _ = problem(3, 500, kind="adjusted")
    assert calibration_gap(off.softmax(1), target, ones) > 0.25
    # Of a class without a row, it is counted in rows.
    even, first = torch.full((500, 2), 0.06).double(), torch.tensor([[1.0, 0.0]]).double()
    even[:, 0] = 0.94
    assert calibration_gap(even, first.expand(500, 2), ones) == pytest.approx(500 * 0.06)
    # Of 400 rows with a probability of ½, one standard deviation is 10; with weights of 2 it is 20.
    even, twos = torch.full((400, 2), 0.5).double(), torch.full((400, 1), 2.0).double()
    for ones, expected in ((229, 0), (231, 31 / 169)):
        labels = (torch.arange(400) < ones).long()
        target = torch.eye(2).double()[labels]
        assert calibration_gap(even, target, twos) == pytest.approx(expected)


def test_probabilities_that_did_not_agree_with_labels_are_not_trusted():
    old, new = OLD[2], NEW[2]
    logits, y = gaussian(2000, old, 0)
    rule = fit_decision(logits, y, metric="f1")
    wrong = fit_decision(logits + torch.tensor([0.0, 2.0]), y, metric="f1")
    rows, _ = gaussian(2000, new, 1, trained_on=old)
    with pytest.warns(UserWarning, match="unreliable: the probabilities were not") as caught:
        wrong.adapt(rows)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule.adapt(rows)
        wrong.adapt(rows, class_prior=new)


def test_bad_shares():
    logits, y = problem(3, 60)
    rule = fit_decision(logits, y, metric="f1_macro")
    for wrong in ([0.5, 0.5], [0.5, 0.5, 0.5], [0.0, 0.5, 0.5], [1.2, -0.1, -0.1]):
        with pytest.raises(ValueError, match=r"class_prior of DecisionRule\.adapt must hold"):
            rule.adapt(logits, class_prior=wrong)
