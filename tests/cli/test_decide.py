"""`evalign decide`: a rule for a table of probabilities, and labels by it."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from evalign import DecisionRule, fit_decision
from tests.cli.commands import done, refused, small_disk, written

NAMES = ["low", "middle", "high"]


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
    return pd.DataFrame({"score": p, "truth": np.where(rng.random(rows) < p, "yes", "no")})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, a rule for it and what was said."""
    folder = tmp_path_factory.mktemp("decide")
    data = written(folder / "scores.csv", scores().assign(id=range(300)))
    said = done("decide", data, "--target", "label", "--out", folder / "rule.json")
    (folder / "said.txt").write_text(said.out + said.err)
    return folder


def test_the_rule_is_the_librarys(folder):
    frame = scores()
    tree = json.loads((folder / "rule.json").read_text())
    assert tree["rule"]["classes"] == tree["columns"] == sorted(NAMES)
    codes = frame["label"].map(sorted(NAMES).index).to_numpy()
    p = frame[sorted(NAMES)].to_numpy()
    rule = fit_decision(probabilities=p, y=codes, metric="f1_macro")
    np.testing.assert_allclose(tree["rule"]["gain"], rule.gain.tolist())
    said = (folder / "said.txt").read_text()
    assert "95% interval" in said


@pytest.mark.parametrize("kind", ["csv", "parquet", "tsv"])
def test_labels(folder, tmp_path, kind):
    new, out = tmp_path / f"new.{kind}", tmp_path / f"labels.{kind}"
    frame = scores(seed=5).assign(note="a, b")
    if kind == "tsv":
        frame.to_csv(new, sep="\t", index=False)
    else:
        written(new, frame)
    done("decide", "--rule", folder / "rule.json", new, "--out", out)
    read = (
        pd.read_parquet(out)
        if kind == "parquet"
        else pd.read_csv(out, sep="\t" if kind == "tsv" else ",")
    )
    assert read.columns.tolist() == [*frame.columns, "prediction"]
    tree = json.loads((folder / "rule.json").read_text())
    rule = DecisionRule.from_state_dict(tree["rule"])
    codes = rule(probabilities=frame[tree["columns"]].to_numpy())
    assert read["prediction"].tolist() == np.array(tree["rule"]["classes"])[codes].tolist()
    argmax = frame[NAMES].idxmax(axis=1)
    truth = frame["label"]
    assert f1_score(truth, read["prediction"], average="macro") > f1_score(
        truth, argmax, average="macro"
    )


def test_json(folder, tmp_path):
    result = done(
        "decide", folder / "scores.csv", "--target", "label", "--decision", "expected",
        "--out", tmp_path / "rule.json", "--json",
    )  # fmt: skip
    data = json.loads(result.out)
    assert data["metric"] == "f1_macro"
    assert data["rows"] == 300
    assert len(data["rule_scores"]) == len(data["argmax_scores"]) == 5
    assert data["gain"] == pytest.approx(
        np.subtract(data["rule_scores"], data["argmax_scores"]).mean()
    )
    assert data["gain_low"] < data["gain"] < data["gain_high"]


def test_one_column_of_two_classes(tmp_path):
    frame = two()
    data, rule = written(tmp_path / "data.parquet", frame), tmp_path / "rule.json"
    result = done(
        "decide",
        data,
        "--target",
        "truth",
        "--metric",
        "f1",
        "--constraint",
        "recall >= 0.8",
        "--out",
        rule,
        "--json",
    )
    threshold = json.loads(result.out)["threshold"]
    assert "The positive class is 'yes'." in result.err
    done("decide", "--rule", rule, data, "--out", tmp_path / "labels.parquet")
    labels = pd.read_parquet(tmp_path / "labels.parquet")["prediction"]
    np.testing.assert_array_equal(labels == "yes", frame["score"] > threshold)
    assert ((labels == "yes") & (frame["truth"] == "yes")).sum() >= 0.8 * (
        frame["truth"] == "yes"
    ).sum()
    # The other class as the positive one: the column is then of that class.
    other = two().assign(score=lambda part: 1 - part["score"])
    done(
        "decide",
        written(tmp_path / "other.csv", other),
        "--target",
        "truth",
        "--metric",
        "f1",
        "--positive",
        "no",
        "--out",
        rule,
    )
    assert json.loads(rule.read_text())["rule"]["classes"] == ["yes", "no"]


def test_the_columns_that_predict_writes(tmp_path):
    frame = scores().rename(columns={name: f"probability_{name}" for name in NAMES})
    data = written(tmp_path / "scored.csv", frame.assign(prediction="low"))
    out = tmp_path / "rule.json"
    done("decide", data, "--target", "label", "--decision", "expected", "--out", out)
    assert json.loads(out.read_text())["columns"] == [
        f"probability_{name}" for name in sorted(NAMES)
    ]


