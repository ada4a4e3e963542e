"""`evalign decide`: a rule for a table of probabilities, and labels by it."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

import evalign
from evalign import DecisionRule, fit_decision
from evalign.decisions.saved_rule import read_state
from evalign.store.files import write_json
from tests.ground.cli.commands import done, refused, small_disk, written

NAMES = ["low", "middle", "high"]
SORTED = sorted(NAMES)
OF_TWO = ["--target", "truth", "--metric", "f1"]


def scores(rows=300, seed=0, logits=False):
    """Scores of three classes, of which the last is rare, and the true label."""
    rng = np.random.default_rng(seed)
    prior = np.array([0.75, 0.2, 0.05])
    y = rng.choice(3, rows, p=prior)
    z = rng.normal(size=(rows, 3)) + np.log(prior)
    z[np.arange(rows), y] += 1.5
    values = z if logits else np.exp(z) / np.exp(z).sum(1, keepdims=True)
    return pd.DataFrame(values, columns=NAMES).assign(label=np.array(NAMES)[y])


def two(rows=200, seed=1):
    """The probability of "yes" alone."""
    rng = np.random.default_rng(seed)
    p = rng.beta(1, 4, rows)
    return pd.DataFrame({"yes": p, "truth": np.where(rng.random(rows) < p, "yes", "no")})


def prefixed(frame):
    """The columns as `evalign predict` names them."""
    return frame.rename(columns={name: f"probability_{name}" for name in NAMES})


def library_gain(frame, columns, decision="tuned"):
    codes = frame["label"].map(SORTED.index).to_numpy()
    given = {"probabilities": frame[columns].to_numpy(), "y": codes, "metric": "f1_macro"}
    return fit_decision(**given, decision=decision).gain.tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, and a rule for it."""
    folder = tmp_path_factory.mktemp("decide")
    data = written(folder / "scores.csv", scores().assign(id=range(300)))
    done("decide", data, "--target", "label", "--out", folder / "rule.json")
    return folder


@pytest.fixture
def fitted(tmp_path):
    """Fit a rule to a frame; return it as JSON, and the command's result."""

    def fit(frame, *options, target="label"):
        rule = tmp_path / "rule.json"
        data = written(tmp_path / "data.csv", frame)
        result = done("decide", data, "--target", target, *options, "--out", rule)
        return json.loads(rule.read_text()), result

    return fit


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_labels(folder, tmp_path, kind):
    new, out = tmp_path / f"new.{kind}", tmp_path / f"labels.{kind}"
    frame = scores(seed=5).assign(note="a, b")
    done("decide", "--rule", folder / "rule.json", written(new, frame), "--out", out)
    read = pd.read_parquet(out) if kind == "parquet" else pd.read_csv(out)
    assert read.columns.tolist() == [*frame.columns, "prediction"]
    state = read_state(folder / "rule.json")
    labels = DecisionRule.from_state_dict(state)(probabilities=frame[SORTED].to_numpy())
    assert read["prediction"].tolist() == labels.tolist()
    argmax, truth = frame[NAMES].idxmax(axis=1), frame["label"]
    ours, usual = (f1_score(truth, y, average="macro") for y in (read["prediction"], argmax))
    assert ours > usual


def test_json(fitted):
    data = json.loads(fitted(scores(), "--decision", "expected", "--json")[1].out)
    assert (data["metric"], data["rows"]) == ("f1_macro", 300)
    assert len(data["rule_scores"]) == len(data["argmax_scores"]) == 5
    gains = np.subtract(data["rule_scores"], data["argmax_scores"])
    assert data["gain"] == pytest.approx(gains.mean())
    assert data["gain_low"] < data["gain"] < data["gain_high"]


def test_one_column_of_two_classes(tmp_path):
    frame = two()
    data, rule = written(tmp_path / "data.parquet", frame), tmp_path / "rule.json"
    bound = ["--constraint", "recall >= 0.8", "--out", rule, "--json"]
    result = done("decide", data, *OF_TWO, *bound)
    assert "The positive class is 'yes'." in result.err
    done("decide", "--rule", rule, data, "--out", tmp_path / "labels.parquet")
    given = pd.read_parquet(tmp_path / "labels.parquet")["prediction"] == "yes"
    np.testing.assert_array_equal(given, frame["yes"] > json.loads(result.out)["threshold"])
    assert given[frame["truth"] == "yes"].mean() >= 0.8
    # The other class as the positive one: the column is then of that class.
    other = written(tmp_path / "other.csv", frame.assign(no=1 - frame.pop("yes")))
    done("decide", other, *OF_TWO, "--positive", "no", "--out", rule)
    saved = json.loads(rule.read_text())
    assert (saved["classes"], saved["pos_label"]) == (["no", "yes"], "no")


