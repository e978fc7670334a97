"""Sphinx settings of the site: `make site` writes it to `site/`."""

project = "shardproof"
author = "the shardproof authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
html_theme = "alabaster"
html_theme_options = {
    "description": "PyTorch models made parallel, and proved equal.",
    "fixed_sidebar": True,
}
html_show_sourcelink = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]
