"""Sphinx configuration of the documentation site: `make docs` builds it into build/docs."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

from crossling import __version__  # noqa: E402 - needs the path above

project = "crossling"
author = "The crossling authors"
project_copyright = f"2026 {author}. Version {__version__}"  # the footer of every page
version = release = __version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "generated_pages",
    "mathml",
    "public_names",
]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
smartquotes = False  # options begin with two hyphens

default_role = "literal"  # docstrings have code between single backticks
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 88
add_module_names = False
# Types in signatures that have no page here.
nitpick_ignore_regex = [
    # Python's own and other libraries: their inventories are on the network, and the build needs none.
    (r"py:.*", r"(os|pathlib|collections|types|typing|numpy|np|torch|transformers|sentencepiece)\..*"),
    (r"py:.*", r"Path|PathLike|Tensor|PreTrained\w+|TokenizersBackend|SentencePieceProcessor"),
    # Internal types of attributes that a user receives but does not construct.
    (r"py:class", r"crossling\.objectives\.(objective|training_network)\.\w+"),
    (
        r"py:class",
        r"crossling\.(model\.(convert|encoder_model|native_encoder)|core\.jobs|vocabulary\.(unigram|text_sample)|corpora\.corpus)\.\w+",
    ),
    (r"py:class", r"crossling\.(audit\.ranking|data\.shards|finetune\.task_type|planning\.\w+|recipes\.network)\.\w+"),
    (
        r"py:class",
        r"(TaskConfig|Direction|Network|NativeEncoder|CrosslingForConditionalGeneration|Vectors|Model|SentenceHead)",
    ),
]
python_use_unqualified_type_names = True

# A copied block has the commands alone, without prompt and output.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "crossling"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_show_sourcelink = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b6b61",
        "color-brand-content": "#0b6b61",
        "color-brand-visited": "#4b5f7d",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5fd0c0",
        "color-brand-content": "#5fd0c0",
        "color-brand-visited": "#a9b8d6",
    },
}