@pytest.mark.parametrize("columns", [pytest.param("bare", marks=pytest.mark.slow), "prefixed"])
def test_the_rule_is_the_librarys(fitted, columns):
    frame = scores() if columns == "bare" else prefixed(scores()).assign(prediction="low")
    names = SORTED if columns == "bare" else [f"probability_{name}" for name in SORTED]
    tree, said = fitted(frame)
    assert tree["classes"] == SORTED
    np.testing.assert_allclose(tree["gain"], library_gain(frame, names))
    assert "95% interval" in said.out


@pytest.mark.parametrize("change", [prefixed, lambda frame: frame])
def test_a_class_without_rows(tmp_path, change):
    frame = change(scores())
    data = written(tmp_path / "data.csv", frame[frame["label"] != "high"])
    said = refused("decide", data, "--target", "label", "--out", tmp_path / "x.json")
    assert "must add up to 1 in each row. Got" in said
    assert said.endswith("Each class needs rows, and a column named after it.")


def test_a_rule_that_was_saved_in_python(tmp_path):
    frame = scores()
    rule = fit_decision(probabilities=frame[SORTED].to_numpy(), y=frame["label"], metric="f1_macro")
    rule.save(tmp_path / "rule.json")
    data, out = written(tmp_path / "data.csv", frame), tmp_path / "labels.csv"
    done("decide", "--rule", tmp_path / "rule.json", data, "--out", out)
    expected = rule(probabilities=frame[SORTED].to_numpy())
    assert pd.read_csv(out)["prediction"].tolist() == expected.tolist()


def test_logits_and_weights(fitted):
    """Logits give the rule of their probabilities; a weight of 0 leaves a row out."""
    gains = []
    for logits in ([], ["--logits"]):
        frame = scores(logits=bool(logits)).assign(count=1)
        rows = pd.concat([frame, frame.iloc[:30].assign(label="high", count=0)])
        tree, _ = fitted(rows, "--weight", "count", "--decision", "expected", *logits)
        gains.append(tree["gain"])
    np.testing.assert_allclose(*gains, rtol=1e-6)


