"""Tools that run on the server: every client is offered them, and none has to know."""

from treadle import tool

PRICES = {"A7": 12.5, "B2": 80.0}


@tool(effect="read")
def get_price(article: str) -> dict[str, object]:
    """Look up the price of an article.

    Args:
        article: The article's number.
    """
    if article not in PRICES:
        raise ValueError(f"there is no article {article}; there are {', '.join(PRICES)}")
    return {"article": article, "price": PRICES[article]}
