"""Forty tools that are of no use to any scenario, to be offered beside those that are: a table."""

import msgspec

from treadle.core.json import write_json
from treadle.core.tool_definitions import ServerTool, ToolPolicy, ToolSpec
from treadle.tools import Tool
from treadle.tools.function_tools import foreign_tool
from treadle.tools.tool_context import ToolContext

ROWS: tuple[tuple[str, str, str], ...] = (
    ("archive_mail", "Move old mail to the archive.", "mailbox"),
    ("book_table", "Book a table in a restaurant.", "restaurant"),
    ("brew_coffee", "Make a cup of coffee.", "size"),
    ("call_taxi", "Call a taxi to an address.", "address"),
    ("charge_card", "Charge a credit card.", "amount"),
    ("check_spelling", "Check the spelling of a text.", "text"),
    ("clean_room", "Send the robot to clean a room.", "room"),
    ("close_ticket", "Close a support ticket.", "ticket"),
    ("compress_image", "Make an image smaller.", "image"),
    ("convert_currency", "Convert an amount to another currency.", "amount"),
    ("count_words", "Count the words of a text.", "text"),
    ("create_invoice", "Create an invoice for a customer.", "customer"),
    ("dim_lights", "Dim the lights of a room.", "room"),
    ("draw_chart", "Draw a chart of some numbers.", "numbers"),
    ("feed_fish", "Feed the fish in the tank.", "tank"),
    ("find_flight", "Find flights between two airports.", "route"),
    ("find_recipe", "Find a recipe with an ingredient.", "ingredient"),
    ("format_disk", "Erase a disk.", "disk"),
    ("get_horoscope", "Read the horoscope of a sign.", "sign"),
    ("get_stock_price", "Look up the price of a share.", "symbol"),
    ("grow_plant", "Water a plant.", "plant"),
    ("join_meeting", "Join a video meeting.", "meeting"),
    ("list_birthdays", "List birthdays in a month.", "month"),
    ("lock_door", "Lock a door.", "door"),
    ("measure_noise", "Measure the noise in a room.", "room"),
    ("merge_branches", "Merge two branches of a repository.", "branch"),
    ("order_pizza", "Order a pizza.", "topping"),
    ("pay_bill", "Pay a bill.", "bill"),
    ("play_song", "Play a song.", "title"),
    ("print_label", "Print an address label.", "address"),
    ("read_barcode", "Read a barcode from an image.", "image"),
    ("rename_album", "Rename an album of photos.", "album"),
    ("rent_bike", "Rent a bicycle at a station.", "station"),
    ("reset_password", "Reset the password of a user.", "user"),
    ("roll_dice", "Roll some dice.", "count"),
    ("scan_document", "Scan a paper document.", "pages"),
    ("set_alarm", "Set an alarm clock.", "time"),
    ("sort_books", "Sort the books of a shelf.", "shelf"),
    ("tell_joke", "Tell a joke about something.", "topic"),
    ("translate_text", "Translate a text.", "text"),
)
"""The name of each, what it is said to do, and its one parameter."""


def distractors(count: int) -> list[Tool]:
    """Return the first so many of them."""
    return [_tool(*row) for row in ROWS[:count]]


def _tool(name: str, description: str, parameter: str) -> Tool:
    async def handle(arguments: dict[str, object], context: ToolContext) -> object:
        return f"{name} is done."

    schema = {
        "type": "object",
        "properties": {parameter: {"type": "string"}},
        "required": [parameter],
        "additionalProperties": False,
    }
    spec = ToolSpec(name=name, description=description, parameters=msgspec.Raw(write_json(schema)))
    return foreign_tool(ServerTool(spec=spec, policy=ToolPolicy(approval="never"), source="evals"), handle)