TARGET = ["--target", "label"]
BAD = {
    "no target": ([], "Give --target, to find a rule"),
    "unknown target": (["--target", "lable"], "Did you mean 'label'?"),
    "rule and target": (["--rule", "RULE", *TARGET], "Give --target, to find a rule"),
    "unknown metric": ([*TARGET, "--metric", "nosuch"], "must be a name of metrics.names()"),
    "metric of two": (
        [*TARGET, "--metric", "f1"],
        "classes of f1 must be two. Got 3 classes. Use f1_macro,",
    ),
    "columns missing": (["--target", "middle"], "two rows or more of each class"),
    "bad constraint": ([*TARGET, "--constraint", "recall[hi] >= 2"], "constraint"),
    "misspelt constraint": ([*TARGET, "--constraint", "recal >= 0.5"], "Got 'recal'. Did"),
    "no such weight": ([*TARGET, "--weight", "w"], "has no column 'w'"),
    "suffix": ([*TARGET, "--out", "rule.txt"], "must end in .json"),
    "table suffix": (["--rule", "RULE", "--out", "new.json"], "must end in .csv"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options(folder, tmp_path, case):
    options, text = BAD[case]
    options = [folder / "rule.json" if word == "RULE" else word for word in options]
    if "--out" in options:
        options[-1] = tmp_path / options[-1]
    else:
        options += ["--out", tmp_path / ("new.csv" if "--rule" in options else "rule.json")]
    assert text in refused("decide", folder / "scores.csv", *options)
    assert list(tmp_path.iterdir()) == []


TABLES = {
    "logits": (lambda frame: frame.assign(low=-1.0), "pass --logits). Got '-1.0' in row 1."),
    "sums": (lambda frame: frame.assign(low=0.9, high=0.9), "must add up to 1 in each row. Got"),
    "gap": (lambda frame: frame.assign(low=frame["low"].where(frame.index != 2)), "in row 3."),
    "word": (lambda frame: frame.astype({"low": object}).assign(low="much"), "'much' in row 1."),
    "a class without column": (lambda frame: frame.drop(columns="low"), "It has no 'low'. Ren"),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables(folder, tmp_path, case):
    change, text = TABLES[case]
    data = written(tmp_path / "data.csv", change(scores()))
    assert text in refused("decide", data, "--target", "label", "--out", tmp_path / "rule.json")
    rule = folder / "rule.json"
    assert text in refused("decide", "--rule", rule, data, "--out", tmp_path / "labels.csv")
    assert list(tmp_path.iterdir()) == [data]


def test_what_exists_is_not_lost(folder, tmp_path):
    data = written(tmp_path / "data.csv", scores())
    before, rule = data.read_bytes(), folder / "rule.json"
    assert "another file than DATA" in refused("decide", "--rule", rule, data, "--out", data)
    with small_disk(2**10):
        refused("decide", "--rule", rule, data, "--out", tmp_path / "labels.csv")
    assert data.read_bytes() == before
    assert list(tmp_path.iterdir()) == [data]


def test_a_column_of_labels_is_replaced(folder, tmp_path):
    frame = scores(seed=5)
    taken = frame.assign(prediction=1, note="a")[["prediction", *frame.columns, "note"]]
    read = []
    for name, given in {"plain": frame, "taken": taken}.items():
        data, out = written(tmp_path / f"{name}.csv", given), tmp_path / f"{name}_labels.csv"
        done("decide", "--rule", folder / "rule.json", data, "--out", out)
        read.append(pd.read_csv(out))
    assert read[1].columns.tolist() == taken.columns.tolist()
    assert read[0]["prediction"].tolist() == read[1]["prediction"].tolist()


def test_rounding_beyond_one(fitted, tmp_path):
    frame = two()
    frame.loc[:2, "yes"] = 1.01
    fitted(frame, "--metric", "f1", target="truth")
    frame.loc[0, "yes"] = 1.03
    data = written(tmp_path / "data.csv", frame)
    said = refused("decide", data, *OF_TWO, "--out", tmp_path / "x.json")
    assert "Got '1.03' in row 1" in said


def test_a_constraint_that_costs(fitted):
    bound = ["--metric", "accuracy", "--constraint", "recall >= 0.8"]
    tree, said = fitted(two(), *bound, target="truth")
    assert "recall >= 0.8: 0." in said.out
    _, said = fitted(two(), *bound, "--json", target="truth")
    assert json.loads(said.out)["slacks"] == tree["slacks"]


def test_a_promise(tmp_path):
    frame = two()
    frame["place"] = np.where(np.arange(len(frame)) % 3 == 0, "here", None)
    data = written(tmp_path / "data.csv", frame)
    few = written(tmp_path / "few.csv", frame[:40].drop(columns="place"))
    one = written(tmp_path / "one.csv", frame.assign(place="here"))
    how = [*OF_TWO, "--confidence", "0.9", "--out", tmp_path / "rule.json"]
    bounds = ["--constraint", "recall >= 0.5, gap(recall) <= 0.9", "--constraint-groups", "place"]
    said = done("decide", data, *how, *bounds)
    assert "gap(recall) <= 0.9: 0." in said.out
    assert "on rows the rule was not fitted to" in said.out
    assert "On new rows it holds with confidence 0.9." in said.out
    found = json.loads(done("decide", data, *how, *bounds, "--json").out)
    assert found["promised"] is True
    assert 0 < found["held_out_slacks"]["recall >= 0.5"] < 0.5
    said = done("decide", few, *how, "--constraint", "recall >= 0.95")
    assert "Note: The rule does not promise its constraint" in said.err
    assert "it is not shown to hold with confidence 0.9." in said.out
    for table, options, text in [
        (few, ["--constraint", "gap(recall) <= 0.9"], "must be given for a constraint with a gap"),
        (data, ["--constraint", "recall >= 0.5", *bounds[2:]], "must be None without a gap"),
        (few, [], "confidence of evalign decide must come with a constraint"),
        (one, bounds, "constraint_groups of fit_decision must name at least two groups. Got 1."),
    ]:
        assert text in refused("decide", table, *how, *options)


FORGED = [
    ("gain", [[math.nan] * 3] * 3),
    ("gain", None),
    ("classes", None),
    ("classes", ["a"]),
    ("task", "multilabel"),
    ("nosuch", 1),
]  # the rule's other fields are tested with the rule


@pytest.mark.parametrize(("name", "value"), FORGED, ids=str)
def test_a_forged_rule_is_refused(folder, tmp_path, name, value):
    tree = json.loads((folder / "rule.json").read_text())
    tree[name] = value
    tree = {name: tree[name] for name in tree if name not in ("format", "version", "sha256")}
    write_json(tmp_path / "forged.json", "rule", tree)
    text = (tmp_path / "forged.json").read_text()
    (tmp_path / "forged.json").unlink()
    assert "cannot be opened" in applied(folder, tmp_path, text)
    assert [path.name for path in tmp_path.iterdir()] == ["rule.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, '"rule"'])
def test_a_file_that_is_not_a_rule(folder, tmp_path, text):
    assert "holds nothing that evalign saved" in applied(folder, tmp_path, text)


def applied(folder, tmp_path, text):
    """What the command says to a rule of this text."""
    rule, out = tmp_path / "rule.json", tmp_path / "labels.csv"
    rule.write_text(text)
    return refused("decide", "--rule", rule, folder / "scores.csv", "--out", out)


@pytest.mark.parametrize("name", ["no", "probability_no"])
def test_the_column_of_the_other_class_is_refused(tmp_path, name):
    frame = two().rename(columns={"yes": name})
    data, out = written(tmp_path / "scores.csv", frame), tmp_path / "rule.json"
    said = refused("decide", data, *OF_TWO, "--out", out)
    wanted = name.replace("no", "yes")
    assert f"It has no '{wanted}'. Rename the columns, or name the positive class with" in said
    assert not out.exists()


def test_a_table_of_another_kind(tmp_path):
    data, new, out = (tmp_path / f"{name}.csv" for name in ("scores", "new", "labels"))
    scores(logits=True).to_csv(data, sep=";", decimal=",", index=False)
    how = ["--logits", "--sep", ";", "--decimal", ",", "--out", tmp_path / "rule.json"]
    done("decide", data, "--target", "label", *how)
    new.write_text("low;middle;high\n1,234;2,345;-4,125\n", encoding="utf-8")
    done("decide", "--rule", how[-1], new, *how[:-1], out)
    assert len(pd.read_csv(out, sep=None, engine="python")) == 1


def test_what_the_best_rule_reaches_is_of_classes_by_their_names(folder, tmp_path):
    bounds = "recall[high] >= 0.99, precision[high] >= 0.99"
    command = ["decide", folder / "scores.csv", "--target", "label", "--out", tmp_path / "r.json"]
    said = refused(*command, "--constraint", bounds)
    assert f"must be met by some rule on these rows. Got '{bounds}'. " in said
    assert re.search(
        r"'recall\[high\] >= 0.99' is possible with precision\[high\] up to 0\.\d", said
    )


def test_a_cost_is_shown_as_it_is(fitted):
    frame, cost = two(), [[0, 1], [5, 0]]
    how = ["--metric", f"expected_cost{cost}", "--classes", "no,yes"]
    _, shown = fitted(frame, *how, target="truth")
    _, said = fitted(frame, *how, "--json", target="truth")
    told = json.loads(said.out)
    given, true = frame["yes"] > 0.5, frame["truth"] == "yes"
    # The folds are nearly of one size.
    mean = np.array(cost)[true.astype(int), given.astype(int)].mean()
    assert told["mean_argmax_score"] == pytest.approx(mean, rel=0.02)
    assert 0 < told["mean_rule_score"] < told["mean_argmax_score"]
    assert min(told["rule_scores"]) > 0
    assert told["gain"] > 0
    assert told["greater_is_better"] is False
    assert f", {told['mean_argmax_score']:.3f} with argmax." in shown.out
    assert f"The rule saves {told['gain']:.3f} (95% interval" in shown.out


def test_classes_in_an_order_of_their_own(tmp_path):
    """The rule is that of numbers, whatever the order of the columns; a class may lack rows."""
    frame = scores().assign(none=0.0)
    order = [*NAMES, "none"]
    data = written(tmp_path / "scores.csv", frame)
    how = ["--target", "label", "--metric", "cohen_kappa_quadratic", "--out", tmp_path / "r.json"]
    assert "give the order of classes that are text" in refused("decide", data, *how)
    assert "must name every class" in refused("decide", data, *how, "--classes", "a,b")
    done("decide", data, *how, "--classes", ",".join(order))
    rule = evalign.load(tmp_path / "r.json")
    assert rule.classes == sorted(order)
    y = frame["label"].map(order.index).to_numpy()
    plain = fit_decision(y=y, probabilities=frame[order].to_numpy(), metric="cohen_kappa_quadratic")
    expected = np.array(order)[plain(probabilities=frame[order].to_numpy())]
    found = rule(probabilities=frame[sorted(order)].to_numpy())
    assert (found == expected).mean() > 0.98
