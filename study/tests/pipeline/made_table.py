"""A small table of three lines, as `tables.toml` would have it."""

SMALL = {
    "sets": {"mammography": {"label": "Mammography", "variants": ["paper"]}},
    "labels": {"random_forest": "Forest"},
    "small": {
        "paper": "BtG",
        "title": "A small table",
        "network": "mlp32",
        "columns": [["F1", "f1"]],
        "added": ["random_forest"],
        "lines": {"F1*": "btg_f1", "BCE": {"method": "cross_entropy", "dropout": 0.5}},
        "panels": [{"dataset": "mammography"}],
        "claims": [
            {"text": "Better", "better": "F1*", "than": "BCE", "column": "F1"},
            {"text": "Best", "better": "Forest", "than": "F1*", "column": "F1"},
        ],
    },
}