def test_a_class_without_rows(tmp_path):
    frame = scores()
    data = written(tmp_path / "data.csv", frame[frame["label"] != "high"])
    out = tmp_path / "rule.json"
    options = ["--target", "label", "--decision", "expected", "--out", out]
    text = refused("decide", data, *options)
    assert text.endswith("Name all classes, and no others, with --classes.")
    done("decide", data, *options, "--classes", "low,middle,high")
    assert json.loads(out.read_text())["rule"]["classes"] == sorted(NAMES)


@pytest.mark.parametrize("classes", [None, "low,middle,high"])
@pytest.mark.parametrize("rows", ["all", "without a class"])
def test_classes_of_the_columns_that_predict_writes(tmp_path, classes, rows):
    """A class without a labelled row is one all the same, and goes by its name or its column's."""
    frame = scores().rename(columns={name: f"probability_{name}" for name in NAMES})
    kept = frame if rows == "all" else frame[frame["label"] != "high"]
    data, out = written(tmp_path / "scored.csv", kept), tmp_path / "rule.json"
    more = [] if classes is None else ["--classes", classes]
    how = ["decide", data, "--target", "label", *more, "--out", out]
    if rows != "all":
        text = refused(*how)
        assert "that has a column. Got none of 'high'. Add some, or pass" in text
        how += ["--decision", "expected"]
    done(*how)
    tree = json.loads(out.read_text())
    assert tree["rule"]["classes"] == sorted(NAMES)
    assert tree["columns"] == [f"probability_{name}" for name in sorted(NAMES)]
    codes = kept["label"].map(sorted(NAMES).index).to_numpy()
    rule = fit_decision(
        probabilities=kept[tree["columns"]].to_numpy(),
        y=codes,
        metric="f1_macro",
        decision="tuned" if rows == "all" else "expected",
    )
    np.testing.assert_allclose(tree["rule"]["gain"], rule.gain.tolist())


def test_a_column_that_is_named_as_of_a_class(tmp_path):
    frame = two().assign(probability_yes=lambda part: part.pop("score"), probability_of_rain=0.5)
    frame["probability_no"] = 1 - frame["probability_yes"]
    data, out = written(tmp_path / "data.csv", frame), tmp_path / "rule.json"
    how = ["--target", "truth", "--metric", "f1", "--out", out]
    text = refused("decide", data, *how)
    assert "Got none of 'of_rain'." in text
    done("decide", data, *how, "--classes", "no,yes")
    assert json.loads(out.read_text())["columns"] == ["probability_no", "probability_yes"]


def test_logits_and_weights(tmp_path):
    """Logits give the rule of their probabilities; a weight of 0 leaves a row out."""
    gains = []
    for logits in (False, True):
        frame = scores(logits=logits).assign(count=1)
        wrong = frame.iloc[:30].assign(label="high", count=0)
        data = written(tmp_path / "data.csv", pd.concat([frame, wrong]))
        more = ["--logits"] if logits else []
        out = tmp_path / "rule.json"
        done(
            "decide",
            data,
            "--target",
            "label",
            "--weight",
            "count",
            "--decision",
            "expected",
            "--out",
            out,
            *more,
        )
        gains.append(json.loads(out.read_text())["rule"]["gain"])
    np.testing.assert_allclose(*gains, rtol=1e-6)


