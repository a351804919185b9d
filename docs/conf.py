import logging
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Rota"
author = "The Rota authors"
copyright = "The Rota authors"
release = version = installed_version("rota")

extensions = ["films", "generated", "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
exclude_patterns = ["_build", "_ext"]

# Docstrings are written for readers of the source: `name` is code, members come in their order.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

smartquotes = False  # options begin with two dashes

html_theme = "furo"
html_title = f"Rota {release}"
html_static_path = ["_static"]
html_css_files = ["rota.css"]

# A chapter may still be without pages. Sphinx gives this warning a subtype but no type, so that
# suppress_warnings cannot name it.
logging.getLogger("sphinx.sphinx.directives.other").addFilter(
    lambda record: getattr(record, "subtype", None) != "empty_glob"
)
