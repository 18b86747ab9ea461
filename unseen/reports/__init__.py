"""What a run looks like: tables, figures, pages. Imported when one is asked for: training a run
needs none of what draws it."""

from unseen.core.names import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__, {"score_table": "score_tables", "write_page": "run_page:write"}
)