BAD = {
    "no target": ([], "Give --target, to find a rule"),
    "unknown target": (["--target", "lable"], "Did you mean 'label'?"),
    "rule and target": (["--rule", "RULE", "--target", "label"], "Give --target, to find a rule"),
    "unknown metric": (
        ["--target", "label", "--metric", "nosuch"],
        "must be a name of metrics.names()",
    ),
    "metric of two": (["--target", "label", "--metric", "f1"], 'by name "f1_macro"'),
    "columns missing": (["--target", "middle"], "two rows or more of each class"),
    "wrong classes": (["--target", "label", "--classes", "low,high"], "It has none for 'middle'"),
    "no such column": (["--target", "label", "--classes", "low,middle,hihg"], "'hihg'"),
    "bad constraint": (["--target", "label", "--constraint", "recall[hi] >= 2"], "constraint"),
    "no such weight": (["--target", "label", "--weight", "w"], "has no column 'w'"),
    "suffix": (["--target", "label", "--out", "rule.txt"], "must end in .json"),
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
    "a class without column": (lambda frame: frame.drop(columns="low"), "It has none for 'low'"),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables(folder, tmp_path, case):
    change, text = TABLES[case]
    data = written(tmp_path / "data.csv", change(scores()))
    assert text in refused("decide", data, "--target", "label", "--out", tmp_path / "rule.json")
    if case != "a class without column":
        rule = folder / "rule.json"
        assert text in refused("decide", "--rule", rule, data, "--out", tmp_path / "labels.csv")
    assert list(tmp_path.iterdir()) == [data]


def test_what_exists_is_not_lost(folder, tmp_path):
    data = written(tmp_path / "data.csv", scores())
    before = data.read_bytes()
    rule = folder / "rule.json"
    assert "another file than DATA" in refused("decide", "--rule", rule, data, "--out", data)
    with small_disk(2**10):
        refused("decide", "--rule", rule, data, "--out", tmp_path / "labels.csv")
    assert data.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_of_labels_is_replaced(folder, tmp_path, kind):
    frame = scores(seed=5)
    plain, taken = (tmp_path / f"{name}.{kind}" for name in ("plain", "taken"))
    written(plain, frame)
    written(taken, frame.assign(prediction=1, note="a")[["prediction", *frame.columns, "note"]])
    read = []
    for data in (plain, taken):
        out = tmp_path / f"{data.stem}_labels.{kind}"
        done("decide", "--rule", folder / "rule.json", data, "--out", out)
        read.append(pd.read_parquet(out) if kind == "parquet" else pd.read_csv(out))
    assert read[1].columns.tolist() == [*frame.columns, "note", "prediction"]
    assert read[0]["prediction"].tolist() == read[1]["prediction"].tolist()


def test_rounding_beyond_one(tmp_path):
    frame = two().assign(score=lambda part: part["score"].where(part.index > 2, 1.0000001))
    how = ("--target", "truth", "--metric", "f1", "--out", tmp_path / "rule.json")
    done("decide", written(tmp_path / "data.csv", frame), *how)
    frame.loc[0, "score"] = 1.00001
    assert "Got '1.00001' in row 1" in refused(
        "decide", written(tmp_path / "data.csv", frame), *how
    )


def test_what_is_left_of_constraints_and_a_rule_that_costs(tmp_path):
    data, rule = written(tmp_path / "data.csv", two()), tmp_path / "rule.json"
    how = (
        "--target",
        "truth",
        "--metric",
        "accuracy",
        "--constraint",
        "recall >= 0.8",
        "--out",
        rule,
    )
    said = done("decide", data, *how)
    assert "recall >= 0.8: 0." in said.out
    # A constraint costs accuracy, and the most probable class need not meet it.
    assert "The most probable class was better" not in said.out
    left = json.loads(done("decide", data, *how, "--json").out)["slacks"]
    assert left == json.loads(rule.read_text())["rule"]["slacks"]


def test_a_promise(tmp_path):
    frame, rule = two(), tmp_path / "rule.json"
    frame["place"] = np.where(np.arange(len(frame)) % 3 == 0, "here", None)
    data = written(tmp_path / "data.csv", frame)
    how = ("--target", "truth", "--metric", "f1", "--confidence", "0.9", "--out", rule)
    bounds = ("--constraint", "recall >= 0.5, gap(recall) <= 0.9", "--groups", "place")
    said = done("decide", data, *how, *bounds)
    assert "gap(recall) <= 0.9: 0." in said.out
    assert "met on 5 of 5 folds" in said.out
    assert "On new rows it holds with confidence 0.9." in said.out
    found = json.loads(done("decide", data, *how, *bounds, "--json").out)
    assert found["promised"] is True
    assert len(found["fold_slacks"]["recall >= 0.5"]) == 5
    few = written(tmp_path / "few.csv", frame[:40].drop(columns="place"))
    said = done("decide", few, *how, "--constraint", "recall >= 0.95")
    assert "Note: The rule does not promise its constraint" in said.err
    assert "it is not shown to hold with confidence 0.9." in said.out
    text = refused("decide", few, *how, "--constraint", "gap(recall) <= 0.9")
    assert "groups of fit_decision must be given for a constraint with a gap" in text
    text = refused("decide", data, *how, "--constraint", "recall >= 0.5", "--groups", "place")
    assert "groups of fit_decision must be None without a gap" in text
    assert "confidence of evalign decide must come with a constraint" in refused(
        "decide", few, *how
    )
    one = written(tmp_path / "one.csv", frame.assign(place="here"))
    assert "groups of fit_decision must name two groups at least. Got 1." in refused(
        "decide", one, *how, *bounds
    )


FORGED = [
    ("format", "another"),
    ("version", 9),
    ("rule.classes", ["a", "a", "b"]),
    ("rule.classes", [[], [], []]),
    ("rule.classes", None),
    ("columns", ["low", "low", "high"]),
    ("columns", ["low"]),
    ("columns", "low"),
    ("columns", [1, 2, 3]),
    ("rule", None),
    ("rule", {}),
    ("rule.gain", [[1.0]]),
    ("rule.gain", [[math.nan] * 3] * 3),
    ("rule.gain", "text"),
    ("rule.gain", [[1e308] * 3] * 3),
    ("rule.offsets", [math.inf] * 3),
    ("rule.offsets", [1e308, 0.0, 0.0]),
    ("rule.class_prior", [1e308, 0.0, 0.0]),
    ("rule.classes", [math.nan, "b", "c"]),
    ("rule.classes", ["a"]),
    ("rule.factor", 1e308),
    ("rule.factor", math.nan),
    ("rule.factor", "1"),
    ("rule.nosuch", 1),
    ("rule.task", "multilabel"),
]


@pytest.mark.parametrize(("name", "value"), FORGED, ids=str)
def test_a_forged_rule_is_refused(folder, tmp_path, name, value):
    tree = json.loads((folder / "rule.json").read_text())
    first, _, inner = name.partition(".")
    if inner:
        tree[first][inner] = value
    else:
        tree[first] = value
    rule = tmp_path / "rule.json"
    rule.write_text(json.dumps(tree))
    text = refused(
        "decide", "--rule", rule, folder / "scores.csv", "--out", tmp_path / "labels.csv"
    )
    assert str(rule) in text
    assert list(tmp_path.iterdir()) == [rule]


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000, '"rule"'])
def test_a_file_that_is_not_a_rule(folder, tmp_path, text):
    rule = tmp_path / "rule.json"
    rule.write_text(text)
    refused("decide", "--rule", rule, folder / "scores.csv", "--out", tmp_path / "labels.csv")


