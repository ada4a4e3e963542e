"""A hook of mkdocs: equations become MathML when the site is built."""

import html
import re

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

# What pymdownx.arithmatex writes in its generic mode: \(...\) inline, \[...\] in a block.
EQUATION = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def mathml(match):
    latex = html.unescape(match["latex"])
    block = match["tag"] == "div"
    element = convert(latex, display="block" if block else "inline")
    # The converter passes on a command that it does not know; a reader should not meet it.
    if "\\" in element:
        raise PluginError(f"not in latex2mathml: {latex}")
    return f'<div class="equation">{element}</div>' if block else element


def on_page_content(content, **kwargs):
    return EQUATION.sub(mathml, content)
