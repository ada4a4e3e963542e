"""`make demo-loss`: the gain it tells is there, and beyond chance."""

import re
import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "loss_on_digits.py"


def test_the_loss_helps(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr().out
    helped = r"It helped: .* better by .* \(95% interval 0\.\d+ to 0\.\d+\)\."
    assert len(re.findall(helped, said)) == 1