@pytest.mark.parametrize("name", ["no", "probability_no"])
@pytest.mark.parametrize("beside", [{}, {"patient": "p"}], ids=["alone", "beside another"])
def test_the_column_of_the_other_class_is_refused(tmp_path, name, beside):
    frame = two().rename(columns={"score": name}).assign(**beside)
    data, out = written(tmp_path / "scores.csv", frame), tmp_path / "rule.json"
    said = refused("decide", data, "--target", "truth", "--metric", "f1", "--out", out)
    assert "It has none for 'yes'. Rename the columns, or name the positive class with" in said
    assert not out.exists()


def test_the_rule_knows_how_its_table_was_read(tmp_path):
    frame, rule = scores(logits=True), tmp_path / "rule.json"
    data, new, out = (tmp_path / f"{name}.csv" for name in ("scores", "new", "labels"))
    frame.to_csv(data, sep=";", decimal=",", index=False)
    reading = ["--sep", ";", "--decimal", ","]
    done("decide", data, "--target", "label", "--logits", *reading, "--out", rule)
    new.write_text("low;middle;high\n1,234;2,345;-4,125\n", encoding="utf-8")
    done("decide", "--rule", rule, new, "--out", out)
    assert len(pd.read_csv(out, sep=None, engine="python")) == 1


def test_what_the_best_rule_reaches_is_of_classes_by_their_names(folder, tmp_path):
    bounds = "recall[high] >= 0.99, precision[high] >= 0.99"
    command = ["decide", folder / "scores.csv", "--target", "label", "--out", tmp_path / "r.json"]
    said = refused(*command, "--constraint", bounds)
    assert f"must be met by some rule on these rows. Got '{bounds}'. The best" in said
    assert re.search(r"reaches recall\[high\] = 0\.\d+, precision\[high\] = 0\.\d+\.$", said)
    said = refused(*command, "--constraint", "recal >= 0.5")
    assert "must be a name of metrics.names(). Got 'recal'. Did" in said


def test_a_cost_is_shown_as_it_is(tmp_path):
    frame, cost = two(), [[0, 1], [5, 0]]
    data = written(tmp_path / "scores.csv", frame)
    command = ["decide", data, "--target", "truth", "--metric", f"expected_cost{cost}"]
    shown = done(*command, "--out", tmp_path / "rule.json")
    told = json.loads(done(*command, "--out", tmp_path / "rule.json", "--json").out)
    given = (frame["score"] > 0.5).astype(int)
    true = (frame["truth"] == "yes").astype(int)
    # The folds are nearly of one size.
    mean = np.array(cost)[true, given].mean()
    assert told["mean_argmax_score"] == pytest.approx(mean, rel=0.02)
    assert 0 < told["mean_rule_score"] < told["mean_argmax_score"]
    assert min(told["rule_scores"]) > 0
    assert told["gain"] > 0
    assert told["greater_is_better"] is False
    assert re.search(rf"most probable class +{told['mean_argmax_score']:.3f} ", shown.out)
    assert f"The rule saves {told['gain']:.3f} (95% interval" in shown.out
