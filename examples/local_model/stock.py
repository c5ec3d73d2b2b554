"""A tool for the example."""

from treadle import tool

STOCK = {"A7": 41, "B2": 7}


@tool(effect="read")
def count_stock(article: str) -> dict[str, int]:
    """Count the pieces of an article in stock.

    Args:
        article: The article's number.
    """
    return {"pieces": STOCK[article]}
