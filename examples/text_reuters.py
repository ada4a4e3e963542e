"""Compare cross-entropy with MetricLoss in Hugging Face's Trainer, on Reuters-21578 R8.

The eight topics are long-tailed (3,923 to 51 texts). A tiny transformer with words as tokens is
trained from scratch on the published split. Scores are computed by evalign and by torchmetrics. The
run takes about three minutes on one core.

--data is a csv (or csv.gz) file with the columns split (train, test), class and text.
"""

import argparse
import csv
import gzip
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics.functional.classification import multiclass_f1_score
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from evalign import Confusion, MetricLoss, metrics
from evalign.integrations.huggingface import AlignedTrainer

TARGET = "f1_macro"
REPORTED = [TARGET, "balanced_accuracy", "accuracy"]
WORDS = 5000  # size of the vocabulary
LENGTH = 32  # words per text; the rest is truncated
PADDING, UNKNOWN = 0, 1


class Both(nn.Module):
    """Cross-entropy, which keeps training stable, plus the metric, for the rare topics."""

    def __init__(self) -> None:
        super().__init__()
        self.cross_entropy, self.metric = nn.CrossEntropyLoss(), MetricLoss(TARGET)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.cross_entropy(logits, target) + self.metric(logits, target)


LOSSES = {
    "cross-entropy": nn.CrossEntropyLoss,
    "MetricLoss": lambda: MetricLoss(TARGET),
    "cross-entropy + MetricLoss": Both,
}


def read(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Read the (topic, text) pairs of the "train" and "test" splits."""
    parts: dict[str, list[tuple[str, str]]] = {"train": [], "test": []}
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            parts[row["split"]].append((row["class"], row["text"]))
    return parts


def encode(
    texts: list[tuple[str, str]], words: dict[str, int], topics: list[str]
) -> list[dict[str, Any]]:
    rows = []
    for topic, text in texts:
        ids = [words.get(word, UNKNOWN) for word in text.split()[:LENGTH]]
        padding = LENGTH - len(ids)
        rows.append(
            {
                "input_ids": ids + [PADDING] * padding,
                "attention_mask": [1] * len(ids) + [0] * padding,
                "labels": topics.index(topic),
            }
        )
    return rows


def trainer(
    loss: nn.Module, rows: list[dict[str, Any]], topics: int, folder: str
) -> AlignedTrainer:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS + 2,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=LENGTH,
        num_labels=topics,
        attention_probs_dropout_prob=0.0,  # with dropout, attention has no fast path on a CPU
    )
    args = TrainingArguments(
        folder,
        num_train_epochs=10,
        per_device_train_batch_size=64,
        per_device_eval_batch_size=256,
        learning_rate=1e-3,
        save_strategy="no",
        dataloader_pin_memory=False,
        report_to=[],
    )
    model = BertForSequenceClassification(config)
    return AlignedTrainer(model, args, train_dataset=rows, loss=loss, metric=TARGET)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="reuters_r8.csv.gz")
    data = parser.parse_args(arguments).data
    if not data.is_file():
        sys.exit(f"--data must name the csv of reuters_r8. Got {data}.")
    torch.set_num_threads(1)  # the network is too small to gain from more
    parts = read(data)
    topics = sorted({topic for topic, _ in parts["train"]})
    counts = Counter(word for _, text in parts["train"] for word in text.split())
    words = {word: i + 2 for i, (word, _) in enumerate(counts.most_common(WORDS))}
    train, test = (encode(parts[part], words, topics) for part in ("train", "test"))

    scores = {}
    for name, loss in LOSSES.items():
        with tempfile.TemporaryDirectory() as folder:
            engine = trainer(loss(), train, len(topics), folder)
            engine.train()
            logits, labels = map(torch.as_tensor, engine.predict(test)[:2])
        predicted = logits.argmax(1)
        confusion = Confusion.from_predictions(predicted, labels, num_classes=len(topics))
        scores[name] = [metrics.resolve(metric)(confusion).item() for metric in REPORTED]
        theirs = multiclass_f1_score(predicted, labels, len(topics), average="macro")
        scores[name].append(theirs.item())

    print(f"\n{len(train)} texts to learn from, {len(test)} to test on; trained for {TARGET}\n")
    print(f"{'':28}" + "".join(f"{name:>20}" for name in [*REPORTED, "torchmetrics' F1"]))
    for name, row in scores.items():
        print(f"{name:28}" + "".join(f"{score:>20.3f}" for score in row))


if __name__ == "__main__":
    main()
