import logging
from importlib.metadata import version as installed_version

project = "Rota"
author = "The Rota authors"
copyright = "The Rota authors"
release = version = installed_version("rota")

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"Rota {release}"

# A chapter may still be without pages. Sphinx gives this warning a subtype but no type, so that
# suppress_warnings cannot name it.
logging.getLogger("sphinx.sphinx.directives.other").addFilter(
    lambda record: getattr(record, "subtype", None) != "empty_glob"
)
