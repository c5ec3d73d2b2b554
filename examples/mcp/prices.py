"""A tool of Treadle's own, beside those of the MCP server."""

from treadle import tool


@tool(effect="read")
def get_price(article: str) -> float:
    """Look up the price of an article.

    Args:
        article: The article's number.
    """
    return {"A7": 12.5}.get(article, 0.0)
